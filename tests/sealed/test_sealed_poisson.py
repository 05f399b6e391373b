"""Sealed training of Poisson models, against scipy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import xlogy
from sealed_runs import CUTS, cut, held, weights
from sklearn.linear_model import PoissonRegressor
from test_sealed_offsets import tiles_of

from covering import every_value
from weft.crypto.pads.pads_all_parties_know import OpeningPads
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.solvers.algorithm_choice import resolve
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.digit_widths import TableBounds
from weft.solvers.secret_sharing.exponential_fourier_series import (
    MOST_DOUBLINGS,
    centre_of,
    series_for,
)
from weft.solvers.secret_sharing.masked_sine_kernels import MOST_ROUNDED

ROWS = 90
EXPONENTIALS = series_for("poisson")


def counts(mean=1.0, seed=5, rows=ROWS):
    rng = np.random.default_rng(seed)
    block, offsets = rng.normal(size=(rows, 7)), 0.7 * rng.normal(size=rows)
    rates = mean * np.exp(block @ (0.3 * rng.normal(size=7)) + offsets)
    return block, rng.poisson(rates).astype(float), offsets


def optimum(block, labels, lam, offset=0.0, free=True):
    """The least P by scipy on the pooled table, with an intercept, and P itself."""
    x, held_back = np.c_[block, np.ones(len(block))], np.full(block.shape[1] + 1, lam)
    if free:
        held_back[-1] = 0.0

    def value(w):
        z = np.minimum(x @ w + offset, 60.0)
        losses = np.exp(z) - labels * z + xlogy(labels, labels) - labels
        gradient = x.T @ (np.exp(z) - labels) / len(x) + held_back * w
        return losses.mean() + held_back @ w**2 / 2, gradient

    start = np.append(np.zeros(block.shape[1]), np.log(max(labels.mean(), 1e-3)))
    told = {"maxiter": 9000, "ftol": 1e-16, "gtol": 1e-12}
    found = minimize(value, start, jac=True, method="L-BFGS-B", options=told)
    return found.fun, lambda w: value(w)[0]


def train(tiles, *, offset=None, scaling=1.0, record=False, **settings):
    how = Preprocessing(intercept=True, intercept_scaling=scaling, offset=offset)
    federation = Federation(tiles, how, record=record)
    asked = {"lam": 1e-2, "penalize_intercept": False, "solver": "sealed", **settings}
    return federation.train(Settings(loss="poisson", **asked))


def judged(trained, block, labels, lam, offset=0.0, free=True):
    best, value = optimum(block, labels, lam, offset, free)
    w = np.append(weights(trained.model), trained.model.intercept)
    certificate = trained.result.certificate
    assert certificate.dual[0] <= best * (1 + 1e-9) + 1e-12
    assert value(w) - best <= certificate.primal[0] - certificate.dual[0] + 1e-12


def test_exponentials_are_off_by_no_more_than_is_said():
    for doublings in (0, -3, MOST_DOUBLINGS):
        for series in series_for("poisson", doublings):
            scores = series.centre + np.linspace(-series.reach, series.reach, 1501)
            off = np.abs(series.at(scores) - np.exp(scores)).max()
            assert off <= series.slope_error < 1e-9 * series.most
            factors = np.abs([series.cosines, series.sines]).max() * 2.0**series.public
            assert max(factors, 2.0**series.dealt) < MOST_ROUNDED
    assert [centre_of(mean) for mean in (0.0, 1.0, 40.0, 1e9)] == [0, 0, 5, MOST_DOUBLINGS]


def test_slopes_of_counts_are_below_what_their_losses_leave_room_for():
    """Slopes that are larger would wrap; they come near where means are far above counts."""
    labels = np.array([1.0, 4.0, 30.0, 0.0])
    one = dict.fromkeys(("column_sum", "row_norm", "mean_square", "spread", "cell_rounding"), 1.0)
    bounds = TableBounds(
        samples=4, rows=4, label_square=labels.mean(), column_norm=1.0, largest_label=30.0, **one
    )
    for times in (0.1, 1.0, 4.0, 50.0):
        means = times * np.maximum(labels, 0.5)
        losses = means - labels * np.log(means) + xlogy(labels, labels) - labels
        assert np.abs(means - labels).mean() <= bounds.counts_at(losses.mean())


@pytest.mark.parametrize(
    ("how", "mean", "with_offsets"), [("grid", 1.0, True), ("overlapping", 1.0, False)]
)
def test_counts_give_the_certified_optimum(how, mean, with_offsets):
    block, labels, offsets = counts(mean)
    how = CUTS[how]
    tiles = tiles_of(block, labels, offsets, how) if with_offsets else cut(block, labels, how)
    trained = train(tiles, offset="o" if with_offsets else None)
    judged(trained, held(block, how), labels, 1e-2, offsets if with_offsets else 0.0)
    assert trained.result.certificate.gap <= 1e-3


def test_coefficients_are_those_of_scikit_learn_also_where_counts_are_large():
    """Less is proved of them: what rounding may do grows with the means."""
    block, labels, _ = counts(30.0)
    trained = train(cut(block, labels, CUTS["vertical"]), gap=1e-6, iterations=40)
    theirs = PoissonRegressor(alpha=1e-2, tol=1e-10, max_iter=9999).fit(block, labels)
    np.testing.assert_allclose(weights(trained.model)[0], theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(trained.model.intercept, theirs.intercept_, atol=1e-4)
    judged(trained, block, labels, 1e-2)


def test_counts_without_an_intercept_have_the_coefficients_of_scikit_learn():
    """Nothing moves all scores alike then, so that series of exponentials stay around zero."""
    block, labels, _ = counts(4.0)
    tiles = cut(block, labels, CUTS["vertical"])
    settings = Settings(
        loss="poisson", lam=1e-2, gap=1e-6, penalize_intercept=False, solver="sealed", iterations=40
    )
    trained = Federation(tiles, Preprocessing(intercept=False)).train(settings)
    theirs = PoissonRegressor(alpha=1e-2, tol=1e-10, max_iter=9999, fit_intercept=False)
    theirs.fit(block, labels)
    np.testing.assert_allclose(weights(trained.model)[0], theirs.coef_, atol=1e-4)
    assert trained.result.certificate.gap <= 1e-3


HOSTILE = {
    "outliers": lambda block, labels: (
        block * np.where(np.arange(40) == 3, 50.0, 1)[:, None],
        labels,
    ),
    "large counts": lambda block, labels: (block, 1000.0 * labels + 7),
    "one count": lambda block, labels: (block, np.where(np.arange(40) == 3, 90.0, 0.0)),
    "hardly any": lambda block, labels: (block, np.where(np.arange(40) < 2, 1.0, 0.0)),
}


@every_value(harm=HOSTILE, lam=[1e-4, 1.0], free=[True, False])
def test_a_hostile_table_is_certified_truly_or_refused(harm, lam, free):
    block, labels, _ = counts(rows=40)
    block, labels = HOSTILE[harm](block, labels)
    refused = ""
    try:
        trained = train(
            cut(block, labels, CUTS["vertical"]),
            lam=lam,
            iterations=12,
            penalize_intercept=not free,
        )
    except ConfigError as error:
        refused = str(error)
    if refused:
        assert "sealed training" in refused
    else:
        judged(trained, block, labels, lam, free=free)


def test_what_parties_open_is_uniform_and_tells_no_count():
    opened, take_off = [], OpeningPads.take_off

    def taking(self, total, count, label):
        found = take_off(self, total, count, label)
        opened.append((self._party, found.copy()))
        return found

    block, labels, _ = counts(rows=400)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpeningPads, "take_off", taking)
        trained = train(cut(block, labels, CUTS["vertical"]), gap=0.05, record=True)
    asked = [entry.phase for entry in trained.channel.transcript if entry.party == "a"]
    assert asked.count("sealed.weigh") == asked.count("sealed.slopes") > 2
    words = [found for party, found in opened if party == 0]
    for found in words:
        whole = found[found >= 1 << 40]
        if len(whole) > 300:
            counted = np.bincount((whole >> np.uint64(60)).astype(int), minlength=16)
            expected = len(whole) / 16
            assert ((counted - expected) ** 2 / expected).sum() < 60
    everything = np.concatenate(words)
    assert len(np.unique(everything[everything >= 1 << 40])) == (everything >= 1 << 40).sum()
    w = np.append(weights(trained.model), trained.model.intercept)
    rates = np.exp(np.c_[block, np.ones(len(block))] @ w)
    for bits in range(16, 47):
        for values in (labels, rates, rates - labels):
            told = np.rint(values * 2.0**bits).astype(np.int64)
            assert not np.isin(everything.view(np.int64), told[np.abs(told) > 1 << 14]).any()


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"loss": "poisson", "inference": "robust"}, "squared slopes"),
        ({"loss": "tweedie"}, "two powers of e"),
    ],
)
def test_what_it_does_not_do_is_said_in_a_sentence(asked, why):
    with pytest.raises(ConfigError, match=why):
        resolve(Settings(lam=1e-2, solver="sealed", **asked))


def test_a_constant_that_is_not_one_is_refused():
    block, labels, _ = counts(3.0)
    with pytest.raises(WeftError, match="a constant column that is not one"):
        train(cut(block, labels, CUTS["vertical"]), scaling=0.5)
