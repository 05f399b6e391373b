"""``weft check`` on files as people have them: all that is wrong, at once, with its mend."""

import json
import re

import pytest

pytestmark = pytest.mark.usefixtures("no_pictures")


def spoil(hospitals):
    """Six problems in two files."""
    hospitals.north["ward"] = ["A", "B"] * 20
    hospitals.north["seen"] = "2020-01-31"
    hospitals.north.loc[3, "patient"] = "n000"
    hospitals.north.loc[5:7, "age"] = None
    hospitals.south.loc[4, "marker"] = float("inf")
    hospitals.south["pressure"] = hospitals.south["pressure"].astype(object)
    hospitals.south.loc[[2, 9], "pressure"] = "high"


def test_all_problems_of_all_files_come_in_one_pass(weft, hospitals, tmp_path):
    spoil(hospitals)
    config = hospitals.write()
    before = sorted(tmp_path.rglob("*"))
    outcome = weft("check", config)
    assert outcome.code == 2
    assert outcome.err == "weft: 6 problems in the files, listed above; mend them and try again\n"
    for words in (
        ["party 'north', north.csv", "'ward' is not numeric", "40 of 40 cells: 'A', 'B'"],
        ["party 'north', north.csv", "'seen' holds dates"],
        ["party 'north', north.csv", "'n000' occurs more than once"],
        ["party 'north', north.csv", "3 missing cells", "'age': 3"],
        ["party 'south', south.csv", "'marker' is infinite", "'n004'"],
        ["party 'south', south.csv", "'pressure' is not numeric", "2 of 40 cells: 'high'"],
    ):
        assert any(all(w in line for w in words) for line in outcome.out.splitlines()), words
    assert sorted(tmp_path.rglob("*")) == before


def test_training_names_the_first_problem_and_how_many_there_are(weft, hospitals):
    spoil(hospitals)
    outcome = weft("train", hospitals.write())
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    assert "5 more problems: 'weft check' lists all of them" in outcome.err


def test_problems_are_there_as_json_too(weft, hospitals):
    spoil(hospitals)
    outcome = weft("check", hospitals.write(), "--json")
    assert outcome.code == 2
    told = json.loads(outcome.out)
    assert [one["severity"] for one in told["problems"]] == ["error"] * 6
    ward = next(one for one in told["problems"] if one["column"] == "ward")
    assert (ward["party"], ward["file"], ward["count"]) == ("north", "north.csv", 40)
    line = 'columns = { "ward" = { "kind" = "category" } }'
    assert (ward["section"], ward["line"]) == ("[[party]] north", line)
    assert told["mend"]["[data]"] == ['missing = "mean"']


def test_the_lines_that_are_proposed_mend_the_files(weft, hospitals):
    spoil(hospitals)
    hospitals.change("[data]", '[data]\nscaling = "standard"')
    hospitals.south.loc[4, "marker"] = 1.0
    hospitals.south["dose"] = hospitals.south["marker"] ** 2
    outcome = weft("check", hospitals.write(), "--json")
    mend = json.loads(outcome.out)["mend"]
    for section, lines in mend.items():
        party = section.removeprefix("[[party]] ")
        old = "[data]" if section == "[data]" else f'file = "{party}.csv"'
        hospitals.change(old, "\n".join([old, *lines]))
    assert weft("check", hospitals.write()).code == 0


def test_notes_say_how_a_file_was_read(weft, hospitals):
    config = hospitals.write()
    north = hospitals.folder / "north.csv"
    hospitals.north.to_csv(north, index=False, sep=";", decimal=",")
    outcome = weft("check", config)
    assert outcome.code == 0
    said = re.sub(r"\s+", " ", outcome.out)
    assert "party 'north', north.csv: a semicolon parts the columns" in said
    assert "the decimal sign is a comma" in said
    notes = json.loads(weft("check", config, "--json").out)["notes"]
    assert {note["severity"] for note in notes} == {"note"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('source = "postgresql://anna:pw-7@host/db"', ["credentials in its address", "PGPASSWORD"]),
        ('rename = { "ag" = "age2" }', ["rename names the column 'ag'", "the closest is 'age'"]),
        ('drop = ["wieght"]', ["drop names the column 'wieght'", "'weight'"]),
        ('thousands = "x"', ["party 'north'", "thousands"]),
        ('decimal = ";"', ["decimal", "choose one of ., ,"]),
        ("seperator = ';'", ["no key 'seperator'", "did you mean 'separator'?"]),
    ],
)
def test_what_a_party_says_about_its_files_is_checked(weft, hospitals, line, words):
    hospitals.change('file = "north.csv"', f'file = "north.csv"\n{line}')
    outcome = weft("check", hospitals.write())
    assert (outcome.code, outcome.out) == (2, "")
    for word in words:
        assert word in outcome.err
    assert "pw-7" not in outcome.err
    assert "anna" not in outcome.err


# ── what parties write in two ways ────────────────────────────────────────────────────────────


def same_rows(hospitals):
    """Both hospitals have the same columns, of patients of their own."""
    hospitals.south = hospitals.north.copy()
    hospitals.south["patient"] = [f"s{number:03d}" for number in range(40)]


def two_spellings(h):
    same_rows(h)
    h.south = h.south.rename(columns={"age": "Age ", "weight": "WEIGHT"})


def lost_zeros(h):
    h.north["patient"] = [f"{number:06d}" for number in range(40)]
    h.south["patient"] = [str(number) for number in range(40)]


def a_prefix(h):
    h.south["patient"] = "S-" + h.south["patient"]


def two_prefixes(h):
    h.north["patient"] = "N-" + h.north["patient"].str[1:]
    h.south["patient"] = "S-" + h.south["patient"].str[1:]


def labels_in_other_words(h):
    same_rows(h)
    h.north["outcome"] = h.north["outcome"].map({"ill": "1", "well": "0"})
    h.south["outcome"] = h.south["outcome"].map({"ill": "yes", "well": "no"})


def other_coding(h):
    same_rows(h)
    h.north["outcome"] = h.north["outcome"].map({"ill": "1", "well": "0"})
    h.south["outcome"] = h.south["outcome"].map({"ill": "2", "well": "1"})


def other_units(h):
    same_rows(h)
    h.south["weight"] = h.south["weight"] * 1000


NEAR_MISSES = [
    (two_spellings, "names", ["'WEIGHT' is called 'weight' at north"], 2),
    (lost_zeros, "ids", ["party 'south': 40 of its ids", "leading zeros"], 1),
    (a_prefix, "ids", ["40 of its 40 ids would occur at north", "'S-'", "now 0 do"], 1),
    (two_prefixes, "ids", ["40 of its ids would occur at north", "'S-' here and with 'N-'"], 2),
    (labels_in_other_words, "labels", ["labels are no, yes, those of north 0, 1"], 1),
    (other_coding, "labels", ["labels are 1, 2, those of north 0, 1"], 1),
    (other_units, "units", ["'weight' is about 1000 times that of north"], 1),
]


@pytest.mark.parametrize(
    ("spoil", "kind", "words", "count"), NEAR_MISSES, ids=[m[0].__name__ for m in NEAR_MISSES]
)
def test_near_misses_stop_a_run_until_they_are_mended(weft, hospitals, spoil, kind, words, count):
    spoil(hospitals)
    config = hospitals.write()
    told = json.loads(weft("check", config, "--json").out)
    doubts = [one for one in told["problems"] if one["severity"] == "doubt"]
    assert len(doubts) == count
    said = " ".join(one["sentence"] for one in doubts)
    for word in (*words, f'confirmed = ["{kind}"]'):
        assert word in said
    if kind == "ids":
        # Counts, and no id.
        assert not any(name in said for name in hospitals.north["patient"])
    outcome = weft("train", config)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    assert "[[party]] south" in told["mend"]
    for section, lines in told["mend"].items():
        old = f'file = "{section.removeprefix("[[party]] ")}.csv"'
        hospitals.change(old, "\n".join([old, *lines]))
    mended = weft("check", hospitals.write())
    assert "confirmed" not in mended.err
    assert mended.code == 0, mended.err


def test_what_is_meant_to_differ_is_confirmed(weft, hospitals):
    two_spellings(hospitals)
    labels_in_other_words(hospitals)
    hospitals.south = hospitals.south.rename(columns={"age": "Age"})
    hospitals.change(
        "[data]", '[data]\nconfirmed = ["names", "labels"]\nconfirm_separate_ids = true'
    )
    outcome = weft("check", hospitals.write())
    assert "3 features" in outcome.out
    assert "4 classes" in outcome.out


def test_a_feature_under_another_spelling_is_not_predicted_as_its_centre(weft, hospitals):
    assert weft("train", hospitals.write(), "--quiet").code == 0
    new = hospitals.north.merge(hospitals.south.drop(columns="outcome"), on="patient")
    new.rename(columns={"age": "AGE"}).to_csv("new.csv", index=False)
    model = "results/two-hospitals/model.npz"
    for more in ([], ["--partial"]):
        outcome = weft("predict", model, "new.csv", "--id", "patient", *more)
        assert (outcome.code, outcome.out) == (2, "")
        assert "its column 'AGE' is called 'age' in the model" in outcome.err
