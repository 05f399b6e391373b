"""Generalised linear models are those of scikit-learn on the pooled table, to the sixth digit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import nbinom
from sklearn.base import clone
from sklearn.linear_model import (
    GammaRegressor,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    TweedieRegressor,
)

from weft import HybridGLM, Tile
from weft.config.read_config import read_config
from weft.data import SPLITS, Split, Table, pool
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.model import Model, load_model
from weft.guards.privacy_terms import Terms
from weft.losses import get_loss
from weft.privacy.ledger.expected_exposure import outlook
from weft.privacy.ledger.expected_exposure_text import paragraphs
from weft.solvers.run_settings import Settings

Floats = NDArray[np.float64]
LAM, N, M, GAP = 0.05, 160, 6, 1e-8
FAMILIES = ("gaussian", "binomial", "poisson", "gamma", "tweedie", "negative-binomial")
CUTS: dict[str, Any] = {
    "rows": lambda table: SPLITS["rows"](table, parties=3, seed=1),
    "columns": lambda table: SPLITS["columns"](table, parties=3),
    "grid": lambda table: SPLITS["grid"](table, k=2, q=2, seed=1),
    "overlapping": lambda table: SPLITS["overlapping"](table, parties=4, row_share=0.6, seed=1),
}


def data_of(family: str) -> tuple[Floats, Floats]:
    """Columns of different sizes, and responses of a family, far from the link's zero."""
    rng = np.random.default_rng(len(family))
    x = rng.normal(size=(N, M)) * np.linspace(0.5, 2.0, M)
    eta = x @ np.linspace(-0.4, 0.5, M) / 2 + 0.8
    mean = np.exp(eta)
    y = {
        "gaussian": lambda: 2 + eta + rng.normal(size=N),
        "binomial": lambda: (rng.random(N) < expit(eta + 1)).astype(float),
        "poisson": lambda: rng.poisson(mean).astype(float),
        "gamma": lambda: rng.gamma(2.0, mean / 2.0),
        "tweedie": lambda: np.where(rng.random(N) < 0.3, 0.0, rng.gamma(1.5, mean)),
        "negative-binomial": lambda: rng.poisson(rng.gamma(2.0, mean / 2.0)).astype(float),
    }[family]()
    return x, y


def table_of(family: str) -> Table:
    x, y = data_of(family)
    task = "classification" if family == "binomial" else "regression"
    names = np.array([f"x{j}" for j in range(M)], object)
    ids = np.array([f"s{i:03d}" for i in range(N)], object)
    return Table(ids, names, x, y, task)


def fitted_elsewhere(family: str, x: Floats, y: Floats, lam: float = LAM) -> tuple[Floats, float]:
    """Coefficients and intercept by scikit-learn, or by scipy from scipy's own distribution."""
    exact: dict[str, Any] = {"tol": 1e-10, "max_iter": 10_000}
    if family == "negative-binomial":

        def objective(w: Floats) -> float:
            mean = np.exp(x @ w[1:] + w[0])
            log_chance = nbinom.logpmf(y, 2.0, 2.0 / (2.0 + mean)).mean()
            return float(lam / 2 * w[1:] @ w[1:] - log_chance)

        w = minimize(objective, np.zeros(M + 1), tol=1e-14, options={"gtol": 1e-9}).x
        return w[1:], float(w[0])
    model: Any = {
        "gaussian": lambda: Ridge(alpha=lam * len(y), tol=1e-12),
        "binomial": lambda: LogisticRegression(C=1 / (lam * len(y)), **exact),
        "poisson": lambda: PoissonRegressor(alpha=lam, solver="newton-cholesky", **exact),
        "gamma": lambda: GammaRegressor(alpha=lam, solver="newton-cholesky", **exact),
        "tweedie": lambda: TweedieRegressor(
            power=1.5, link="log", alpha=lam, solver="newton-cholesky", **exact
        ),
    }[family]()
    model.fit(x, y)
    return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])


def parameters(family: str) -> dict[str, float]:
    return {"negative-binomial": {"dispersion": 0.5}, "tweedie": {"power": 1.5}}.get(family, {})


def assert_same(model: Any, family: str, x: Floats, y: Floats) -> None:
    coef, intercept = fitted_elsewhere(family, x, y)
    assert np.ravel(model.coef) == pytest.approx(coef, abs=2e-6)
    assert float(model.intercept[0]) == pytest.approx(intercept, abs=2e-6)


@pytest.mark.parametrize(
    ("family", "cut"),
    [(family, list(CUTS)[k % 4]) for k, family in enumerate(FAMILIES)],
)
def test_every_family_is_fitted_as_on_the_pooled_table(family: str, cut: str) -> None:
    split = CUTS[cut](table_of(family))
    # Newton's last step goes far beyond the gap that is asked for.
    model = HybridGLM(
        family, lam=LAM, gap=GAP, loss_parameters=parameters(family), solver="newton-cg"
    ).fit(split)
    whole = pool(split)
    order = [list(whole.features).index(name) for name in model.model_.features]
    x, y = np.asarray(whole.block)[:, order], np.asarray(whole.labels, float)
    assert_same(model.model_, family, x, y)
    assert model.gap_ <= GAP
    # The intercept has no penalty: the means that are predicted are those that were observed.
    scores = model.model_.decision(x)[:, 0]
    means = {"gaussian": scores, "binomial": expit(scores)}.get(family, np.exp(scores))
    if family in ("gaussian", "binomial", "poisson"):
        assert means.mean() == pytest.approx(y.mean(), abs=1e-6)


def guarded(family: str, split: Split, **settings: Any) -> Any:
    """Trained under the terms that sites insist on, all sums under pads."""
    how: dict[str, Any] = {"lam": LAM, "gap": GAP, "penalize_intercept": False, **settings}
    loss = {"gaussian": "squared", "binomial": "logistic"}.get(family, family)
    federation = Federation(
        split.parties,
        Preprocessing(overlap=split.overlap, intercept=True, scaling="standard"),
        terms=Terms(min_batch=5, min_contributors=3, allow_pairs=True),
    )
    return federation.train(Settings(loss=loss, solver="newton-cg", **how))


@pytest.mark.parametrize(("family", "cut"), [("poisson", "rows"), ("poisson", "grid")])
def test_guards_and_scaling_leave_the_optimum_where_it_is(family: str, cut: str) -> None:
    split = CUTS[cut](table_of(family))
    trained = guarded(family, split)
    whole = pool(split)
    x = np.asarray(whole.block)[:, [list(whole.features).index(n) for n in trained.model.features]]
    centre, spread = trained.model.scaling[0], 1.0 / trained.model.scaling[1]
    coef, intercept = fitted_elsewhere(
        family, (x - centre) / spread, np.asarray(whole.labels, float)
    )
    assert np.ravel(trained.model.coef) * spread == pytest.approx(coef, abs=2e-6)
    assert trained.model.centre_score[0] == pytest.approx(intercept, abs=2e-6)


def test_a_bound_holds_for_the_free_intercept_wherever_a_run_stops() -> None:
    """D lies below P* of the problem without a penalty, P above, after any number of iterations."""
    split = CUTS["grid"](table_of("binomial"))
    x, y = data_of("binomial")
    coef, intercept = fitted_elsewhere("binomial", x, y)
    z = x @ coef + intercept
    best = LAM / 2 * coef @ coef + np.logaddexp(0, np.where(y > 0, -z, z)).mean()
    how = Preprocessing(overlap=split.overlap, intercept=True)
    settings = {"lam": LAM, "loss": "logistic", "penalize_intercept": False, "gap": 1e-8}
    for solver in ("lbfgs", "newton-cg"):
        trained = Federation(split.parties, how).train(Settings(solver=solver, **settings))
        for record in trained.result.history:
            assert record.primal >= best * (1 - 1e-8)
            assert record.primal * (1 - record.gap) <= best * (1 + 1e-8)


def test_folds_and_a_path_choose_lambda_with_a_free_intercept() -> None:
    split = CUTS["rows"](table_of("poisson"))
    model = HybridGLM("poisson", lam=0.3, path=[0.03, 0.003], folds=3, gap=1e-8).fit(split)
    assert list(model.cv_results_["lambda"]) == [0.3, 0.03, 0.003]
    assert (model.cv_results_["gap"] <= 1e-8).all()
    x, y = data_of("poisson")
    coef, intercept = fitted_elsewhere("poisson", x, y, model.lambda_)
    assert model.coef_ == pytest.approx(coef, abs=1e-4)
    assert model.intercept_ == pytest.approx(intercept, abs=1e-4)


def test_penalty_factors_hold_columns_back_more_or_less() -> None:
    """A factor f is the same as a column of 1/√f times the values."""
    split = CUTS["grid"](table_of("gaussian"))
    factors = {"x1": 25.0, "x4": 0.04}
    model = HybridGLM(lam=LAM, gap=1e-6, penalty_factors=factors, solver="newton-cg").fit(split)
    whole = pool(split)
    root = np.sqrt([factors.get(name, 1.0) for name in whole.features])
    y = np.asarray(whole.labels, float)
    coef, intercept = fitted_elsewhere("gaussian", np.asarray(whole.block) / root, y)
    order = [list(whole.features).index(name) for name in model.model_.features]
    assert model.coef_ == pytest.approx((coef / root)[order], abs=2e-6)
    assert model.intercept_ == pytest.approx(intercept, abs=2e-6)


def test_one_table_is_fitted_predicted_and_scored_like_scikit_learn() -> None:
    x, y = data_of("poisson")
    model = HybridGLM("poisson", lam=LAM, gap=1e-8).fit(x, y)
    judge = PoissonRegressor(alpha=LAM, tol=1e-10, max_iter=1000).fit(x, y)
    assert model.predict(x) == pytest.approx(judge.predict(x), rel=1e-3)
    assert model.score(x, y) == pytest.approx(judge.score(x, y), abs=1e-6)
    assert clone(model).get_params()["family"] == "poisson"
    x, y = data_of("binomial")
    sorts = HybridGLM("binomial", lam=LAM, gap=1e-8).fit(x, y)
    assert sorts.predict_proba(x)[:, 1].mean() == pytest.approx(y.mean(), abs=1e-4)
    assert set(sorts.predict(x)) <= set(y)
    assert 0.0 < sorts.score(x, y) < 1.0


@pytest.mark.parametrize("family", ["poisson", "gamma", "tweedie", "negative-binomial"])
def test_a_saved_model_predicts_means(family: str, tmp_path: Any) -> None:
    loss = family.replace("-", "_")
    names = np.array(["a", "b"], object)
    model = Model(
        names, np.array([[0.5, -1.0]]), np.array([0.1]), None, (np.zeros(2), np.ones(2)), loss,
        {"power": 1.5} if family == "tweedie" else {}, 0.1, {},
    )  # fmt: skip
    model.save(tmp_path / "model.npz")
    x = np.array([[1.0, 2.0], [0.0, -1.0]])
    means = load_model(tmp_path / "model.npz").predict(x)
    assert means == pytest.approx(np.exp(x @ [0.5, -1.0] + 0.1))
    if family == "negative-binomial":
        with pytest.raises(ConfigError, match="no negative binomial"):
            model.to_sklearn()
    else:
        assert model.to_sklearn().predict(x) == pytest.approx(means)


# ── what is refused ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"family": "poison"}, 'closest is "poisson"'),
        ({"family": "ordinal"}, "multinomial all at once"),
        ({"family": "tweedie", "loss_parameters": {"power": 2.5}}, "between 1 and 2"),
        ({"penalty_factors": {"x1": 0.0}}, "factor of 0 is proved by the Hessian"),
        ({"penalty_factors": {"x9": 2.0}}, "no party has a column 'x9'"),
        ({"family": "poisson", "solver": "hyfdca"}, "lbfgs or newton-cg"),
        ({"solver": "hyfdca"}, "penalises the intercept"),
        ({"when_missing": "hyfdca"}, "when_missing = 'stop'"),
        ({"privacy": "sealed", "family": "tweedie"}, "mode 'sums'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    parameters: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        HybridGLM(**parameters).fit(CUTS["rows"](table_of("gaussian")))


@pytest.mark.parametrize(
    ("family", "label", "words"),
    [("poisson", -1.0, "negative responses, the lowest -1"), ("gamma", 0.0, "responses of zero")],
)
def test_labels_that_a_family_has_no_meaning_for_are_refused(
    family: str, label: float, words: str
) -> None:
    y = np.array([1.0, 2.0, label, 4.0])
    tiles = {
        "north": Tile.make(["a", "b"], ["x"], np.ones((2, 1)), y[:2], "north.csv"),
        "south": Tile.make(["c", "d"], ["x"], np.ones((2, 1)), y[2:], "south.csv"),
    }
    with pytest.raises(WeftError, match=f"party south: .* south.csv has {words}"):
        HybridGLM(family).fit(tiles)


# ── configs ───────────────────────────────────────────────────────────────────────────────

CONFIG = """
[data]
dataset = "diabetes"
split = {{ name = "rows", parties = 3 }}
exposure = "age"

[model]
{model}
"""


def config_with(model: str, folder: Path) -> Path:
    path = folder / "study.toml"
    path.write_text(CONFIG.format(model=model))
    return path


def test_a_config_names_a_family_with_a_free_intercept(tmp_path: Path) -> None:
    model = 'family = "tweedie"\nloss_parameters = { power = 1.2 }\npenalty_factors = { bmi = 2.0 }'
    config = read_config(config_with(model, tmp_path))
    assert config.settings.make_loss() == get_loss("tweedie", power=1.2)
    assert not config.settings.penalize_intercept
    assert config.settings.penalty_factors == {"bmi": 2.0}
    assert config.problem().preprocessing.sample_columns.named == ("age",)
    held = read_config(config_with(f"{model}\npenalize_intercept = true", tmp_path))
    assert held.settings.penalize_intercept
    plain = read_config(config_with('loss = "squared"', tmp_path))
    assert plain.settings.penalize_intercept


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ('family = "gamma"\nloss = "squared"', "keep one of them"),
        ('family = "gama"', 'closest is "gamma"'),
        ('loss = "squared"\nclass_weight = "balanced"', "class_weight is for classes"),
        ('family = "binomial"\nclass_weight = { sick = 0.0 }', "weight of class 'sick' is 0"),
    ],
)
def test_mistakes_in_a_config_are_said_in_one_sentence(
    model: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        read_config(config_with(model, tmp_path))


def test_a_check_says_that_the_coordinator_learns_a_free_intercept() -> None:
    split = CUTS["rows"](table_of("gaussian"))
    settings = Settings(lam=LAM, loss="squared", solver="lbfgs", penalize_intercept=False)
    federation = Federation(split.parties, Preprocessing(intercept=True))
    holdings = federation.assemble(settings)[1]
    look = outlook(holdings, settings, Terms(), classes=1, mean_square=1.0)
    learned = " ".join(line.strip() for line in paragraphs(look))
    assert "the intercept of the model" in learned
    assert "no other weight of the model" in learned


def test_a_response_without_noise_is_certified_with_folds_too() -> None:
    """Rounding puts the lower bound above the loss of a solved problem: a run must end there."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(180, 4))
    ids = [f"s{row:03}" for row in range(180)]
    tiles = {
        "p1": Tile.make(ids, ["a", "b"], x[:, :2], x[:, 0]),
        "p2": Tile.make(ids, ["c", "d"], x[:, 2:]),
    }
    how = {"lam": 0.01, "path": [0.1], "folds": 3, "scoring": "loss", "max_iter": 12}
    model = HybridGLM("gaussian", gap=1e-3, **how).fit(tiles)
    assert len(model.history_) < 12
    assert model.gap_ <= 1e-3
