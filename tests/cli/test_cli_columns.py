"""Declared columns on the command line: from words and dates to a model and its predictions."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pandas as pd
import pytest

from weft.config.read_config import read_config
from weft.data.columns.column_rules import decode_rules
from weft.network.task_from_config import task_of

RULES = """
[columns.ward]
kind = "category"

[columns.seen]
kind = "date"
since = "2024-01-01"
parts = ["weekday"]

[columns.age]
range = [-9, 9]
blank = 0
indicator = true
"""


def declared(hospitals, rules=RULES):
    """North has wards, dates and a blank cell; what becomes of them is declared for all."""
    hospitals.north["ward"] = ["A", "B", "A", "C"] * 10
    hospitals.north["seen"] = pd.date_range("2024-01-05", periods=40).strftime("%d.%m.%Y")
    hospitals.north.loc[2, "age"] = None
    hospitals.change("[data]", f"{rules}\n[data]")
    return hospitals.write()


def test_words_dates_and_blanks_train_and_predict(weft, hospitals, tmp_path):
    config = declared(hospitals)
    out = tmp_path / "results"
    trained = weft("train", config, "--out", out, "--quiet")
    assert trained.code == 0, trained.err
    north = hospitals.folder / "north.csv"
    first = weft("predict", out / "model.npz", north, "--id", "patient", "--partial", "--scores")
    assert first.code == 0, first.err
    assert first.err == ""
    frame = pd.read_csv(north).replace({"ward": {"C": "Z"}})
    frame.to_csv(tmp_path / "new.csv", index=False)
    new = weft("predict", out / "model.npz", tmp_path / "new.csv", "--id", "patient", "--partial")
    assert new.code == 0
    assert "column 'ward': 10 cell(s) of 1 level(s)" in new.err
    joint = weft("predict", out / "model.npz", "--joint", config, "--scores")
    assert joint.code == 0, joint.err
    assert len(joint.out.splitlines()) == len(pd.read_csv(north)) + 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"category"', '"categroy"', "[columns.ward] kind = 'categroy' is unknown"),
        (
            "[columns.seen]",
            "[columns.agee]\n[columns.seen]",
            "[columns.agee] is about a column that no party has",
        ),
        ("[-9, 9]", "[8, 9]", "party 'north', north.csv: column 'age' has"),
        ('since = "2024-01-01"', 'format = "%Y"', "north.csv: column 'seen' is declared to hold"),
        ('parts = ["weekday"]', 'parts = ["day"]', "[columns.seen] parts = 'day' is unknown"),
    ],
)
def test_a_mistake_in_a_declaration_is_one_sentence(weft, hospitals, old, new, said):
    outcome = weft("train", declared(hospitals, RULES.replace(old, new)))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    assert said in outcome.err


def test_new_files_are_renamed_and_scaled_as_in_training(weft, hospitals, tmp_path):
    """North has grams under a name of its own, and a word for blank cells."""
    hospitals.change("[data]", '[data]\nmissing = "mean"\nscaling = "standard"')
    hospitals.north.loc[3, "age"] = None
    plain = hospitals.write()
    assert weft("train", plain, "--out", "plain", "--quiet").code == 0
    hospitals.north["weight"] *= 1000.0
    hospitals.north["age"] = (
        hospitals.north["age"].astype(object).where(hospitals.north["age"].notna(), "unknown")
    )
    hospitals.north = hospitals.north.rename(columns={"weight": "Gewicht"})
    hospitals.change(
        'file = "north.csv"',
        'file = "north.csv"\nrename = { "Gewicht" = "weight" }\nscale = { "weight" = 0.001 }\n'
        'blanks = ["unknown"]',
    )
    config = hospitals.write()
    trained = weft("train", config, "--out", "read", "--quiet")
    assert trained.code == 0, trained.err
    whole = hospitals.north.merge(hospitals.south.drop(columns="outcome"), on="patient")
    whole.to_csv(tmp_path / "as-north.csv", index=False)
    told = ["--id", "patient", "--scores"]
    found = weft("predict", "read/model.npz", tmp_path / "as-north.csv", *told)
    assert found.code == 0, found.err
    joint = weft("predict", "read/model.npz", "--joint", config, "--scores")
    scores = [
        pd.read_csv(StringIO(outcome.out)).set_index("id")["score"] for outcome in (found, joint)
    ]
    assert np.allclose(*scores, atol=1e-9)
    # As if nothing had been renamed or scaled.
    whole["weight"] = whole.pop("Gewicht") * 0.001
    whole["age"] = whole["age"].replace("unknown", None)
    whole.to_csv(tmp_path / "plain.csv", index=False)
    other = weft("predict", "plain/model.npz", tmp_path / "plain.csv", *told)
    plain_scores = pd.read_csv(StringIO(other.out)).set_index("id")["score"]
    assert np.allclose(scores[0], plain_scores, atol=1e-6)


def test_a_file_that_parties_read_differently_needs_a_name(weft, hospitals, tmp_path):
    hospitals.south["age"] = hospitals.north["age"]
    hospitals.north["age"] *= 12.0
    hospitals.change('file = "north.csv"', 'file = "north.csv"\nscale = { age = 0.08333 }')
    hospitals.change("allow_pairs = true", "allow_pairs = true\nallow_one_column = true")
    assert weft("train", hospitals.write(), "--out", "r", "--quiet").code == 0
    hospitals.north.to_csv(tmp_path / "new.csv", index=False)
    told = ["predict", "r/model.npz", tmp_path / "new.csv", "--id", "patient", "--partial"]
    outcome = weft(*told)
    assert (outcome.code, outcome.out) == (2, "")
    assert "parties north and south read columns of such a file in different ways" in outcome.err
    scores = {name: weft(*told, "--party", name, "--scores").out for name in ("north", "south")}
    assert scores["north"] != scores["south"]


def test_over_a_network_a_study_may_declare_columns(tmp_path):
    config = tmp_path / "study.toml"
    rules = RULES.replace("[-9, 9]", '[-9, 9]\noutside = "clip"')
    config.write_text(f'name = "study"\n{rules}\n[[party]]\nname = "north"\n')
    task = task_of(read_config(config, deployed=True), ())
    assert sorted(decode_rules(task.columns)) == ["age", "seen", "ward"]
