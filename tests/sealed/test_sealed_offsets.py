"""Sealed training with offsets and penalty factors, against scipy and closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from sealed_runs import ALL, COLUMNS, CUTS, NAMES, cut, optimum, table, weights

from weft.errors import ConfigError
from weft.federation.local_federation import Federation, Preprocessing
from weft.solvers.run_settings import Settings

ROWS = 90
TWO = {"a": [(ALL, slice(0, 3))], "b": [(ALL, slice(3, None), False)]}


def tiles_of(block, labels, offsets, how=TWO):
    """Whoever has labels has a column of offsets, too."""
    out = {}
    for party, own in cut(block, labels, how).items():
        out[party] = [_beside(tile, offsets) if tile.labels is not None else tile for tile in own]
    return out


def _beside(tile, offsets):
    mine = offsets[[int(sample[1:]) for sample in tile.ids]]
    names = np.append(tile.features, "o").astype(object)
    return replace(tile, features=names, block=np.c_[tile.block, mine])


def train(tiles, loss, *, offset="o", intercept=True, **settings):
    settings = {"lam": 0.02, "solver": "sealed", "penalize_intercept": False, **settings}
    how = Preprocessing(intercept=intercept, offset=offset)
    return Federation(tiles, how).train(Settings(loss=loss, **settings))


def data(loss, seed=3):
    block, labels = table(seed, classes=0, rows=ROWS)
    offsets = 2.0 * np.random.default_rng(seed).normal(size=ROWS)
    if loss == "squared":
        return block, labels + offsets, offsets
    return block, (labels + offsets > 0.5).astype(int), offsets


@pytest.mark.parametrize(
    ("loss", "how"), [("logistic", TWO), ("logistic", CUTS["horizontal"]), ("squared", TWO)]
)
def test_offsets_give_the_certified_optimum(loss, how):
    block, labels, offsets = data(loss)
    trained = train(tiles_of(block, labels, offsets, how), loss)
    target = labels if loss == "squared" else 2.0 * labels - 1
    best, value = optimum(block, target, 0.02, loss, free=True, offset=offsets)
    w = np.append(weights(trained.model), trained.model.intercept)
    certificate = trained.result.certificate
    assert certificate.dual[0] <= best * (1 + 1e-9)
    assert value(w) - best <= certificate.primal[0] - certificate.dual[0]
    assert certificate.gap <= 1e-3
    # Offsets matter: without them the optimum is another.
    assert value(w) < optimum(block, target, 0.02, loss, free=True)[0] - 1e-3


def test_a_hessian_and_folds_have_offsets_in_them():
    block, labels, offsets = data("logistic")
    # So much λ that enough samples are undecided, whatever noise their count has.
    asked = {"second_moments": ("hessian",), "folds": 2, "lam": 0.2}
    trained = train(tiles_of(block, labels, offsets), "logistic", **asked)
    x = np.c_[block, np.ones(ROWS)]
    w = np.append(weights(trained.model), trained.model.intercept)
    p = expit(x @ w + offsets)
    moments = trained.second_moments
    order = [list(moments.names).index(name) for name in NAMES] + [COLUMNS]
    found = moments.hessian[0][np.ix_(order, order)]
    most = moments.hessian_error.max()
    np.testing.assert_allclose(found, x.T @ (x * (p * (1 - p))[:, None]) / ROWS, atol=most)
    assert most < 1e-3
    # Of what folds leave out, the loss is that at other weights, but with the same offsets.
    ((count, loss, _),) = trained.result.stages[0].scores
    assert count == ROWS
    assert 0.2 < loss / count < np.log(2)


def test_offsets_beyond_every_series_are_refused():
    block, labels, offsets = data("logistic")
    with pytest.raises(ConfigError, match="offsets are larger than sealed training can hold"):
        train(tiles_of(block, labels, 100 * offsets), "logistic")


def test_penalty_factors_are_those_of_ridge_with_a_penalty_for_each_column():
    block, labels, _ = data("squared")
    factors = np.where(np.arange(COLUMNS) == 1, 0.1, 1.0) * np.where(np.arange(COLUMNS) == 4, 9, 1)
    told = {name: float(f) for name, f in zip(NAMES, factors, strict=True) if f != 1}
    lam = 0.2
    trained = train(
        cut(block, labels, TWO), "squared", offset=None, penalty_factors=told, lam=lam, gap=1e-6
    )
    x = np.c_[block, np.ones(ROWS)]
    held_back = np.diag(np.append(lam * factors, 0.0))
    expected = np.linalg.solve(x.T @ x / ROWS + held_back, x.T @ labels / ROWS)
    found = np.append(weights(trained.model), trained.model.intercept)
    np.testing.assert_allclose(found, expected, atol=2e-3)
