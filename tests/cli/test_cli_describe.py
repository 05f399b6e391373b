"""``weft describe`` on files: levels, blank cells, the page, and what the ledger makes of it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

CONFIG = """
name = "three clinics"

[data]
id = "patient"
label = "outcome"
{more}

[[party]]
name = "north"
files = ["north.csv"]
[[party]]
name = "south"
files = ["south.csv"]
[[party]]
name = "west"
files = ["west.csv"]

[columns.ward]
kind = "category"

[model]
loss = "logistic"
lambda = 0.1
"""


@pytest.fixture
def clinics(tmp_path):
    """Three files, with a ward that only three patients of west are in, and blank cells."""
    rng = np.random.default_rng(9)
    frames = {}
    for place, name in enumerate(("north", "south", "west")):
        wards = rng.permutation(np.repeat(["A", "B", "C"], [40, 25, 15]))
        if name == "west":
            wards = rng.permutation(np.repeat(["A", "B", "C"], [40, 37, 3]))
        frames[name] = pd.DataFrame(
            {
                "patient": [f"{name[0]}{row:03}" for row in range(80)],
                "age": rng.integers(20, 80, 80).astype(float),
                "ward": wards,
                "outcome": rng.permutation(np.arange(80) % 3 == 0).astype(int),
            }
        )
        frames[name].loc[: 11 if place == 0 else 1, "age"] = np.nan
        frames[name].to_csv(tmp_path / f"{name}.csv", index=False)
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(more=""))
    return config, frames


def test_levels_and_blank_cells_are_counted_unless_they_are_few(weft, clinics, tmp_path):
    config, frames = clinics
    outcome = weft("describe", config, "--out", tmp_path / "described")
    assert outcome.code == 0, outcome.err
    told = json.loads((tmp_path / "described" / "description.json").read_text())
    (age,) = told["columns"]
    # Two blank cells of south, and of west, count as medians.
    assert (age["cells"], age["missing"]) == (228, 12)
    ages = pd.concat([f["age"].fillna(f["age"].median()) for f in frames.values()][1:])
    known = pd.concat([frames["north"]["age"].dropna(), ages])
    assert age["mean"] == pytest.approx(known.mean(), abs=0.05)
    (ward,) = told["categories"]
    counts = pd.concat([frame["ward"] for frame in frames.values()]).value_counts()
    # Three of west are of a ward that few of its patients are in, so another one is with them.
    assert ward["levels"]["A"] == counts["A"]
    assert ward["levels"]["C"] == counts["C"] - 3
    assert ward["levels"]["B"] == counts["B"] - 37
    assert ward["other"] == 40
    assert told["outcome"]["classes"] == {"0": 159, "1": 81}
    assert told["outcome"]["sites"] == {}
    assert "ward = A" in outcome.out
    assert "allow_site_statistics" in outcome.out
    page = (tmp_path / "described" / "description.html").read_text()
    assert "<svg" in page
    assert "three clinics" in page
    assert "n000" not in page
    again = weft("describe", config, "--json")
    assert json.loads(again.out) == told


def test_training_goes_on_after_a_description_and_changed_files_do_not(weft, clinics, tmp_path):
    config, frames = clinics
    config.write_text(CONFIG.format(more='missing = "mean"\nscaling = "standard"'))
    assert weft("describe", config, "--json").code == 0
    trained = weft("train", config, "--out", tmp_path / "results")
    assert trained.code == 0, trained.err
    frames["south"].iloc[1:].to_csv(tmp_path / "south.csv", index=False)
    refused = weft("describe", config)
    assert refused.code == 2
    assert "1 went since its run" in refused.err
    assert weft("ledger", tmp_path / "ledger").out.count("describe") >= 3
