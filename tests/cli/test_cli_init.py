"""``weft init``: from files to a config that ``weft check`` takes."""

import io
import sys
from types import SimpleNamespace

import pytest

from weft.config.site_policy_file import read_policy
from weft.config.table_reading_file import read_reading


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


def test_a_table_without_rows_is_named_beside_the_others(weft, hospitals):
    hospitals.write()
    north, south = (hospitals.folder / f"{name}.csv" for name in ("north", "south"))
    north.write_text(north.read_text().partition("\n")[0] + "\n")
    outcome = weft("init", north, south, "--out", hospitals.folder / "new.toml")
    assert (outcome.code, outcome.err) == (0, "")
    assert "north.csv: the file has no rows; export it again with its data" in outcome.out


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


@pytest.fixture
def kit(tmp_path, monkeypatch):
    """A folder that passes for the kit of a site."""
    from weft.network.kits.kit_folder import Kit

    found = SimpleNamespace(kind="site", name="north")
    monkeypatch.setattr(Kit, "inspect", classmethod(lambda cls, path: found))
    return found


def test_a_site_drafts_its_policy_and_is_told_how_to_join(weft, hospitals, kit):
    hospitals.north["ward"] = ["A", "B"] * 20
    hospitals.write()
    north, out = hospitals.folder / "north.csv", hospitals.folder / "policy.toml"
    outcome = weft("init", north, "--site", "kits/north", "--out", out)
    assert outcome.code == 0, outcome.err
    policy = read_policy(out)
    assert policy.columns == ("age", "weight", "ward")
    assert (policy.limits.kinds, policy.most_runs) == (("linear",), 20)
    assert policy.limits.most_iterations == 300
    reading = hospitals.folder / "reading.toml"
    assert read_reading(reading).columns["ward"].kind == "category"
    joining = outcome.out.replace("\n", " ").split("then ")[1]
    for part in ("weft join kits/north", f"--data {north}", "--id patient", "--label outcome"):
        assert part in joining
    for part in (f"--reading {reading}", f"--policy {out}", "--roster ROSTER"):
        assert part in joining
    hospitals.north["insurance"] = [7_560_000_000 + 7919 * row for row in range(40)]
    hospitals.north["phone"] = [f"+41 79 {row:07}" for row in range(40)]
    hospitals.north["dose"] = [row + 0.5 for row in range(40)]
    hospitals.write()
    named = hospitals.folder / "named.toml"
    reading.unlink()
    assert weft("init", north, "--site", "kits/north", "--out", named).code == 0
    assert read_policy(named).columns == ("age", "weight", "ward", "dose")
    assert "# insurance, phone" in named.read_text()
    again = weft("init", north, "--site", "kits/north", "--out", out)
    assert (again.code, again.out) == (2, "")
    kit.kind = "coordinator"
    other = weft("init", north, "--site", "kits/north", "--out", hospitals.folder / "p.toml")
    assert "is no kit of a site" in other.err
    assert not (hospitals.folder / "p.toml").exists()
