"""Weights, offsets and classes that count more: as on the pooled table, beside the labels only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, PoissonRegressor

from weft import HybridClassifier, HybridGLM, Tile
from weft.errors import ConfigError, DataError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards.privacy_terms import Terms
from weft.solvers.run_settings import Settings

Floats = NDArray[np.float64]
LAM, N, M, GAP = 0.05, 160, 4, 1e-9
rng = np.random.default_rng(5)
X = rng.normal(size=(N, M))
ETA = X @ np.array([0.5, -0.3, 0.2, 0.4])
TIME, WEIGHT = rng.uniform(0.2, 4.0, N), rng.uniform(0.5, 3.0, N)
COUNTS = rng.poisson(TIME * np.exp(ETA)).astype(float)
SICK = np.where(rng.random(N) < expit(ETA - 1.0), "sick", "well")
IDS = [f"s{i:03d}" for i in range(N)]


def tiles_of(labels: Any, *, time: Floats = TIME, overlap: Floats | None = None) -> dict[str, Any]:
    """Two parties with half of the rows each and all that is said about them, one with columns.

    With ``overlap``, the second has the first's last ten samples too, with these times.
    """
    half = N // 2
    names = ["x0", "x1", "time", "weight"]
    block = np.column_stack([X[:, :2], time, WEIGHT])
    south = slice(half, N)
    cells, ids, known = block[south], IDS[south], labels[south]
    if overlap is not None:
        again = slice(half - 10, half)
        shared = np.column_stack([X[again, :2], overlap, WEIGHT[again]])
        cells = np.vstack([shared, cells])
        ids, known = [*IDS[again], *ids], np.concatenate([labels[again], known])
    return {
        "north": Tile.make(IDS[:half], names, block[:half], labels[:half], "north.csv"),
        "south": Tile.make(ids, names, cells, known, "south.csv"),
        "lab": Tile.make(IDS, ["x2", "x3"], X[:, 2:], source="lab.csv"),
    }


def in_order(model: Any) -> Floats:
    place = [list(model.feature_names_in_).index(f"x{j}") for j in range(M)]
    return np.ravel(model.coef_)[place]


def test_exposures_and_weights_count_as_on_the_pooled_table() -> None:
    model = HybridGLM(
        "poisson", lam=LAM, gap=GAP, solver="newton-cg", exposure="time", weight="weight"
    ).fit(tiles_of(COUNTS, overlap=TIME[N // 2 - 10 : N // 2]))

    def objective(w: Floats) -> float:
        z = X @ w[1:] + w[0] + np.log(TIME)
        return float(LAM / 2 * w[1:] @ w[1:] + (WEIGHT * (np.exp(z) - COUNTS * z)).mean())

    best = minimize(objective, np.zeros(M + 1), tol=1e-14, options={"gtol": 1e-9}).x
    assert in_order(model) == pytest.approx(best[1:], abs=5e-6)
    assert model.intercept_ == pytest.approx(best[0], abs=5e-6)
    assert set(model.feature_names_in_) == {"x0", "x1", "x2", "x3"}


def test_a_logarithm_of_exposure_is_an_offset_and_weights_are_scikit_learns() -> None:
    logs = tiles_of(COUNTS, time=np.log(TIME))
    model = HybridGLM(
        "poisson", lam=LAM, gap=GAP, solver="newton-cg", offset="time", weight="weight"
    ).fit(logs)
    same = HybridGLM(
        "poisson", lam=LAM, gap=GAP, solver="newton-cg", exposure="time", weight="weight"
    )
    assert model.coef_ == pytest.approx(same.fit(tiles_of(COUNTS)).coef_, abs=5e-6)
    # Rates with exposures for weights: the usual way without an offset.
    rates = tiles_of(COUNTS / TIME)
    weighed = HybridGLM("poisson", lam=LAM, gap=GAP, solver="newton-cg", weight="time").fit(
        {name: tile if name == "lab" else _without(tile, "weight") for name, tile in rates.items()}
    )
    alpha = LAM * N / TIME.sum()
    judge = PoissonRegressor(alpha=alpha, tol=1e-10, max_iter=1000, solver="newton-cholesky")
    judge.fit(X, COUNTS / TIME, sample_weight=TIME)
    assert in_order(weighed) == pytest.approx(judge.coef_, abs=5e-6)
    assert weighed.intercept_ == pytest.approx(judge.intercept_, abs=5e-6)


def _without(tile: Tile, name: str) -> Tile:
    return tile.columns(np.flatnonzero(tile.features != name))


@pytest.mark.parametrize("weights", ["balanced", {"sick": 4.0, "well": 0.5}])
def test_classes_count_more_or_less_as_in_scikit_learn(weights: Any) -> None:
    tiles = {n: _without(_without(t, "time"), "weight") for n, t in tiles_of(SICK).items()}
    model = HybridGLM("binomial", lam=LAM, gap=GAP, solver="newton-cg", class_weight=weights).fit(
        tiles
    )
    judge = LogisticRegression(C=1 / (LAM * N), class_weight=weights, tol=1e-10, max_iter=1000)
    judge.fit(X, SICK)
    assert in_order(model) == pytest.approx(judge.coef_[0], abs=5e-6)
    assert model.intercept_ == pytest.approx(judge.intercept_, abs=5e-6)


def test_guards_and_pads_leave_weighed_models_where_they_are() -> None:
    settings = Settings(
        lam=LAM, gap=1e-6, loss="logistic", solver="lbfgs", class_weight="balanced",
        penalize_intercept=False,
    )  # fmt: skip
    how = Preprocessing(intercept=True, weight="weight", offset="time")
    terms = Terms(min_batch=3, min_contributors=3, allow_pairs=True)
    guarded, free = (
        Federation({n: (t,) for n, t in tiles_of(SICK).items()}, how, **kwargs).train(settings)
        for kwargs in ({"terms": terms}, {})
    )
    assert guarded.result.certificate is not None
    assert guarded.result.certificate.gap <= 1e-6
    assert guarded.model.coef == pytest.approx(free.model.coef, abs=2e-3)


# ── what is refused ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "parameters", "words"),
    [
        ({"time": np.where(np.arange(N) == 3, 0.0, TIME)}, {"exposure": "time"}, "zero or below"),
        ({"time": np.where(np.arange(N) == 3, -1.0, TIME)}, {"weight": "time"}, "zero or below"),
        ({}, {"offset": "tyme"}, "party north: north.csv has labels, but no column 'tyme'"),
        ({}, {"offset": "time", "exposure": "time"}, "keep one of them"),
        ({}, {"weight": "weight", "solver": "hyfdca", "penalize_intercept": True}, "lbfgs"),
        ({"overlap": np.full(10, 2.0)}, {"exposure": "time"}, "different labels, or offsets"),
        ({}, {"class_weight": "balanced"}, "class_weight is for classes"),
    ],
)
def test_what_does_not_fit_is_said_in_one_sentence(
    change: dict[str, Any], parameters: dict[str, Any], words: str
) -> None:
    with pytest.raises(WeftError, match=words):
        HybridGLM("gaussian", **parameters).fit(tiles_of(COUNTS, **change))


def test_an_unknown_class_and_a_kinked_loss_are_refused() -> None:
    tiles = tiles_of(SICK)
    with pytest.raises(WeftError, match="class_weight names class 'ill'"):
        HybridGLM("binomial", class_weight={"ill": 2.0}).fit(tiles)
    with pytest.raises(ConfigError, match="all samples weigh the same"):
        HybridClassifier("hinge", class_weight="balanced").fit(tiles)
    with pytest.raises(DataError, match="blank cells where there are labels"):
        HybridGLM("binomial", weight="time", missing="mean", scaling="standard").fit(
            tiles_of(SICK, time=np.where(np.arange(N) == 3, np.nan, TIME))
        )
