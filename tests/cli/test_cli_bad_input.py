"""Every mistake gets one sentence, exit code 2, and leaves nothing behind."""

import numpy as np
import pytest

from covering import cover

pytestmark = pytest.mark.usefixtures("no_pictures")


def duplicate_ids(h):
    h.north.loc[3, "patient"] = "n000"


def an_empty_id(h):
    h.north.loc[3, "patient"] = ""


def no_id_column(h):
    h.north = h.north.rename(columns={"patient": "case"})


def a_text_column(h):
    h.south["ward"] = ["A"] * 40


def a_blank_cell(h):
    h.south.loc[5, "marker"] = np.nan


def an_infinite_cell(h):
    h.south.loc[5, "marker"] = np.inf


def one_class_only(h):
    h.north["outcome"] = h.south["outcome"] = "ill"


def labels_that_differ(h):
    flipped = {"ill": "well", "well": "ill"}
    h.south.loc[7, "outcome"] = flipped[h.south.loc[7, "outcome"]]


def ids_in_two_schemes(h):
    # Other numbers, too: without what they begin with, they would be the same people.
    h.south["patient"] = [f"S-{number}" for number in range(900, 940)]


def nobody_has_labels(h):
    h.change('label = "outcome"\n', "")
    h.north, h.south = h.north.drop(columns="outcome"), h.south.drop(columns="outcome")


def a_party_without_any_labelled_sample(h):
    h.change('file = "south.csv"', 'file = "south.csv"\nlabel = false')
    h.south = h.south.drop(columns="outcome")
    h.south["patient"] = [f"S-{number}" for number in range(900, 940)]


def all_labels_blank(h):
    h.north["outcome"] = h.south["outcome"] = ""


def lambda_zero(h):
    h.change("lambda = 1e-2", "lambda = 0")


def lambda_negative(h):
    h.change("lambda = 1e-2", "lambda = -1.0")


def lambda_text(h):
    h.change("lambda = 1e-2", 'lambda = "small"')


def unknown_loss(h):
    h.change('"hinge"', '"hing"')


def unknown_solver(h):
    h.change("[solver]", '[solver]\nname = "hyfcda"')


def unknown_scaling(h):
    h.change("unit_rows = true", 'scaling = "standart"')


def misspelt_key(h):
    h.change("iterations = 500", "iterrations = 500")


def misspelt_section(h):
    h.change("[solver]", "[slover]")


def misspelt_party_key(h):
    h.change('file = "north.csv"', 'fil = "north.csv"')


def missing_file(h):
    h.change("north.csv", "nroth.csv")


def two_parties_of_one_name(h):
    h.change('name = "south"', 'name = "north"')


def no_parties(h):
    h.config = h.config[: h.config.index("[[party]]")]


def broken_toml(h):
    h.change("[model]", "[model")


def unknown_cipher(h):
    h.change("[solver]", '[solver]\ncipher = "rot13"')


def unknown_participation(h):
    h.change("[solver]", '[solver]\nparticipation = "sometimes"')


MISTAKES = [
    (duplicate_ids, ["north", "'n000'", "more than once"]),
    (an_empty_id, ["north", "position 4", "empty"]),
    (no_id_column, ["north", "id column 'patient'"]),
    (a_text_column, ["south", "'ward'", "not numeric"]),
    (a_blank_cell, ["south", "'marker'", "'n005'", "'zero' or 'mean'"]),
    (an_infinite_cell, ["south", "'marker'", "'n005'", "infinite"]),
    (one_class_only, ["ill", "two classes"]),
    (labels_that_differ, ["north", "south", "row 8"]),
    (ids_in_two_schemes, ["party north", "confirm_separate_ids"]),
    (nobody_has_labels, ["no label at any party"]),
    (a_party_without_any_labelled_sample, ["party south", "label"]),
    (all_labels_blank, ["no label"]),
    (lambda_zero, ["config.toml", "lambda = 0", "inference = true"]),
    (lambda_negative, ["config.toml", "lambda is -1"]),
    (lambda_text, ["[model]", "lambda", "a number"]),
    (unknown_loss, ["hing", "hinge", "smoothed_hinge"]),
    (unknown_solver, ["unknown solver 'hyfcda'", "hyfdca"]),
    (unknown_scaling, ["[data]", "'standard'", "minmax"]),
    (misspelt_key, ["[solver]", "no key 'iterrations' (did you mean 'iterations'?)"]),
    (misspelt_section, ["'slover'", "did you mean 'solver'?"]),
    (misspelt_party_key, ["party 'north'", "did you mean 'file'?"]),
    (missing_file, ["party 'north'", "nroth.csv", "does not exist"]),
    (two_parties_of_one_name, ["two parties are called 'north'"]),
    (no_parties, ["no parties", "[[party]]"]),
    (broken_toml, ["not valid TOML"]),
    (unknown_cipher, ["cipher 'rot13'"]),
    (unknown_participation, ["participation", "everyone"]),
]


# Either command reads the config and the tables by the same code: with every change, one does.
@cover(
    ("command", "spoil", "words"),
    [(command, *mistake) for command in ("check", "train") for mistake in MISTAKES],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_mistake_is_one_sentence(weft, hospitals, tmp_path, command, spoil, words):
    spoil(hospitals)
    config = hospitals.write()
    before = sorted(tmp_path.rglob("*"))
    outcome = weft(command, config)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("weft: ")
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    for word in words:
        assert word in outcome.err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_with_something_in_it_is_not_touched(weft, hospitals, tmp_path):
    config = hospitals.write()
    for command in (["train", config], ["demo"], ["split", "digits", "--k", 2, "--q", 2]):
        folder = tmp_path / "results"
        folder.mkdir(exist_ok=True)
        (folder / "precious.txt").write_text("mine")
        outcome = weft(*command, "--out", folder)
        assert outcome.code == 2
        assert "exists and is not empty" in outcome.err
        assert [path.name for path in folder.iterdir()] == ["precious.txt"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train"], ["config", "weft train --help"]),
        (["train", "nothing.toml"], ["no config file nothing.toml"]),
        (["trian", "config.toml"], ["trian"]),
        (["demo", "--jsno"], ["--jsno"]),
        (["demo", "--cipher", "rot13"], ["cipher 'rot13'"]),
        (["split", "digit", "--out", "x"], ["digits"]),
        (["split", "digits", "--split", "gird", "--out", "x"], ["the closest is 'grid'"]),
        (["split", "digits", "--k", "2", "--out", "x"], ["needs q"]),
        (["split", "digits", "--k", "2", "--q", "99", "--out", "x"], ["64 features", "99"]),
        (["split", "digits", "--k=2", "--q=2", "--set", "kk=1", "--out", "x"], ["no key 'kk'"]),
        (["split", "digits", "--k=2", "--q=2", "--format", "xls", "--out", "x"], ["xls"]),
        (["split", "table.csv", "--out", "x"], ["table.csv", "no such file"]),
        (["predict", "model.npz", "new.csv"], ["no model file model.npz"]),
    ],
)
def test_wrong_arguments_are_one_sentence(weft, tmp_path, arguments, words):
    outcome = weft(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("weft: ")
    assert outcome.err.count("\n") == 1
    for word in words:
        assert word in outcome.err
    assert not list(tmp_path.iterdir())


def test_separate_ids_are_accepted_once_confirmed(weft, hospitals):
    ids_in_two_schemes(hospitals)
    hospitals.change("unit_rows = true", "unit_rows = true\nconfirm_separate_ids = true")
    assert weft("check", hospitals.write()).code == 0


def test_samples_without_a_label_holder_are_left_out_and_counted(weft, hospitals):
    hospitals.north.loc[10:14, "outcome"] = hospitals.south.loc[10:14, "outcome"] = ""
    outcome = weft("check", hospitals.write())
    assert outcome.code == 0
    assert "5 sample(s) are left out" in outcome.out


@pytest.mark.parametrize("policy", ["zero", "mean"])
def test_blank_cells_are_filled_on_request(weft, hospitals, policy):
    a_blank_cell(hospitals)
    hospitals.change("unit_rows = true", f'scaling = "standard"\nmissing = "{policy}"')
    assert weft("train", hospitals.write(), "--quiet").code == 0
