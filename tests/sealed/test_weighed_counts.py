"""Sealed Poisson models whose samples have weights, also with folds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import xlogy
from sealed_runs import ALL, CUTS, held, weights
from test_sealed_offsets import tiles_of

from weft.crypto.pads.pads_all_parties_know import OpeningPads
from weft.errors import WeftError
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import OPEN
from weft.solvers.run_settings import Settings

TWO = {"a": [(ALL, slice(0, 1))], "b": [(ALL, slice(1, 3))]}


def data(rows=90, columns=7, seed=5):
    rng = np.random.default_rng(seed)
    block = rng.normal(size=(rows, columns))
    rates = np.exp(block @ (0.3 * rng.normal(size=columns)))
    return block, rng.poisson(rates).astype(float), rng.choice([1.0, 2.0, 3.5], rows)


def optimum(block, labels, lam, counts):
    """The least P by scipy on the pooled table, with a free intercept; its weights, and P."""
    x, held_back = np.c_[block, np.ones(len(block))], np.full(block.shape[1] + 1, lam)
    held_back[-1] = 0.0

    def value(w):
        z = np.minimum(x @ w, 60.0)
        losses = np.exp(z) - labels * z + xlogy(labels, labels) - labels
        gradient = x.T @ (counts * (np.exp(z) - labels)) / len(x) + held_back * w
        return (counts * losses).mean() + held_back @ w**2 / 2, gradient

    told = {"maxiter": 9000, "ftol": 1e-16, "gtol": 1e-12}
    start = np.zeros(x.shape[1])
    found = minimize(value, start, jac=True, method="L-BFGS-B", options=told)
    return found.fun, found.x, lambda w: value(w)[0]


def train(tiles, *, terms=OPEN, **settings):
    how = Preprocessing(intercept=True, weight="o")
    asked = {"lam": 1e-2, "penalize_intercept": False, "solver": "sealed", **settings}
    return Federation(tiles, how, terms=terms).train(Settings(loss="poisson", **asked))


def judged(trained, block, labels, lam, counts):
    best, _, value = optimum(block, labels, lam, counts)
    w = np.append(weights(trained.model), trained.model.intercept)
    certificate = trained.result.certificate
    assert certificate.dual[0] <= best * (1 + 1e-9) + 1e-12
    assert value(w) - best <= certificate.primal[0] - certificate.dual[0] + 1e-12


def test_weights_give_the_certified_optimum():
    """Less is proved than without: weights take digits."""
    block, labels, counts = data()
    how = CUTS["overlapping"]
    trained = train(tiles_of(block, labels, counts, how), gap=5e-3)
    judged(trained, held(block, how), labels, 1e-2, counts)
    assert trained.result.certificate.gap <= 5e-3


def test_standard_errors_of_weighed_counts_are_refused():
    block, labels, counts = data()
    with pytest.raises(WeftError, match="standard errors of a poisson loss whose samples have"):
        train(tiles_of(block, labels, counts), second_moments=("hessian",))


@pytest.mark.parametrize("harm", ["tiny", "huge", "far apart"])
def test_hostile_weights_are_certified_truly_or_refused(harm):
    block, labels, counts = data(rows=40)
    apart = np.where(np.arange(40) % 9 == 0, 2000.0, 1.0)
    counts = {"tiny": 1e-4 * counts, "huge": 1e5 * counts, "far apart": apart}[harm]
    refused = ""
    try:
        trained = train(tiles_of(block, labels, counts), iterations=8)
    except WeftError as error:
        refused = str(error)
    if refused:
        assert "sealed training" in refused
    else:
        judged(trained, block, labels, 1e-2, counts)


@pytest.fixture(scope="module")
def run():
    """With folds, and all that parties opened."""
    opened, take_off = [], OpeningPads.take_off

    def taking(self, total, count, label):
        found = take_off(self, total, count, label)
        opened.append((label, found.copy()))
        return found

    block, labels, counts = data(rows=450, columns=3)
    tiles = tiles_of(block, labels, counts, TWO)
    asked = {"folds": 2, "lam": 1e-3, "gap": 1e-2, "iterations": 14}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpeningPads, "take_off", taking)
        trained = train(tiles, **asked)
    return trained, opened, block, labels, counts


def test_losses_of_what_folds_leave_out_are_about_those_of_any_halves(run):
    trained, _, block, labels, counts = run
    ((count, loss, _),) = trained.result.stages[0].scores
    assert count == len(labels)
    x, total = np.c_[block, np.ones(len(block))], 0.0
    for half in np.arange(len(x)) % 2 == 0, np.arange(len(x)) % 2 == 1:
        z = x[~half] @ optimum(block[half], labels[half], 1e-3, counts[half])[1]
        y = labels[~half]
        total += (counts[~half] * (np.exp(z) - y * z + xlogy(y, y) - y)).sum()
    assert loss == pytest.approx(total, rel=0.1)


def test_nothing_that_is_opened_is_a_weight_or_a_mean(run):
    trained, opened, block, labels, counts = run
    words = np.concatenate([found for label, found in opened if not label.endswith(" sums")])
    order = [int(name[1:]) for name in trained.model.features]
    w = np.append(trained.model.coef[0][np.argsort(order)], trained.model.intercept)
    means = np.exp(np.c_[block, np.ones(len(block))] @ w)
    for bits in range(12, 47):
        for values in (counts, counts * means, counts * labels, counts * (means - labels)):
            told = np.rint(values * 2.0**bits).astype(np.int64)
            assert not np.isin(words.view(np.int64), told[np.abs(told) > 1 << 14]).any()
