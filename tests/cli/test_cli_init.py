"""``weft init``: from files to a config that ``weft check`` takes."""

import io
import sys

import pytest


def test_a_drafted_config_mends_what_a_line_can_mend(weft, hospitals, tmp_path):
    hospitals.north["ward"] = ["A", "B"] * 20
    hospitals.south = hospitals.north.copy()
    hospitals.south["patient"] = [f"s{number:03d}" for number in range(40)]
    hospitals.south = hospitals.south.rename(columns={"age": "AGE"})
    hospitals.south["outcome"] = hospitals.south["outcome"].map({"ill": "Ill", "well": "Well"})
    hospitals.south.loc[3, "weight"] = None
    hospitals.write()
    folder = hospitals.folder
    (folder / "config.toml").unlink()
    files = [folder / "north.csv", folder / "south.csv"]
    outcome = weft("init", *files, "--out", folder / "config.toml")
    assert outcome.code == 0, outcome.err
    assert "ids in 'patient', labels in 'outcome'" in outcome.out
    written = (folder / "config.toml").read_text()
    for line in (
        'columns = { "ward" = { "kind" = "category" } }',
        'rename = { "AGE" = "age" }',
        'classes = { "Ill" = "ill", "Well" = "well" }',
        'missing = "mean"',
        'loss = "logistic"',
        'file = "north.csv"',
    ):
        assert f"\n{line}\n" in written
    assert "# column 'ward' is not numeric" in written
    checked = weft("check", folder / "config.toml")
    # Nothing is wrong with the files any more; what the parties agree to is not for a draft.
    assert "horizontal, 2 parties, 80 samples × 4 features, 2 classes" in checked.out
    again = weft("init", *files, "--out", folder / "config.toml")
    assert (again.code, again.out) == (2, "")
    assert "config.toml exists" in again.err
    assert (folder / "config.toml").read_text() == written


def test_a_party_without_the_label_column_gives_no_labels(weft, hospitals):
    hospitals.south = hospitals.south.drop(columns="outcome")
    hospitals.write()
    out = hospitals.folder / "new.toml"
    assert weft("init", *sorted(hospitals.folder.glob("*.csv")), "--out", out).code == 0
    assert 'file = "south.csv"\nlabel = false\n' in out.read_text()


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self):
        return True


def test_in_a_terminal_it_asks(weft, hospitals, monkeypatch):
    hospitals.write()
    out = hospitals.folder / "new.toml"
    monkeypatch.setattr(sys, "stdin", Terminal("patient\nage\n"))
    outcome = weft("init", *sorted(hospitals.folder.glob("*.csv")), "--out", out)
    assert outcome.code == 0, outcome.err
    assert "Column of the ids [patient]" in outcome.out
    assert '\nlabel = "age"\n' in out.read_text()
    assert '\nloss = "squared"\n' in out.read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["gone.csv"], "no file gone.csv"),
        (["table.npz"], "tables with a header"),
        (["table.csv"], "name it with --id"),
        (["table.csv", "--id", "u"], "name it with --label"),
    ],
)
def test_what_cannot_be_guessed_is_asked_for(weft, tmp_path, options, words):
    (tmp_path / "table.csv").write_text("u,v\n1,2\n1,3\n")
    before = sorted(tmp_path.iterdir())
    outcome = weft("init", *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err
    assert sorted(tmp_path.iterdir()) == before
