"""Multinomial models are those of scikit-learn on the pooled table, and certified together."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression

from weft import HybridClassifier, HybridGLM
from weft.data import SPLITS, Split, Table, pool
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.model import load_model
from weft.guards.privacy_terms import Terms
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.party_searches_duals_and_losses import SampleSide
from weft.sums.scalar_sums import add_scalars

Floats = NDArray[np.float64]
LAM, GAP = 0.02, 1e-10
ANY = ("names", "ids", "labels", "units")
CUTS: dict[str, Any] = {
    "rows": lambda table: SPLITS["rows"](table, parties=3, seed=1),
    "columns": lambda table: SPLITS["columns"](table, parties=3),
    "labels at first": lambda table: SPLITS["columns"](table, parties=2, labels="first"),
    "grid": lambda table: SPLITS["grid"](table, k=2, q=2, seed=1),
    "overlapping": lambda table: SPLITS["overlapping"](table, parties=4, row_share=0.6, seed=1),
}


@cache
def table_of(name: str) -> Table:
    """Standardised columns; of digits some rows and columns only."""
    x, y = {"iris": load_iris, "wine": load_wine, "digits": load_digits}[name](return_X_y=True)
    if name == "digits":
        x, y = x[:200], y[:200]
        x = x[:, x.std(axis=0) > 5.0][:, :10]
    x = np.ascontiguousarray((x - x.mean(axis=0)) / x.std(axis=0))
    names = np.array([f"x{j:02d}" for j in range(x.shape[1])], object)
    ids = np.array([f"s{i:03d}" for i in range(len(x))], object)
    return Table(ids, names, x, np.array([f"k{k}" for k in y], object), "classification")


def fitted_elsewhere(x: Floats, y: Any, lam: float = LAM, **how: Any) -> Any:
    """By scikit-learn's Newton method, until nothing changes."""
    weights = how.pop("sample_weight", None)
    judge = LogisticRegression(
        C=1 / (lam * len(x)), solver="newton-cholesky", tol=1e-12, max_iter=200, **how
    )
    return judge.fit(x, y, sample_weight=weights)


def objective(x: Floats, y: Any, judge: Any, lam: float = LAM) -> float:
    z = x @ judge.coef_.T + judge.intercept_
    mine = z[np.arange(len(x)), np.searchsorted(judge.classes_, y)]
    return float(lam / 2 * (judge.coef_**2).sum() + (logsumexp(z, axis=1) - mine).mean())


def pooled(split: Split, features: Any) -> tuple[Floats, Any]:
    whole = pool(split)
    order = [list(whole.features).index(name) for name in features]
    return np.asarray(whole.block)[:, order], np.asarray(whole.labels)


@pytest.mark.parametrize(
    ("data", "cut"),
    [
        # Labels at first are columns too, as are those of a family in `test_glm.py`.
        pytest.param("wine", "columns", marks=pytest.mark.release),
        ("iris", "grid"),
        ("wine", "labels at first"),
        # With every change, other families have these cuts, in `test_glm.py`.
        pytest.param("iris", "rows", marks=pytest.mark.release),
        pytest.param("iris", "overlapping", marks=pytest.mark.release),
    ],
)
def test_coefficients_and_probabilities_are_those_of_scikit_learn(data: str, cut: str) -> None:
    split = CUTS[cut](table_of(data))
    model = HybridGLM("multinomial", lam=LAM, gap=GAP, solver="newton-cg", confirmed=ANY).fit(split)
    x, y = pooled(split, model.model_.features)
    judge = fitted_elsewhere(x, y)
    assert model.gap_ <= GAP
    assert model.classes_.tolist() == judge.classes_.tolist()
    assert model.coef_ == pytest.approx(judge.coef_, abs=5e-6)
    assert model.intercept_ == pytest.approx(judge.intercept_, abs=5e-6)
    found = model.model_.predict_proba(x)
    assert found == pytest.approx(judge.predict_proba(x), abs=1e-6)
    # Free intercepts: every class is as frequent in predictions as it was observed.
    observed = (y[:, None] == judge.classes_).mean(axis=0)
    assert found.mean(axis=0) == pytest.approx(observed, abs=1e-6)


@pytest.mark.parametrize(
    ("data", "solver", "penalize"),
    [
        ("iris", "newton-cg", False),
        ("wine", "lbfgs", True),
        pytest.param("iris", "lbfgs", False, marks=pytest.mark.release),
        pytest.param("digits", "newton-cg", False, marks=pytest.mark.release),
    ],
)
def test_the_bound_is_never_above_the_optimum(data: str, solver: str, penalize: bool) -> None:
    """D of all classes together lies below P* wherever a run would stop, and P above."""
    split = CUTS["grid"](table_of(data))
    x, y = pooled(split, table_of(data).features)
    if penalize:
        x = np.hstack([x, np.ones((len(x), 1))])
    best = objective(x, y, fitted_elsewhere(x, y, fit_intercept=not penalize))
    how = Preprocessing(intercept=True, confirmed=ANY)
    settings = Settings(
        lam=LAM, loss="softmax", solver=solver, penalize_intercept=penalize, gap=1e-7
    )
    trained = Federation(split.parties, how).train(settings)
    assert trained.result.certificate.gap <= 1e-7
    assert len(trained.result.certificate.primal) == 1
    for record in trained.result.history:
        assert record.primal >= best * (1 - 1e-9)
        assert record.dual is None or record.dual <= best * (1 + 1e-9)


def test_guards_hold_all_classes_of_a_sample_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under min_batch every row of a dual vector still is one of the simplex, and D holds."""
    collected: list[tuple[Floats, int]] = []
    collect = SampleSide._collect

    def watched(self: SampleSide, duals: Floats, *args: Any, **how: Any) -> None:
        collect(self, duals, *args, **how)
        held = 0 if self.guard is None else self.guard.restrained
        collected.append((self.duals.copy(), held))

    monkeypatch.setattr(SampleSide, "_collect", watched)
    split = CUTS["rows"](table_of("iris"))
    terms = Terms(min_batch=10, min_contributors=3)
    how = Preprocessing(intercept=True, confirmed=ANY)
    settings = Settings(
        lam=LAM, loss="softmax", solver="lbfgs", penalize_intercept=False, gap=1e-9, iterations=20
    )
    trained = Federation(split.parties, how, terms=terms).train(settings)
    assert any(held for _, held in collected)
    for duals, _ in collected:
        rows = duals.reshape(len(duals), -1, 3)
        assert np.abs(rows.sum(axis=2)).max() == 0.0
        assert np.abs(rows).max() <= 1.0
    x, y = pooled(split, table_of("iris").features)
    best = objective(x, y, fitted_elsewhere(x, y))
    assert trained.result.certificate.dual[0] <= best * (1 + 1e-9)
    assert trained.result.certificate.gap <= 1e-3


def test_weights_of_samples_and_classes_count_as_in_scikit_learn() -> None:
    table = table_of("iris")
    weight = np.random.default_rng(2).uniform(0.2, 3.0, len(table.ids))
    block = np.hstack([np.asarray(table.block), weight[:, None]])
    names = np.append(table.features, "times")
    split = CUTS["rows"](Table(table.ids, names, block, table.labels, "classification"))
    given = {"k0": 2.0, "k1": 1.0, "k2": 0.5}
    model = HybridGLM(
        "multinomial", lam=LAM, gap=GAP, solver="newton-cg", weight="times", class_weight=given
    ).fit(split)
    x, y = np.asarray(table.block), np.asarray(table.labels)
    judge = fitted_elsewhere(x, y, class_weight=given, sample_weight=weight)
    assert model.model_.features.tolist() == table.features.tolist()
    assert model.coef_ == pytest.approx(judge.coef_, abs=2e-5)
    assert model.intercept_ == pytest.approx(judge.intercept_, abs=2e-5)
    assert model.gap_ <= GAP


def test_a_path_with_folds_chooses_lambda_by_the_loss_left_out() -> None:
    table = table_of("iris")
    model = HybridClassifier(
        loss="softmax",
        lam=1.0,
        path=[0.05],
        folds=2,
        gap=1e-5,
        scoring="loss",
        penalize_intercept=False,
    ).fit(CUTS["rows"](table))
    assert model.lambda_ == 0.05
    x, y = np.asarray(table.block), np.asarray(table.labels)
    judge = fitted_elsewhere(x, y, 0.05)
    assert model.coef_ == pytest.approx(judge.coef_, abs=1e-3)
    results = model.cv_results_
    assert (results["gap"] <= 1e-5).all()
    # On the whole sample the mean loss of a model is less than on what was left out of it.
    assert results["mean_loss"].min() > -np.log(judge.predict_proba(x).max(axis=1)).mean()


def test_a_model_goes_to_files_and_to_scikit_learn(tmp_path: Path) -> None:
    table = table_of("iris")
    x = np.asarray(table.block)
    model = HybridGLM("multinomial", lam=LAM, gap=1e-6).fit(CUTS["grid"](table))
    model.model_.save(tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    assert loaded.loss == "softmax"
    assert len(loaded.certificate["primal"]) == 1
    order = [list(loaded.features).index(name) for name in table.features]
    scores = x @ loaded.coef[:, order].T + loaded.intercept
    assert loaded.probabilities(scores) == pytest.approx(softmax(scores, axis=1))
    judge = loaded.to_sklearn()
    assert isinstance(judge, LogisticRegression)
    columns = x[:, [list(table.features).index(name) for name in loaded.features]]
    with pytest.warns(UserWarning, match="valid feature names"):
        assert judge.predict_proba(columns) == pytest.approx(loaded.predict_proba(columns))
    assert model.model_.predict(columns).tolist() == judge.classes_[scores.argmax(axis=1)].tolist()
    jointly = model.predict_proba_jointly(CUTS["columns"](table))
    assert jointly.loc[table.ids].to_numpy() == pytest.approx(softmax(scores, axis=1), abs=1e-6)


def test_the_share_of_the_deviance_is_that_of_probabilities() -> None:
    table = table_of("wine")
    x, y = np.asarray(table.block), np.asarray(table.labels)
    model = HybridGLM("multinomial", lam=LAM, gap=1e-4).fit(x, y)
    place = (np.arange(len(y)), np.searchsorted(model.classes_, y))
    left = -np.log(model.predict_proba(x)[place]).mean()
    shares = (y[:, None] == model.classes_).mean(axis=0)
    assert model.score(x, y) == pytest.approx(1 - left / -(shares * np.log(shares)).sum())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"solver": "hyfdca"}, "trains every class by itself.*use lbfgs or newton-cg"),
        ({"solver": "span-newton"}, "trains every class by itself"),
        ({"privacy": "sealed"}, "logistic, squared, Poisson and gamma loss, not 'softmax'"),
        ({"inference": "clustered"}, "inference = 'clustered' of a multinomial model is not made"),
        ({"when_missing": "hyfdca"}, "losses of one class"),
        ({"offset": "x00"}, "'x00' would be added to the scores of all classes alike"),
        ({"sum_noise": {"multiplier": 1.0}, "penalize_intercept": True}, "loss of single classes"),
    ],
)
def test_what_a_joint_loss_does_not_do_is_said_in_a_sentence(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        HybridGLM("multinomial", lam=LAM, **changes).fit(CUTS["rows"](table_of("iris")))
    assert str(refused.value).count(". ") == 0


def test_two_classes_are_sent_to_the_binomial_family() -> None:
    table = table_of("iris")
    two = table.labels != "k2"
    with pytest.raises(WeftError, match=r"three classes or more.*use family 'binomial'"):
        HybridGLM("multinomial", lam=LAM).fit(np.asarray(table.block)[two], table.labels[two])


def test_the_coordinator_adds_up_norms_of_all_classes_together() -> None:
    """One number for every problem, not one for every class; what parties send alone is noise."""
    split = CUTS["rows"](table_of("iris"))
    how = Preprocessing(intercept=True, confirmed=ANY)
    settings = Settings(
        lam=LAM, loss="softmax", solver="lbfgs", penalize_intercept=False, gap=0.1, iterations=3
    )
    trained = Federation(split.parties, how, record=True).train(settings)
    replies = [e.reply for e in trained.channel.transcript if e.phase == "subspace.point"][-3:]

    def added(some: list[Any]) -> list[float] | None:
        named = {str(number): SimpleNamespace(**reply) for number, reply in enumerate(some)}
        return add_scalars(named, "norms", 1, named)

    assert added(replies) == pytest.approx([(trained.model.coef**2).sum()], rel=1e-9)
    alone = added(replies[:1])
    assert alone is not None
    assert abs(alone[0]) > 1e9
