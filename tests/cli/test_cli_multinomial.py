"""A multinomial model by the commands: checked, trained, judged, exported and asked."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_iris

from weft.federation.model import load_model

CONFIG = """
[data]
label = "kind"
confirmed = ["units"]
intercept = true
scaling = "standard"

[model]
family = "{family}"
lambda = 0.02

[solver]
gap = 1e-2

[privacy]
min_batch = 5

[[party]]
name = "north"
file = "north.csv"

[[party]]
name = "south"
file = "south.csv"

[[party]]
name = "west"
file = "west.csv"
"""

COLUMNS = ("sepal length", "sepal width", "petal length", "petal width")


@pytest.fixture
def flowers(tmp_path):
    """Samples of iris at three parties; returns how to write a config."""
    x, y = load_iris(return_X_y=True)
    for number, party in enumerate(("north", "south", "west")):
        with (tmp_path / f"{party}.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["id", *COLUMNS, "kind"])
            for sample in range(number, len(x), 3):
                out.writerow([f"flower {sample}", *x[sample], f"kind {y[sample]}"])

    def write(family="multinomial"):
        (tmp_path / "flowers.toml").write_text(CONFIG.format(family=family))
        return "flowers.toml"

    return write


@pytest.mark.usefixtures("no_pictures")
def test_a_config_of_the_family_gives_one_certificate_and_probabilities(weft, flowers, tmp_path):
    checked = weft("check", flowers())
    assert checked.code == 0, checked.err
    assert "lbfgs, since loss 'softmax' is smooth" in checked.out
    trained = weft("train", flowers(), "--out", "r")
    assert trained.code == 0, trained.err
    summary = json.loads((tmp_path / "r/summary.json").read_text())
    assert summary["certificate"]["gap"] <= 1e-2
    assert len(summary["certificate"]["loss_by_class"]) == 1
    assert "kind 1 against the mean of all" in (tmp_path / "r/report.html").read_text()
    model = load_model(tmp_path / "r/model.npz")
    told = weft("predict", "r/model.npz", "north.csv", "--probabilities", "--out", "p.csv")
    assert told.code == 0, told.err
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    x, _ = load_iris(return_X_y=True)
    chances = softmax(x[::3] @ model.coef.T + model.intercept, axis=1)
    found = [[float(value) for key, value in row.items() if "kind" in key] for row in rows]
    assert np.array(found) == pytest.approx(chances, abs=1e-5)


def test_an_unknown_family_is_named_with_the_closest(weft, flowers):
    outcome = weft("train", flowers("multinomal"))
    assert outcome.code == 2
    assert 'the closest is "multinomial"' in outcome.err
