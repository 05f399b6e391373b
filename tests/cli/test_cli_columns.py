"""Declared columns on the command line: from words and dates to a model and its predictions."""

from __future__ import annotations

import pandas as pd
import pytest

from weft.config.read_config import read_config
from weft.errors import ConfigError

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


def test_over_a_network_sites_declare_their_columns_themselves(tmp_path):
    config = tmp_path / "study.toml"
    config.write_text(f'name = "study"\n{RULES}\n[[party]]\nname = "north"\n')
    with pytest.raises(ConfigError, match=r"\[columns\] is for one process; .* each site says"):
        read_config(config, deployed=True)
