"""Probabilities, thresholds and scores, on one table, on tiles and of a model file."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, d2_log_loss_score, r2_score

from weft import HybridClassifier, HybridGLM, HybridRegressor, load_model
from weft.data import SPLITS, Table
from weft.errors import ConfigError, DataError, WeftError
from weft.guards import Terms

N, LAM = 150, 0.05
rng = np.random.default_rng(2)
X = rng.normal(size=(N, 4))
SICK = np.where(X @ [1.0, -0.7, 0.4, 0.0] + rng.normal(size=N) > 0.3, "sick", "well")
THREE = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + 0.5 * rng.normal(size=N), [-0.5, 0.5])]
WEIGHTS = rng.integers(0, 4, N)


def split_of(labels, task="classification"):
    ids = np.array([f"s{i}" for i in range(N)], dtype=object)
    names = np.array([f"x{j}" for j in range(4)], dtype=object)
    return SPLITS["grid"](Table(ids, names, X, labels, task, "made up"), k=2, q=2)


@pytest.fixture(scope="module")
def model():
    return HybridClassifier("logistic", lam=LAM, gap=1e-8).fit(split_of(SICK))


def test_joint_probabilities_and_scores_are_those_of_full_rows(model):
    chances = model.predict_proba(X)
    jointly = model.predict_proba_jointly(split_of(SICK))
    assert jointly.columns.tolist() == ["sick", "well"]
    rows = [int(name[1:]) for name in jointly.index]
    assert jointly.to_numpy() == pytest.approx(chances[rows], abs=1e-6)
    scores = model.decision_function_jointly(split_of(SICK))
    assert scores.to_numpy() == pytest.approx(model.decision_function(X)[rows], abs=1e-6)
    assert model.score(split_of(SICK)) == accuracy_score(SICK, model.predict(X))
    assert model.score(X, SICK) == model.score(split_of(SICK))
    assert model.score(X, SICK, WEIGHTS) == accuracy_score(
        SICK, model.predict(X), sample_weight=WEIGHTS
    )


def test_scores_on_tiles_are_those_of_other_estimators():
    y = X @ [1.0, 2.0, 0.0, -1.0] + 0.1 * rng.normal(size=N)
    tiles = split_of(y, "regression")
    fitted = HybridRegressor(lam=LAM, gap=1e-6).fit(tiles)
    assert fitted.score(tiles) == pytest.approx(r2_score(y, fitted.predict(X)), abs=1e-6)
    glm = HybridGLM("binomial", lam=LAM, gap=1e-8).fit(split_of(SICK))
    explained = d2_log_loss_score(SICK, glm.predict_proba(X))
    assert glm.score(split_of(SICK)) == pytest.approx(explained, abs=1e-6)
    weighted = d2_log_loss_score(SICK, glm.predict_proba(X), sample_weight=WEIGHTS)
    assert glm.score(X, SICK, WEIGHTS) == pytest.approx(weighted)
    three = HybridClassifier("logistic", lam=LAM).fit(split_of(THREE))
    assert three.predict_proba_jointly(split_of(THREE)).to_numpy().sum(axis=1) == pytest.approx(1.0)
    assert three.decision_function_jointly(split_of(THREE)).shape == (N, 3)
    scores = glm.decision_function_jointly(split_of(SICK))
    rows = [int(name[1:]) for name in scores.index]
    assert scores.to_numpy() == pytest.approx(glm.decision_function(X)[rows], abs=1e-6)
    # Weights by sample id, in whatever order.
    by_id = {f"s{i}": float(WEIGHTS[i]) for i in reversed(range(N))}
    assert glm.score(split_of(SICK), sample_weight=by_id) == pytest.approx(weighted, abs=1e-6)
    for wrong, words in ((WEIGHTS, "by sample id"), ({"s0": 1.0}, "lacks 1?[0-9]+ of")):
        with pytest.raises(WeftError, match=words):
            glm.score(split_of(SICK), sample_weight=wrong)
    for method in (glm.predict, glm.predict_proba, glm.decision_function):
        with pytest.raises(ConfigError, match="predict_jointly"):
            method(split_of(SICK).parties)
    bare = split_of(SICK).parties
    for party, tiles in bare.items():
        bare = {**bare, party: tuple(type(t)(t.ids, t.features, t.block, None) for t in tiles)}
    with pytest.raises(DataError, match="have no label in any tile"):
        glm.score(bare)


def test_a_model_from_a_file_has_probabilities_and_thresholds(model, tmp_path):
    model.model_.save(tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    features = [f"x{j}" for j in range(4)]
    frame = pd.DataFrame(X, columns=features)
    chances = loaded.predict_proba(frame)
    place = [features.index(name) for name in model.feature_names_in_]
    judge = loaded.to_sklearn()
    assert chances == pytest.approx(judge.predict_proba(frame[list(model.feature_names_in_)]))
    assert chances == pytest.approx(model.predict_proba(frame))
    assert chances == pytest.approx(loaded.probabilities(loaded.decision(X[:, place])))
    assert (
        loaded.predict(frame, threshold=0.8) == np.where(chances[:, 1] >= 0.8, "well", "sick")
    ).all()
    assert (loaded.predict(frame) == model.predict(frame)).all()
    with pytest.raises(ConfigError, match="between 0 and 1"):
        loaded.predict(frame, threshold=80.0)
    hinge = HybridClassifier(lam=LAM, gap=0.1).fit(split_of(SICK)).model_
    with pytest.raises(ConfigError, match="train with family 'binomial'"):
        hinge.predict_proba(X)
    three = HybridClassifier("logistic", lam=LAM, gap=0.1).fit(X, THREE).model_
    with pytest.raises(ConfigError, match="a threshold is for two classes"):
        three.predict(X, threshold=0.4)


# ── weights and terms ─────────────────────────────────────────────────────────────────────────


def test_weights_of_a_table_count_as_samples_that_stand_in_it_so_often():
    weighted = HybridClassifier("logistic", lam=LAM, gap=1e-9).fit(X, SICK, sample_weight=WEIGHTS)
    often = np.repeat(np.arange(N), WEIGHTS)
    again = HybridClassifier("logistic", lam=LAM, gap=1e-9).fit(X[often], SICK[often])
    assert weighted.coef_ == pytest.approx(again.coef_, abs=1e-4)
    judge = Ridge(LAM * WEIGHTS.sum(), tol=1e-12).fit(X, X[:, 0] ** 2, sample_weight=WEIGHTS)
    ours = HybridGLM(lam=LAM, gap=1e-10).fit(X, X[:, 0] ** 2, sample_weight=WEIGHTS)
    assert ours.coef_ == pytest.approx(judge.coef_, abs=1e-4)
    assert ours.n_features_in_ == 4
    with pytest.raises(ConfigError, match="name a column with weight"):
        HybridClassifier("logistic").fit(split_of(SICK), sample_weight=WEIGHTS)
    with pytest.raises(ValueError, match="at least one non-zero"):
        HybridClassifier("logistic").fit(X, SICK, sample_weight=0 * WEIGHTS)


def test_classes_of_a_table_weigh_by_their_own_names():
    ours = HybridGLM("binomial", lam=LAM, gap=1e-10, class_weight={"well": 3.0}).fit(X, SICK)
    judge = LogisticRegression(C=1 / (LAM * N), class_weight={"well": 3.0}, tol=1e-10)
    assert ours.coef_ == pytest.approx(judge.fit(X, SICK).coef_, abs=1e-4)


def test_an_estimator_keeps_to_terms():
    with pytest.raises(WeftError, match="allow_pairs"):
        HybridClassifier("logistic", terms=Terms()).fit(split_of(SICK))
    with pytest.raises(ConfigError, match="min_batch"):
        HybridClassifier("logistic", terms={"min_batch": 0}).fit(split_of(SICK))
    agreed = dict.fromkeys(("allow_pairs", "allow_exposure", "allow_one_column"), True)
    agreed |= {"min_batch": 5, "min_contributors": 2}
    fitted = HybridClassifier("logistic", lam=0.5, gap=0.1, terms=agreed).fit(split_of(SICK))
    assert fitted.holdings_.terms.min_batch == 5
