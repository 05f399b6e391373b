"""What the estimators learn, from every form of data they take."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from weft import HybridClassifier, HybridRegressor, Tile, load_model
from weft.data import SPLITS, load, pool
from weft.errors import ConfigError, DataError

LAM = 1e-2


@pytest.fixture(scope="module")
def cancer():
    """Breast cancer, standardised and with rows in the unit ball."""
    table = load("breast_cancer")
    block = (table.block - table.block.mean(axis=0)) / table.block.std(axis=0)
    block /= np.linalg.norm(block, axis=1).max() + 1e-9
    return type(table)(
        table.ids, table.features, block, table.labels, "classification", "breast_cancer"
    )


@pytest.fixture(scope="module")
def fitted(cancer):
    return HybridClassifier(lam=LAM, gap=5e-4).fit(SPLITS["grid"](cancer, k=2, q=3))


def hinge_objective(coef, intercept, table, lam):
    """P(w) with the constant column's weight inside w, as liblinear has it."""
    sign = np.where(table.labels == table.labels.max(), 1.0, -1.0)
    margins = sign * (table.block @ coef + intercept)
    return lam / 2 * (coef @ coef + intercept**2) + np.maximum(0, 1 - margins).mean()


def test_a_grid_of_parties_reaches_liblinears_objective(cancer, fitted):
    svm = LinearSVC(loss="hinge", C=1 / (LAM * cancer.n), tol=1e-8, max_iter=10**6)
    svm.fit(cancer.block, cancer.labels)
    best = hinge_objective(svm.coef_[0], svm.intercept_[0], cancer, LAM)
    order = [fitted.feature_names_in_.tolist().index(name) for name in cancer.features]
    ours = hinge_objective(fitted.coef_[0][order], fitted.intercept_[0], cancer, LAM)
    assert abs(ours - best) / best < 1e-3
    assert fitted.gap_ <= 5e-4
    assert fitted.certificate_.primal[0] == pytest.approx(ours, rel=1e-6)


def test_attributes_describe_the_run(cancer, fitted):
    assert fitted.coef_.shape == (1, cancer.m)
    assert fitted.classes_.tolist() == [0, 1]
    assert fitted.n_features_in_ == cancer.m
    assert len(fitted.history_) == fitted.n_iter_
    assert fitted.history_["gap"].iloc[-1] == fitted.gap_
    assert len(fitted.holdings_.parties) == 6


def test_all_forms_of_one_table_predict_alike(cancer, fitted):
    frame = pd.DataFrame(cancer.block, columns=cancer.features)
    frame["extra"] = "text"
    by_tile = fitted.decision_function(cancer.to_tile())
    columns = [cancer.features.tolist().index(name) for name in fitted.feature_names_in_]
    ordered = cancer.block[:, columns]
    with pytest.warns(UserWarning, match="feature names"):
        assert fitted.decision_function(ordered) == pytest.approx(by_tile)
    with pytest.warns(UserWarning, match="feature names"):
        assert fitted.decision_function(sp.csr_array(ordered)) == pytest.approx(by_tile)
    assert fitted.decision_function(frame[frame.columns[::-1]]) == pytest.approx(by_tile)


def test_joint_prediction_equals_prediction_on_the_pooled_table(cancer, fitted):
    split = SPLITS["grid"](cancer, k=3, q=2)
    joint = fitted.predict_jointly(split)
    assert sorted(joint.index) == sorted(cancer.ids)
    central = pd.Series(fitted.predict(cancer.to_tile()), cancer.ids)
    assert (joint == central[joint.index]).all()


def test_one_partys_columns_alone_predict_better_than_chance(cancer, fitted):
    tile = cancer.to_tile().columns(np.arange(10))
    assert (fitted.predict_with(tile) == cancer.labels).mean() > 0.7
    with pytest.raises(DataError, match="none of its columns"):
        fitted.predict_with(Tile.make(["1"], ["unknown"], [[1.0]]))


def test_mappings_lists_and_splits_of_the_same_tiles_give_the_same_model(cancer):
    split = SPLITS["columns"](cancer, parties=3)
    tiles = [tile for _, tile in split.tiles()]
    settings = {"lam": LAM, "gap": 1e-2}
    models = [
        HybridClassifier(**settings).fit(data)
        for data in (split, tiles, dict(zip(("p1", "p2", "p3"), tiles, strict=True)))
    ]
    for model in models[1:]:
        assert (model.coef_ == models[0].coef_).all()


def test_the_overlap_rule_of_a_split_wins(cancer):
    split = SPLITS["dealt"](cancer, k=2, q=2)
    model = HybridClassifier(lam=LAM, gap=1e-2, overlap="mean").fit(split)
    assert model.holdings_.overlap == "sum"
    assert model.score(pool(split).to_tile(), pool(split).labels) > 0.9


def test_text_labels_and_three_classes_come_back_as_they_were():
    rng = np.random.default_rng(0)
    names = np.array(["maple", "oak", "pine"])
    y = names[rng.integers(3, size=150)]
    x = (
        rng.normal(size=(150, 2)) * 0.3
        + np.array([[0, 1], [1, 0], [-1, -1]])[np.searchsorted(names, y)]
    )
    model = HybridClassifier("logistic", lam=1e-2, gap=1e-2).fit(x, y)
    assert set(model.predict(x)) == set(names)
    assert model.score(x, y) > 0.9
    assert model.decision_function(x).shape == (150, 3)
    chances = model.predict_proba(x)
    assert chances.sum(axis=1) == pytest.approx(np.ones(150))
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(x)).all()


def test_logistic_probabilities_agree_with_scikit_learn(cancer):
    model = HybridClassifier("logistic", lam=LAM, gap=1e-5, intercept=False)
    model.fit(SPLITS["rows"](cancer, parties=3))
    central = LogisticRegression(C=1 / (LAM * cancer.n), fit_intercept=False, tol=1e-8)
    central.fit(cancer.block, cancer.labels)
    expected = central.predict_proba(cancer.block)
    assert model.predict_proba(cancer.to_tile()) == pytest.approx(expected, abs=5e-3)


def test_regression_agrees_with_ridge():
    table = load("diabetes")
    block = table.block / np.linalg.norm(table.block, axis=1).max()
    labels = table.labels - table.labels.mean()
    # λ/2 ‖w − w*‖² ≤ gap · P proves that no weight is further off than 0.06.
    model = HybridRegressor(lam=1e-2, gap=1e-8, intercept=False).fit(block, labels)
    central = Ridge(alpha=1e-2 * table.n, fit_intercept=False).fit(block, labels)
    assert model.coef_ == pytest.approx(central.coef_, abs=0.1)
    assert isinstance(model.intercept_, float)
    assert model.score(block, labels) == pytest.approx(central.score(block, labels), abs=1e-3)


def test_absent_parties_leave_an_estimate_and_then_a_certificate(cancer):
    turns = {"participation": {"cyclic": 2}, "solver": "hyfdca"}
    model = HybridClassifier(lam=0.1, gap=1e-2, verbose=False, **turns)
    model.fit(SPLITS["grid"](cancer, k=2, q=2))
    assert model.gap_ <= 1e-2
    assert model.history_["loss_estimate"].notna().any()


def test_verbose_prints_a_line_for_each_certificate(cancer, capsys):
    model = HybridClassifier(lam=LAM, gap=1e-1, verbose=True).fit(cancer.to_tile())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == model.history_["certified_at"].nunique()
    assert "certified at iteration" in lines[0]


def test_labels_beside_tiles_and_odd_mappings_are_refused(cancer):
    with pytest.raises(ConfigError, match="leave y and sample_weight out"):
        HybridClassifier().fit(cancer.to_tile(), cancer.labels)
    with pytest.raises(DataError, match="party north must hold a Tile"):
        HybridClassifier().fit({"north": cancer.block})


def test_a_loaded_model_finds_the_columns_of_a_data_frame_by_name(tmp_path):
    table = load("breast_cancer")
    model = HybridClassifier(lam=1e-2, gap=0.1, unit_rows=True).fit(table.to_tile()).model_
    model.save(tmp_path / "model.npz")
    frame = pd.DataFrame(table.block, columns=table.features.tolist())
    reversed_frame = frame.iloc[:, ::-1].assign(other="text")
    expected = model.predict(table.block)
    assert np.array_equal(load_model(tmp_path / "model.npz").predict(reversed_frame), expected)
