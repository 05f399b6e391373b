"""The tutorial can be typed as it stands, and prints what it shows."""

from __future__ import annotations

import re
import runpy
import shlex

import pytest
from pages import DOCS

from weft.cli import main

_BLOCK = re.compile(
    r"(?P<before>[^\n]*)\n\n```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_SAVE = re.compile(r"Save as `(\S+)`:$")
_ADD = re.compile(r"at the end of `(\S+)`:$")
_EXIT = re.compile(r"# exit code (\d)")
#: What differs from run to run, and from machine to machine: times, and bytes of packed numbers.
_VARYING = re.compile(r"[\d.]+/[\d.]+/[\d.]+|\b\d+\.\d+ s\b|[\d,]+ bytes|[\d,.]+ k?B\b|[\d.]+$")

#: Megabytes of a comparison, which stand between round trips and seconds.
_MEGABYTES = re.compile(r"(?<=\d )[\d.]+(?= \?$)")


def plain(text):
    """Lines without what varies, without the way that columns are laid out."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    without = (_VARYING.sub("?", line) for line in lines if line.strip(" ─"))
    return [_MEGABYTES.sub("?", line) for line in without]


@pytest.fixture
def shell(capsys, monkeypatch, tmp_path):
    """Types a command in an empty folder, in this process; returns what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(line):
        capsys.readouterr()
        # Seconds of a slow machine take room in the table of a comparison.
        monkeypatch.setenv("COLUMNS", "90" if " compare " in line else "80")
        expected = _EXIT.search(line)
        program, *arguments = shlex.split(line, comments=True)
        if program == "python":
            runpy.run_path(*arguments, run_name="__main__")
        else:
            assert program == "weft"
            with pytest.raises(SystemExit) as stop:
                main(arguments)
            code = int(stop.value.code or 0)
            assert code == (int(expected[1]) if expected else 0), capsys.readouterr().err
        return capsys.readouterr().out

    return run


def typed(page, shell, folder):
    """Types a page, and compares what it shows; returns the commands."""
    said, typed = [], []
    for before, kind, body in _BLOCK.findall((DOCS / page).read_text()):
        if save := _SAVE.search(before):
            (folder / save[1]).write_text(body)
        elif add := _ADD.search(before):
            with (folder / add[1]).open("a") as file:
                file.write(f"\n{body}")
        elif kind == "sh":
            for line in body.splitlines():
                said = plain(shell(line))
                typed.append(line.split()[:2])
        elif kind == "csv":
            # Lines of a file, wherever it lies.
            shown = [path.read_text() for path in folder.glob("*.csv")]
            assert any(body in text for text in shown), f"no file has the lines of {page}"
        else:
            assert kind == "text", f"a block of {kind} that nobody saves"
            at = 0
            for line in plain(body):
                if line != "…":
                    assert line in said[at:], f"{typed[-1]} no longer prints: {line}"
                    at = said.index(line, at) + 1
    return {command for program, command in typed if program == "weft"}


@pytest.mark.usefixtures("no_pictures")
def test_a_study_from_dirty_files_can_be_typed_as_it_stands(shell, tmp_path):
    pytest.importorskip("openpyxl")
    commands = typed("tutorial-files.md", shell, tmp_path)
    assert commands == {"init", "check", "train", "predict"}
    report = (tmp_path / "results" / "readmissions" / "report.html").read_text()
    assert "Not exposed:" in report


@pytest.mark.usefixtures("no_pictures")
def test_every_command_works_and_prints_what_the_page_shows(shell, tmp_path):
    commands = typed("tutorial.md", shell, tmp_path)
    assert commands == {"check", "train", "ledger", "compare", "predict", "audit", "report"}
    page = (DOCS / "tutorial.md").read_text()
    results = tmp_path / "results" / "three-hospitals"
    report = (results / "report.html").read_text()
    told = page[page.index("## 9.") : page.index("## 10.")]
    sections = re.findall(r"(?<!\*)\*([A-Z][A-Za-z ]+)\*(?!\*)", told)
    assert len(sections) == 7
    for section in sections:
        assert f">{section}<" in report, f"the report has no section {section}"
    # The table of λ on the page is that of the run.
    summary = (results / "summary.md").read_text().replace("*", "")
    for lam in ("0.1", "0.01"):
        row = next(line for line in summary.splitlines() if line.startswith(f"| {lam} |"))
        assert row.rsplit("|", 2)[0].strip() in page.replace("*", "")
