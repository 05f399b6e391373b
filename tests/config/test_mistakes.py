"""Every mistake in a config is one sentence: file, section, key, what is wrong, what to write."""

from __future__ import annotations

import msgspec
import pytest

from weft.config.read_config import read_config
from weft.config.schema import PartySection
from weft.errors import ConfigError
from weft_neural.config import read_neural_config

LINEAR = """\
name = "two hospitals"
[data]
id = "patient"
[model]
lambda = 1e-2
[solver]
gap = 1e-2
[[party]]
name = "north"
file = "north.csv"
"""
NEURAL = """\
[neural]
coordinator_sees = "weights"
[neural.blocks.mri]
columns = ["mri_*"]
[privacy]
allow_networks = true
coordinator_sees = "weights"
[[party]]
name = "north"
file = "north.csv"
"""


@pytest.fixture
def mistake(tmp_path):
    """What is said of a config in which one text takes the place of another."""

    def read(text, old, new, reader):
        assert old in text
        (tmp_path / "north.csv").write_text("patient\n")
        (tmp_path / "config.toml").write_text(text.replace(old, new, 1))
        with pytest.raises(ConfigError) as stop:
            reader(tmp_path / "config.toml")
        said = str(stop.value)
        assert "\n" not in said
        assert said.startswith("config.toml: ")
        return said.removeprefix("config.toml: ")

    return read


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "two hospitals"', 'name = " "', 'needs name, such as name = "three hospitals"'),
        ('name = "two hospitals"', "name = 3", "name: expected text, got a whole number"),
        ("[solver]", "[slover]", "the config has no key 'slover' (did you mean 'solver'?)"),
        ("[solver]", "[[solver]]", "solver must be a section [solver] with keys of its own"),
        ("[[party]]", "[party]", "write [[party]] with two brackets, once for each party"),
        ('name = "north"', "", 'party 1 needs name, such as name = "north"'),
        ('"north"', '"a/b"', "party 'a/b' needs a name with at least one letter and no slash"),
        ('file = "north.csv"', "files = [1]", "party 'north' files: expected text, got a whole"),
        ('file = "north.csv"', "label = true", "party 'north' has label = true, which says no"),
        ("[data]\n", "[data]\nsplit = 3\n", "[data.split] must be a table of keys and values"),
        ("lambda = 1e-2", 'lambda = ["a"]', "[model] lambda: expected a number, got text"),
        ("lambda = 1e-2", "lambda = []", "[model] needs lambda, such as lambda = [0.1, 0.01]"),
        ("gap = 1e-2", "gap = -1", "[solver] gap is -1; a certified gap is positive, try 1e-3"),
        ("gap = 1e-2", "gap = true", "[solver] gap: expected a number, got true or false"),
        ("gap = 1e-2", "gpa = 1", "[solver] has no key 'gpa' (did you mean 'gap'?)"),
        ("gap = 1e-2", "options = 3", "[solver.options] must be a table of keys and values"),
        (
            "gap = 1e-2",
            "local = 'saf'",
            "[solver] local = 'saf' is unknown (the closest is 'safe'); choose one of safe, "
            "practical, theory",
        ),
        (
            "gap = 1e-2",
            "checkpoint_every = 0",
            "[solver] checkpoint_every = 0 is out of range; give a whole number of at least 1",
        ),
        (
            "[solver]",
            "[network]\nsetup = 0\n[solver]",
            "[network] setup = 0 is out of range; give a number above 0",
        ),
        ("[solver]", "[privacy]\nmin_batch = 0\n[solver]", "[privacy] min_batch is 0; give"),
        ("[solver]", "[privacy]\nmin_bach = 9\n[solver]", "did you mean 'min_batch'?"),
        ("[solver]", "[keys]\n[solver]", '[keys] needs folder, such as folder = "keys"'),
        (
            "[solver]",
            "[compare.fedavg]\nb = -1\n[solver]",
            "[compare.fedavg] the rate a/(b + √t) has",
        ),
    ],
)
def test_of_a_linear_model(mistake, old, new, said):
    assert said in mistake(LINEAR, old, new, read_config)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("columns", "column", "[neural.blocks.mri] has no key 'column' (did you mean 'columns'?)"),
        ('columns = ["mri_*"]', "shape = [0]", "[neural.blocks.mri] a block has the shape [0]"),
        ('columns = ["mri_*"]', 'extractor = "q"', "[neural.blocks.mri]: unknown extractor 'q'"),
        ('columns = ["mri_*"]', "options = {q = 1}", "[neural.blocks.mri]: the options of"),
        ("[neural]\n", "[neural]\nrounds = 0\n", "[neural] rounds is 0; give a whole number"),
        (
            "[neural]\n",
            '[neural]\nmatching = {cost = "x"}\n',
            "[neural.matching] cost = 'x' is unknown; choose one of weighted, squared, pfnm",
        ),
        (
            '[neural.blocks.mri]\ncolumns = ["mri_*"]',
            "[neural.blocks]\nmri = 3",
            "[neural.blocks.mri] must be a table of keys and values",
        ),
    ],
)
def test_of_a_neural_run(mistake, old, new, said):
    assert said in mistake(NEURAL, old, new, read_neural_config)


def test_values_that_fit_only_together_may_come_from_two_sections(tmp_path):
    """γ of [compare.hyfdca] needs a local method that [solver] names."""
    (tmp_path / "north.csv").write_text("patient\n")
    told = "[compare.hyfdca]\ngamma = 0.5\n[solver]\nlocal = 'practical'"
    (tmp_path / "config.toml").write_text(LINEAR.replace("[solver]", told))
    config = read_config(tmp_path / "config.toml")
    assert config.compare == {"hyfdca": {"gamma": 0.5}}
    assert config.settings.local == "practical"


def test_a_party_that_says_its_name_says_nothing_else():
    """Over a network nothing more may be said: a default that is not None would be refused."""
    party = PartySection(name="north")
    assert {key for key, value in msgspec.structs.asdict(party).items() if value is not None} == {
        "name"
    }
