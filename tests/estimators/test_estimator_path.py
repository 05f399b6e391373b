"""Paths of λ, folds, warm starts and the choice of a solver, through the estimators."""

import msgspec
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from covering import before_release
from weft import HybridClassifier, HybridRegressor
from weft.data import SPLITS, Table, load
from weft.errors import ConfigError
from weft.solvers.run_settings import DEFAULTS
from weft.solvers.subspace.class_fold_problems import folds_of

LAMBDAS = (1e-1, 1e-2, 1e-3)
FOLDS = 3


def scaled(x):
    """Standardised, with rows in the unit ball."""
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return x / np.linalg.norm(x, axis=1).max()


def table_of(x, y, task="classification"):
    ids = np.array([f"s{number}" for number in range(len(y))], dtype=object)
    names = np.array([f"f{number}" for number in range(x.shape[1])], dtype=object)
    return Table(ids, names, scaled(x), y, task, "a table")


@pytest.fixture(scope="module")
def cancer():
    table = load("breast_cancer")
    return table_of(table.block, table.labels)


@pytest.fixture(scope="module")
def searched(cancer):
    model = HybridClassifier(lam=1e-3, path=LAMBDAS[:2], folds=FOLDS, gap=1e-4)
    return model.fit(SPLITS["grid"](cancer, k=2, q=2))


def judged(table, seed, make, score):
    """(λ × folds) scores of a central estimator that is trained on the very same folds."""
    folds = folds_of(table.ids, FOLDS, seed)
    scores = np.zeros((len(LAMBDAS), FOLDS))
    for place, lam in enumerate(LAMBDAS):
        for fold in range(FOLDS):
            out = folds == fold
            central = make(lam, int((~out).sum()))
            central.fit(table.block[~out], table.labels[~out])
            scores[place, fold] = score(central, table.block[out], table.labels[out])
    return scores


def fold_scores(model):
    return model.cv_results_[[f"fold_{number}" for number in range(1, FOLDS + 1)]].to_numpy()


def accuracy(central, x, y):
    return central.score(x, y)


def liblinear(lam, n):
    return LinearSVC(loss="hinge", C=1 / (lam * n), tol=1e-7, max_iter=10**6)


@pytest.mark.parametrize("seed", [0, *before_release(7)])
def test_folds_score_a_support_vector_machine_as_liblinear_does(cancer, seed):
    model = HybridClassifier(lam=1e-3, path=LAMBDAS, folds=FOLDS, gap=1e-4, seed=seed)
    model.fit(SPLITS["grid"](cancer, k=2, q=2))
    assert model.solver_ == "cutting-planes"
    # One sample at the boundary of a fold of 190 may fall to either side.
    assert np.abs(fold_scores(model) - judged(cancer, seed, liblinear, accuracy)).max() <= 1.5 / 180


def test_folds_score_a_logistic_regression_as_scikit_learn_does(cancer):
    model = HybridClassifier("logistic", lam=1e-3, path=LAMBDAS, folds=FOLDS, intercept=False)
    model.set_params(gap=1e-5).fit(SPLITS["rows"](cancer, parties=3))

    def make(lam, n):
        return LogisticRegression(C=1 / (lam * n), fit_intercept=False, tol=1e-8, max_iter=1000)

    assert model.solver_ == "lbfgs"
    assert np.abs(fold_scores(model) - judged(cancer, 0, make, accuracy)).max() <= 1.5 / 180


@pytest.mark.release
def test_folds_score_three_classes_as_liblinear_does():
    """Two classes with every change, above; three, sealed, in ``sealed/test_sealed_folds.py``."""
    table = table_of(*load_iris(return_X_y=True))
    model = HybridClassifier(lam=1e-3, path=LAMBDAS, folds=FOLDS, gap=1e-5)
    model.fit(SPLITS["columns"](table, parties=2))
    assert np.abs(fold_scores(model) - judged(table, 0, liblinear, accuracy)).max() <= 1.5 / 40


def test_folds_score_a_regression_as_ridge_does():
    x, y = load_diabetes(return_X_y=True)
    table = table_of(x, (y - y.mean()) / y.std(), "regression")
    model = HybridRegressor(lam=1e-3, path=LAMBDAS, folds=FOLDS, gap=1e-7, intercept=False)
    model.fit(SPLITS["grid"](table, k=2, q=2))

    def make(lam, n):
        return Ridge(alpha=lam * n, fit_intercept=False)

    def minus_error(central, x, y):
        return -((central.predict(x) - y) ** 2).mean()

    expected = judged(table, 0, make, minus_error)
    assert fold_scores(model) == pytest.approx(expected, rel=1e-3)
    assert model.lambda_ == LAMBDAS[expected.mean(axis=1).argmax()]


def test_the_best_lambda_by_folds_is_released_and_said(cancer, searched):
    table = searched.cv_results_
    assert table["lambda"].tolist() == list(LAMBDAS)
    assert (table["gap"] <= 1e-4).all()
    assert table["round_trips"].sum() == searched.history_["round_trips"].iloc[-1]
    assert table["iterations"].sum() == searched.n_iter_
    assert table["mean_score"].tolist() == pytest.approx(fold_scores(searched).mean(axis=1))
    assert table["std_score"].tolist() == pytest.approx(fold_scores(searched).std(axis=1))
    assert np.isfinite(table["mean_loss"]).all()
    best = table[table["chosen"]]
    assert best["lambda"].tolist() == [searched.lambda_]
    assert best["mean_score"].iloc[0] == table["mean_score"].max()
    assert searched.model_.lam == searched.lambda_
    alone = HybridClassifier(lam=searched.lambda_, gap=1e-5)
    alone.fit(SPLITS["grid"](cancer, k=2, q=2))
    assert searched.coef_ == pytest.approx(alone.coef_, abs=0.05 * np.abs(alone.coef_).max())


def test_a_path_without_folds_trains_all_and_releases_the_lambda_asked_for(cancer):
    model = HybridClassifier(lam=1e-2, path=np.array([1e-1, 1e-3]), gap=1e-3)
    model.fit(SPLITS["grid"](cancer, k=2, q=2))
    table = model.path_results_
    assert table["lambda"].tolist() == [1e-1, 1e-2, 1e-3]
    assert table["chosen"].tolist() == [False, True, False]
    assert "mean_score" not in table
    assert model.lambda_ == 1e-2
    assert not hasattr(model, "cv_results_")


def test_tables_of_an_earlier_fit_do_not_stay(cancer):
    model = HybridClassifier(lam=1e-2, folds=2, gap=1e-2).fit(cancer.to_tile())
    assert len(model.cv_results_) == 1
    model.set_params(folds=0).fit(cancer.to_tile())
    assert not hasattr(model, "cv_results_")
    assert not hasattr(model, "path_results_")


def test_every_lambda_short_of_its_gap_is_warned_of(cancer):
    model = HybridClassifier(lam=1e-3, path=[1.0], max_iter=2, gap=1e-3)
    with pytest.warns(ConvergenceWarning, match="2 iterations at λ = 0.001") as seen:
        model.fit(cancer.to_tile())
    assert len(seen) == 1
    assert model.path_results_["gap"].iloc[0] <= 1e-3
    with pytest.warns(ConvergenceWarning, match="2 of 3 values of λ"):
        model.set_params(path=[1.0, 3e-3]).fit(cancer.to_tile())


def test_running_out_of_round_trips_is_no_failure_to_converge(cancer, recwarn):
    model = HybridClassifier(lam=1e-3, round_trips=20, gap=1e-6).fit(cancer.to_tile())
    assert model.gap_ > 1e-6
    assert not [w for w in recwarn if issubclass(w.category, ConvergenceWarning)]


def test_a_second_fit_starts_from_the_last_model(cancer):
    split = SPLITS["grid"](cancer, k=2, q=2)
    model = HybridClassifier("logistic", lam=1e-4, gap=1e-4, warm_start=True).fit(split)
    cold = model.n_iter_
    first = model.coef_
    model.fit(split)
    assert model.n_iter_ < cold / 2
    assert model.gap_ <= 1e-4
    assert model.coef_ == pytest.approx(first, abs=0.02 * np.abs(first).max())
    assert model.set_params(warm_start=False).fit(split).n_iter_ == cold


def test_a_warm_start_takes_text_labels_and_new_columns(cancer):
    frame = pd.DataFrame(cancer.block, columns=cancer.features)
    labels = np.where(cancer.labels == 1, "benign", "malignant")
    model = HybridClassifier(lam=1e-3, warm_start=True, gap=1e-3)
    model.fit(frame.iloc[:400, :20], labels[:400])
    model.fit(frame, labels)
    assert model.gap_ <= 1e-3
    assert model.coef_.shape == (1, 30)
    assert model.score(frame, labels) > 0.95


@pytest.mark.parametrize(
    ("parameters", "solver"),
    [
        ({}, "cutting-planes"),
        ({"loss": "logistic"}, "lbfgs"),
        ({"loss": "logistic", "solver": "newton-cg"}, "newton-cg"),
        ({"groups": 4}, "cutting-planes"),
        ({"participation": 0.5}, "cutting-planes"),
        ({"iic": 0.5}, "hyfdca"),
        ({"certify_every": 5}, "hyfdca"),
        ({"local": "practical"}, "hyfdca"),
    ],
)
def test_the_solver_follows_from_loss_participation_and_settings(cancer, parameters, solver):
    model = HybridClassifier(lam=0.1, gap=0.2, round_trips=100, **parameters)
    model.fit(SPLITS["rows"](cancer, parties=2))
    assert model.solver_ == solver
    if model.solver == "auto":
        assert model.result_.notes[0].startswith(f"solver: {solver}, since ")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"solver": "cutting-planes", "iic": 0.5}, "iic = 0.5 is for solver hyfdca"),
        ({"solver": "cutting-planes", "norms": "cohort"}, "norms = 'cohort' is for solver hyfdca"),
        ({"solver": "hyfdca", "patience": 5.0}, "patience = 5.0 is for solver cutting-planes, "),
        ({"solver": "hyfdca", "path": [1.0]}, "several values of lambda"),
        ({"solver": "hyfdca", "folds": 3}, "folds"),
        ({"solver": "hyfdca", "warm_start": True}, "a model to start from"),
        ({"iic": 0.5, "warm_start": True}, "a model to start from"),
        ({"iic": 0.5, "folds": 3}, "folds"),
        ({"loss": "logistic", "groups": 3}, "groups is 3"),
        ({"solver": "lbfgs"}, "needs a smooth loss"),
        ({"solver": "lbgfs"}, "closest is 'lbfgs'"),
        ({"folds": 1}, "folds is 1"),
        ({"path": [0.0]}, "not positive"),
        ({"path": "1e-2"}, "path: expected a list"),
        ({"path": ["small"]}, "path.*expected a number"),
        ({"when_missing": "stpo"}, "closest is 'stop'"),
    ],
)
def test_what_a_solver_cannot_do_is_one_sentence(cancer, parameters, words):
    with pytest.raises(ConfigError, match=words) as error:
        HybridClassifier(**parameters).fit(cancer.to_tile())
    assert "\n" not in str(error.value)


def test_every_setting_is_a_parameter_with_the_same_default():
    """But for names that scikit-learn has already, what is chosen, and what is a simulation's."""
    asked = msgspec.structs.asdict(HybridClassifier()._settings())
    chosen = {"lam": 1e-3, "solver": "auto"}
    assert asked == {**DEFAULTS, **chosen}
    changed = HybridClassifier(iic=0.5, max_iter=7, solver="hyfdca", solver_options={}, seed=4)
    assert changed._settings().iterations == 7
    assert (changed._settings().iic, changed._settings().seed) == (0.5, 4)
