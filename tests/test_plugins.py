"""Plug-ins add names by entry points; one that fails costs its own names and one sentence."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from weft.cli.add_plugin_commands import add_plugin_commands
from weft.data.named_data_sets import DATA_SETS, DataSet
from weft.errors import DataError
from weft.plugins import Registry, installed

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
PLUGIN = """
from weft.plugins import Command, Plugin

def data_sets():
    {data_sets}

def hello():
    "Greet."
    print("hello from outside")

PLUGIN = Plugin(commands=lambda: {{"hello": Command(hello)}}, data_sets=data_sets)
"""
COMMANDS = """
from weft.plugins import Command, Plugin

PLUGIN = Plugin(
    commands=lambda: dict.fromkeys(["train", "no such", "hello"], Command(lambda: None))
)
"""


def install(folder, name, text, target=None):
    """A package with one module, and its metadata as an installer writes it."""
    (folder / f"{name}.py").write_text(text)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    declared = target or f"{name}:PLUGIN"
    (metadata / "entry_points.txt").write_text(f"[weft.plugins]\n{name} = {declared}\n")


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Where packages are found, before all others."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def anything(kind, own=()):
    return Registry(kind, dict(own), lambda value: True)


def weft(*arguments, outside):
    code = f"import sys; sys.path.insert(0, {str(outside)!r}); from weft.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


def test_the_installed_package_declares_what_pyproject_says():
    told = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]["weft.plugins"]
    assert told.items() <= installed().items()
    assert not DATA_SETS.problems


def test_own_names_need_no_plug_in(outside):
    install(outside, "broken_one", "raise RuntimeError('never imported')")
    names = anything("splits", {"rows": 1})
    assert names["rows"] == 1
    assert "rows" in names
    assert "broken_one" not in sys.modules


def test_names_of_plug_ins_follow_weft_s_own(outside):
    install(outside, "adds_sets", PLUGIN.format(data_sets="return {'mine': 7}"))
    names = anything("data_sets", {"digits": 1})
    assert next(iter(names)) == "digits"
    assert names["mine"] == 7
    assert len(names) == len(list(names))


@pytest.mark.parametrize(
    ("text", "target", "reason"),
    [
        ("import nowhere_to_be_found", None, "No module named 'nowhere_to_be_found'"),
        ("1 / 0", None, "ZeroDivisionError: division by zero"),
        ("PLUGIN = 3", None, "no weft.plugins.Plugin"),
        ("", None, "has no attribute 'PLUGIN'"),
        (PLUGIN.format(data_sets="raise OSError('one\\ntwo')"), None, "(OSError: one)"),
        ("", "lacking_entirely:PLUGIN", "No module named 'lacking_entirely'"),
    ],
)
def test_a_plug_in_that_fails_is_left_out_with_one_sentence(outside, text, target, reason):
    name = f"fails_{abs(hash((text, target)))}"
    install(outside, name, text, target)
    names = Registry("data_sets", {"digits": 1}, lambda value: isinstance(value, DataSet))
    assert "mnist" in names
    with pytest.raises(DataError) as refusal:
        names.find("nothing like it", "data set")
    told = str(refusal.value)
    assert "choose one of digits, mnist" in told
    assert f"plug-in '{name}' could not be loaded" in told
    assert reason in told
    assert "\n" not in told


def test_a_name_that_is_taken_or_of_the_wrong_type_is_left_out(outside):
    install(
        outside, "clashes", PLUGIN.format(data_sets="return {'digits': 2, 'odd': 3, 'ok': 1.5}")
    )
    names = Registry("data_sets", {"digits": 1.0}, lambda value: isinstance(value, float))
    assert names["digits"] == 1.0
    assert names["ok"] == 1.5
    assert "odd" not in names
    said = [problem for problem in names.problems if "'clashes'" in problem]
    assert said == [
        "plug-in 'clashes' adds 'digits', which there is already",
        "plug-in 'clashes' adds 'odd' as int, which is no entry of data_sets",
    ]


def test_names_keep_their_capitals_and_damaged_metadata_is_no_obstacle(outside):
    install(outside, "Capital", "")
    damaged = outside / "damaged-1.0.dist-info"
    damaged.mkdir()
    (damaged / "entry_points.txt").write_bytes(b"[weft.plugins]\n\xff")
    assert installed()["Capital"] == "Capital:PLUGIN"


def test_commands_of_others_cannot_replace_weft_s_own(outside):
    install(outside, "greets", COMMANDS)
    app = typer.Typer()
    app.command()(lambda: None)
    app.command("train")(lambda: None)
    problems = add_plugin_commands(app)
    assert "a plug-in adds 'train', which there is already" in problems
    assert "a plug-in adds 'no such', but there is no group 'no'" in problems
    assert "hello" in [command.name for command in app.registered_commands]


def test_the_command_line_works_beside_a_broken_plug_in(outside):
    install(outside, "greets", PLUGIN.format(data_sets="return {}"))
    install(outside, "breaks", "import nowhere_to_be_found")
    done = weft("hello", outside=outside)
    assert (done.stdout, done.stderr) == ("hello from outside\n", "")
    done = weft("--help", outside=outside)
    assert "plug-in 'breaks' could not be loaded" in " ".join(done.stdout.split())
    done = weft("breaks", outside=outside)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No such command 'breaks'; plug-in 'breaks' could not be loaded" in done.stderr
