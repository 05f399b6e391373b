"""The list of algorithms: whole, readable, and the same in the documentation."""

import json
import tomllib
from pathlib import Path

import msgspec
import pytest

from weft.config.schema import SolverSection
from weft.config.strict_reading import checked
from weft.report.algorithm_reference import describe, markdown_table, meanings
from weft.solvers.algorithm_choice import ALGORITHMS
from weft.solvers.run_settings import Settings

DOCS = Path(__file__).parents[2] / "docs" / "algorithms.md"


@pytest.mark.parametrize("width", [80, 140])
def test_the_table_has_every_algorithm_and_fits(weft, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    outcome = weft("algorithms")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert max(map(len, lines)) <= width
    words = " ".join(outcome.out.split())
    for name, algorithm in ALGORITHMS.items():
        assert any(line.split()[:1] == [name] for line in lines)
        # A reference is never cut off, whatever the width.
        assert algorithm.reference.split()[0] in words
    assert words.index("recommended") < words.index("for comparison")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_everything_about_one_is_said(weft, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    outcome = weft("algorithms", name)
    assert outcome.code == 0
    assert max(map(len, outcome.out.splitlines())) <= 80
    algorithm = ALGORITHMS[name]
    words = " ".join(outcome.out.split())
    for option in (*msgspec.structs.fields(algorithm.options), *algorithm.reads):
        assert getattr(option, "encode_name", option) in words
    for said in (algorithm.about, algorithm.guarantee, algorithm.reference):
        assert said
        assert said.split()[-1] in words
    assert algorithm.coordinator_sees
    assert algorithm.parties_see


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_option_is_explained(name):
    """In the section Attributes of its docstring, from which the table is made."""
    algorithm = ALGORITHMS[name]
    told = meanings(algorithm.options)
    assert not [f.name for f in msgspec.structs.fields(algorithm.options) if not told.get(f.name)]
    assert all(meanings(Settings)[key] for key in algorithm.reads)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_example_is_a_config_that_the_algorithm_takes(name):
    content = tomllib.loads(describe(ALGORITHMS[name])["example"])
    solver = checked(SolverSection, content["solver"], "[solver]")
    loss = "hinge" if ALGORITHMS[name].losses == "kinks" else "logistic"
    settings = Settings(lam=1e-2, loss=loss, solver=solver.name, options=solver.options)
    assert settings.read_options(ALGORITHMS[name].options) == ALGORITHMS[name].options()


def test_as_json(weft):
    everything = json.loads(weft("algorithms", "--json").out)["algorithms"]
    assert [entry["name"] for entry in everything] == list(ALGORITHMS)
    one = json.loads(weft("algorithms", "fedavg", "--json").out)
    assert one in everything
    options = {option["name"]: option for option in one["options"]}
    assert options["b"]["default"] == "1.0"
    assert options["gradient"]["kind"] == "sample | full"
    assert options["a"]["default"] is None
    assert "curvature" in options["a"]["about"]


def test_check_knows_all_of_them(weft, hospitals):
    """Its forecast too; and it refuses a cut that an algorithm cannot train on."""
    hospitals.change("gap = 1e-2", 'gap = 1e-2\nname = "fedbcd"')
    fits = json.loads(weft("check", hospitals.write(), "--json").out)
    assert fits["outlook"]["forecast"]["likely"] > 500
    hospitals.change("fedbcd", "cocoa")
    config = hospitals.write()
    for command in ("check", "train"):
        outcome = weft(command, config)
        assert (outcome.code, outcome.out) == (2, "")
        assert "needs every party to have all features" in outcome.err


def test_an_unknown_name_is_one_sentence_with_the_closest(weft):
    outcome = weft("algorithms", "fedvag")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    assert "'fedvag' (the closest is 'fedavg')" in outcome.err


def test_the_documentation_has_the_same_table(weft):
    printed = weft("algorithms", "--markdown").out
    assert printed == markdown_table()
    assert printed in DOCS.read_text(encoding="utf-8"), (
        "docs/algorithms.md has another table; replace it by what 'weft algorithms --markdown' says"
    )
