"""Models for other programs: ONNX against scikit-learn and by another runtime, and a model card."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import onnxruntime
import pytest

from weft.errors import ConfigError
from weft.federation.model import Model
from weft.federation.onnx_graph import write_onnx
from weft.report.json_safe_and_rounded_values import rounded

RNG = np.random.default_rng(5)
TABLE = RNG.normal(size=(40, 3))


def model_of(loss="logistic", classes=("ill", "well"), missing="mean", **more):
    rows = 1 if classes is None or len(classes) == 2 else len(classes)
    return Model(
        features=np.array(["age", "weight", "dose"], dtype=object),
        coef=RNG.normal(size=(rows, 3)),
        intercept=RNG.normal(size=rows),
        classes=None if classes is None else np.array(classes),
        scaling=(np.array([0.5, -1.0, 2.0]), np.ones(3)),
        loss=loss,
        loss_parameters={"power": 1.5} if loss == "tweedie" else {},
        lam=0.1,
        certificate={"primal": [0.5], "dual": [0.4999], "gap": 2e-4},
        missing=missing,
        **more,
    )


def run(path, table):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"features": table}), strict=True))
    return found, session.get_modelmeta().custom_metadata_map


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(
    ("loss", "classes"),
    [
        ("logistic", ("ill", "well")),
        ("logistic", (0, 1)),
        ("hinge", (3, 7, 9)),
        ("softmax", ("a", "b", "c")),
        ("squared", None),
        ("poisson", None),
        ("gamma", None),
        ("tweedie", None),
    ],
)
def test_another_runtime_predicts_what_scikit_learns_estimator_does(tmp_path, loss, classes):
    model = model_of(loss, classes)
    write_onnx(model, tmp_path / "m.onnx")
    found, told = run(tmp_path / "m.onnx", TABLE)
    judge = model.to_sklearn()
    judge_predicts = judge.predict(TABLE)
    assert told == {"features": "age\nweight\ndose", "loss": loss}
    if classes is None:
        np.testing.assert_allclose(found["prediction"], judge_predicts, rtol=1e-12)
    else:
        assert found["prediction"].tolist() == judge_predicts.tolist()
        scores = judge.decision_function(TABLE).reshape(len(TABLE), -1)
        np.testing.assert_allclose(found["score"], scores, rtol=1e-12, atol=1e-14)
    likely = loss in ("logistic", "softmax")
    assert ("probability" in found) == likely
    if likely:
        np.testing.assert_allclose(found["probability"], judge.predict_proba(TABLE), rtol=1e-12)


@pytest.mark.parametrize(("missing", "filled"), [("mean", 0.5), ("zero", 0.0), ("error", np.nan)])
def test_a_blank_cell_counts_as_in_training(tmp_path, missing, filled):
    model = model_of("squared", None, missing)
    write_onnx(model, tmp_path / "m.onnx")
    blank, there = TABLE.copy(), TABLE.copy()
    blank[0, 0], there[0, 0] = np.nan, filled
    expected = there @ model.coef[0] + model.intercept[0]
    np.testing.assert_allclose(run(tmp_path / "m.onnx", blank)[0]["prediction"], expected, 1e-12)


@pytest.mark.usefixtures("no_pictures")
def test_a_trained_model_gets_a_card_that_says_what_and_from_what(weft, hospitals, tmp_path):
    assert weft("train", hospitals.write(), "--out", "r").code == 0
    outcome = weft("export", "r/model.npz", "r/risk.onnx", "r/card.json")
    assert outcome.code == 0, outcome.err
    assert "wrote r/risk.onnx" in outcome.out
    card = json.loads((tmp_path / "r/card.json").read_text())
    summary = json.loads((tmp_path / "r/summary.json").read_text())
    assert card["certificate"]["gap"] == pytest.approx(summary["certificate"]["gap"])
    assert card["data"]["parties"] == ["north", "south"]
    assert card["privacy"]["terms"] == summary["terms"]
    # A card goes out with the model: no sizes of single parties, no folders, no small groups.
    assert card["data"].keys() == {"kind", "parties", "samples", "features", "overlap", "classes"}
    assert card["data"]["samples"] == rounded(summary["federation"]["samples"])
    text = json.dumps(card)
    assert "cohorts" not in text
    assert "left_out" not in text
    assert summary["command"] not in text
    assert card["privacy"]["coordinator_saw"].startswith("ciphertexts")
    assert set(card["model"]["coefficients"]) == set(
        np.load(tmp_path / "r/model.npz")["features"].tolist()
    )


def test_a_model_alone_gets_a_card_without_the_run(weft, tmp_path):
    model_of().save(tmp_path / "model.npz")
    assert weft("export", "model.npz", "card.json", "--quiet").out == ""
    card = json.loads((tmp_path / "card.json").read_text())
    assert card.keys() == {"card", "model", "certificate"}
    assert card["model"]["classes"] == ["ill", "well"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["m.pmml"], "m.pmml has no ending that weft export knows; name .* .onnx or .json"),
        (["none/m.json"], "there is no folder none for m.json"),
        (["m.json", "m.txt"], "m.txt has no ending"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is(weft, tmp_path, files, words):
    model_of().save(tmp_path / "model.npz")
    outcome = weft("export", "model.npz", *files)
    assert outcome.code == 2
    assert re.search(words, outcome.err)
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"pip install 'weft\[onnx\]'"):
        write_onnx(model_of(), tmp_path / "m.onnx")
