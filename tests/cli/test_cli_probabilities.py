"""How well a model predicts, and its probabilities, on the command line."""

from __future__ import annotations

import json
from io import StringIO

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def smooth(hospitals):
    """A config with the logistic loss and folds."""
    hospitals.change('loss = "hinge"', 'loss = "logistic"')
    hospitals.change("[solver]", '[solver]\nfolds = 2\nscoring = "auc"')
    hospitals.change("allow_pairs = true", "allow_pairs = true\nmin_batch = 4")
    return hospitals.write()


def test_a_run_tells_how_well_it_predicts_and_predictions_have_probabilities(
    weft, smooth, tmp_path
):
    told = weft("train", smooth, "--out", "results", "--json")
    assert told.code == 0, told.err
    found = json.loads(told.out)["evaluation"]
    assert found["models"][0]["class"] == "well"
    assert found["models"][0]["auc"]["value"] > 0.7
    assert 0.4 < found["majority"] < 0.7
    page = (tmp_path / "results" / "report.html").read_text("utf-8")
    for said in ("ROC curve", "Calibration", "Brier score", "Confusion matrix"):
        assert said in page
    summary = (tmp_path / "results" / "summary.md").read_text("utf-8")
    assert "On samples left out: AUC" in summary
    joint = weft("predict", "results/model.npz", "--joint", smooth, "--probabilities")
    assert joint.code == 0, joint.err
    frame = pd.read_csv(StringIO(joint.out))
    assert frame.columns.tolist() == ["id", "prediction", "probability ill", "probability well"]
    both = frame["probability ill"] + frame["probability well"]
    assert both.to_numpy() == pytest.approx(1.0)
    sure = weft("predict", "results/model.npz", "--joint", smooth, "--threshold", 0.8)
    strict = pd.read_csv(StringIO(sure.out))["prediction"]
    assert (strict == np.where(frame["probability well"] >= 0.8, "well", "ill")).all()


def test_what_a_model_does_not_have_is_said_before_anybody_is_asked(weft, hospitals):
    config = hospitals.write()
    assert weft("train", config, "--out", "results", "--quiet").code == 0
    for option in (["--probabilities"], ["--threshold", "0.3"]):
        refused = weft("predict", "results/model.npz", "--joint", config, *option)
        assert refused.code == 2
        assert "train with family 'binomial'" in refused.err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[solver]", '[solver]\nscoring = "auc"', "no samples are left out to score"),
        ("[solver]", '[solver]\nfolds = 2\nscoring = "auk"', "scoring"),
        ("[privacy]", "[evaluation]\nthreshold = 0.3\n[privacy]", "set folds = 5"),
        ("[privacy]", "[evaluation]\nthreshold = 30\n[privacy]", "between 0 and 1"),
    ],
)
def test_a_mistake_is_one_sentence(weft, hospitals, old, new, said):
    hospitals.change(old, new)
    outcome = weft("train", hospitals.write())
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert "Traceback" not in outcome.err


def test_sealed_training_tells_no_scores(weft, smooth, hospitals):
    hospitals.change("[privacy]", '[privacy]\nmode = "sealed"')
    refused = weft("train", hospitals.write())
    assert refused.code == 2
    assert "nobody knows scores of samples left out, only their mean loss" in refused.err
