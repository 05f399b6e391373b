"""Sealed training of gamma models, against scipy and scikit-learn."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from scipy.optimize import minimize
from sealed_runs import CUTS, cut, held, weights
from sklearn.linear_model import GammaRegressor
from test_sealed_offsets import tiles_of

from covering import every_value
from weft.crypto.pads.pads_all_parties_know import OpeningPads
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards.privacy_terms import OPEN, Terms
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import coordinator, party, released_model_curvature_shares
from weft.solvers.secret_sharing.gamma_as_poisson import (
    REACHES,
    common_factor,
    reach_of,
    told_of_reach,
)

ROWS = 90


def amounts(mean=1.0, shape=2.0, seed=5, rows=ROWS):
    rng = np.random.default_rng(seed)
    block, offsets = rng.normal(size=(rows, 7)), 0.5 * rng.normal(size=rows)
    means = mean * np.exp(block @ (0.3 * rng.normal(size=7)) + offsets)
    return block, means * rng.gamma(shape, 1 / shape, size=rows), offsets


def optimum(block, labels, lam, offset=0.0, free=True, counts=1.0):
    """The least P by scipy on the pooled table, with an intercept, and P itself."""
    x, held_back = np.c_[block, np.ones(len(block))], np.full(block.shape[1] + 1, lam)
    if free:
        held_back[-1] = 0.0

    def value(w):
        z = x @ w + offset
        part = labels * np.exp(np.minimum(-z, 60.0))
        losses = counts * (part + z - np.log(labels) - 1)
        gradient = x.T @ (counts * (1 - part)) / len(x) + held_back * w
        return losses.mean() + held_back @ w**2 / 2, gradient

    start = np.append(np.zeros(block.shape[1]), np.log(labels.mean()))
    told = {"maxiter": 9000, "ftol": 1e-16, "gtol": 1e-12}
    found = minimize(value, start, jac=True, method="L-BFGS-B", options=told)
    return found.fun, lambda w: value(w)[0]


TERMS = Terms(allow_second_moments=True, allow_pairs=True, allow_rare_pairs=True, min_batch=2)


def train(tiles, *, offset=None, weight=None, terms=OPEN, **settings):
    how = Preprocessing(intercept=True, offset=offset, weight=weight)
    asked = {"lam": 1e-2, "penalize_intercept": False, "solver": "sealed", **settings}
    return Federation(tiles, how, terms=terms).train(Settings(loss="gamma", **asked))


def judged(trained, block, labels, lam, offset=0.0, free=True, counts=1.0):
    best, value = optimum(block, labels, lam, offset, free, counts)
    w = np.append(weights(trained.model), trained.model.intercept)
    certificate = trained.result.certificate
    assert certificate.dual[0] <= best * (1 + 1e-9) + 1e-12
    assert value(w) - best <= certificate.primal[0] - certificate.dual[0] + 1e-12


@pytest.mark.parametrize(
    ("how", "mean", "with_offsets"),
    [
        ("grid", 1.0, True),
        ("overlapping", 3000.0, False),
        pytest.param("vertical", 1e-3, True, marks=pytest.mark.release),
        pytest.param("horizontal", 1.0, False, marks=pytest.mark.release),
    ],
)
def test_amounts_give_the_certified_optimum(how, mean, with_offsets):
    block, labels, offsets = amounts(mean)
    how = CUTS[how]
    tiles = tiles_of(block, labels, offsets, how) if with_offsets else cut(block, labels, how)
    trained = train(tiles, offset="o" if with_offsets else None)
    judged(trained, held(block, how), labels, 1e-2, offsets if with_offsets else 0.0)
    assert trained.result.certificate.gap <= 1e-3


def test_coefficients_are_those_of_scikit_learn():
    block, labels, _ = amounts(40.0, 5.0)
    trained = train(cut(block, labels, CUTS["vertical"]), gap=1e-6, iterations=40)
    theirs = GammaRegressor(alpha=1e-2, tol=1e-10, max_iter=9999).fit(block, labels)
    np.testing.assert_allclose(weights(trained.model)[0], theirs.coef_, atol=2e-4)
    np.testing.assert_allclose(trained.model.intercept, theirs.intercept_, atol=2e-4)


def test_weights_of_samples_are_those_of_scipy():
    block, labels, _ = amounts()
    counts = np.random.default_rng(1).uniform(0.3, 3.0, ROWS)
    tiles = tiles_of(block, labels, counts, CUTS["vertical"])
    trained = train(tiles, weight="o", gap=1e-2)
    judged(trained, block, labels, 1e-2, counts=counts)
    assert trained.result.certificate.gap <= 2e-2


HOSTILE = {
    "outliers": lambda block, labels: (
        block * np.where(np.arange(40) == 3, 50.0, 1)[:, None],
        labels,
    ),
    "one large": lambda block, labels: (block, np.where(np.arange(40) == 3, 90.0, labels)),
    "one small": lambda block, labels: (block, np.where(np.arange(40) == 3, 1e-3, labels)),
    "far apart": lambda block, labels: (block, labels**4),
    "all alike": lambda block, labels: (block, 1e9 + 0.0 * labels),
}


@every_value(harm=HOSTILE, lam=[1e-5, 1.0], free=[True, False])
def test_a_hostile_table_is_certified_truly_or_refused(harm, lam, free):
    block, labels, _ = amounts(rows=40)
    block, labels = HOSTILE[harm](block, labels)
    tiles, refused = cut(block, labels, CUTS["vertical"]), ""
    try:
        trained = train(tiles, lam=lam, iterations=10, penalize_intercept=not free)
    except WeftError as error:
        refused = str(error)
    if refused:
        assert "sealed training" in refused
    else:
        judged(trained, block, labels, lam, free=free)


@pytest.mark.release
@pytest.mark.parametrize("seed", range(30))
def test_no_certificate_of_a_random_table_is_false(seed):
    """`test_a_hostile_table_is_certified_truly_or_refused` is the quick one."""
    rng = np.random.default_rng(seed)
    shape, mean = 10.0 ** rng.uniform(-0.3, 1.5), 10.0 ** rng.uniform(-4, 5)
    lam, free = 10.0 ** rng.uniform(-5, 0), bool(rng.random() < 0.7)
    block, labels, offsets = amounts(mean if free else 1.0, shape, seed)
    how = CUTS[list(CUTS)[seed % len(CUTS)]]
    asked = {"iterations": int(rng.integers(2, 25)), "penalize_intercept": not free}
    with suppress(WeftError):
        trained = train(tiles_of(block, labels, offsets, how), offset="o", lam=lam, **asked)
        judged(trained, held(block, how), labels, lam, offsets, free)


@pytest.mark.parametrize(("lam", "named"), [(100.0, True), (1.0, False)])
def test_a_large_lambda_that_ends_a_run_early_is_named(lam, named, monkeypatch):
    """Of λ = 100 one run of some finds no step from where it is, by chance."""
    monkeypatch.setattr(coordinator._Run, "_iterate", lambda _: coordinator._NO_STEP)
    block, labels, _ = amounts(300.0)
    result = train(cut(block, labels, CUTS["vertical"]), lam=lam, gap=1e-9).result
    assert result.stopped.startswith("no step leads to a point that is better")
    assert ("leaves little but the intercept: take one below 100" in result.stopped) is named


@pytest.fixture(scope="module")
def with_moments():
    """A run with what standard errors are made of, and all that parties opened in it."""
    opened, take_off = [], OpeningPads.take_off

    def taking(self, total, count, label):
        found = take_off(self, total, count, label)
        opened.append(found.copy())
        return found

    block, labels, _ = amounts(300.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpeningPads, "take_off", taking)
        # These are too few samples for a gradient.
        patch.setattr(released_model_curvature_shares, "tells_gradient", lambda *_, **how: True)
        patch.setattr(released_model_curvature_shares, "tells_of_few", lambda *_: False)
        asked = {"gap": 1e-4, "second_moments": ("hessian",)}
        trained = train(cut(block, labels, CUTS["vertical"]), terms=TERMS, **asked)
    return block, labels, trained, np.concatenate(opened).view(np.int64)


def test_what_readers_have_of_the_dispersion_is_pearsons_within_its_error(with_moments):
    block, labels, trained, _ = with_moments
    moments = trained.second_moments
    x = np.c_[block, np.ones(ROWS)]
    np.testing.assert_allclose(ROWS * moments.hessian[0], x.T @ x, atol=1e-2)
    ratios = labels / np.exp(x @ _coefficients(trained))
    off = abs(moments.pearson - ((ratios - 1) ** 2).sum())
    assert off <= moments.pearson_error < 1.0
    assert off < 1e-4 * moments.pearson
    gradient = x.T @ (1 - ratios) / ROWS
    assert np.linalg.norm(moments.gradient[0] - gradient) <= moments.gradient_error[0] < 1e-2
    assert np.linalg.norm(moments.gradient[0] - gradient) < 1e-5
    assert moments.label_sum is None


def _coefficients(trained):
    return np.append(weights(trained.model), trained.model.intercept)


def test_what_parties_open_is_no_response_nor_what_follows_from_it(with_moments):
    block, labels, trained, everything = with_moments
    means = np.exp(np.c_[block, np.ones(ROWS)] @ _coefficients(trained))
    for bits in range(16, 47):
        for values in (labels, np.log(labels), means, labels / means, labels / means - 1):
            told = np.rint(values * 2.0**bits).astype(np.int64)
            assert not np.isin(everything, told[np.abs(told) > 1 << 14]).any()


def test_what_is_told_of_responses_does_not_depend_on_offsets(monkeypatch):
    """Who tells offsets to label holders would find a response by runs that are refused."""
    told, tell = [], party.told_of_reach

    def telling(offsets):
        told.append(offsets)
        return tell(offsets)

    monkeypatch.setattr(party, "told_of_reach", telling)
    block, labels, offsets = amounts(30.0)
    for given in (offsets, np.where(np.arange(ROWS) == 7, 3.0, offsets)):
        tiles = tiles_of(block, labels, given, CUTS["vertical"])
        train(tiles, offset="o", gap=0.3, iterations=2)
    first, second = np.concatenate(told[: len(told) // 2]), np.concatenate(told[len(told) // 2 :])
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(np.ptp(first), np.ptp(np.log(labels)))


def test_all_that_is_told_of_responses_is_how_far_scores_may_reach():
    """How many parties need which of few series; and the power of two above the largest."""
    near, far = told_of_reach(np.array([1.0, -3.5])), told_of_reach(np.array([2.0, -6.5]))
    assert told_of_reach(np.zeros(0)) == reach_of(0.0) == 0.0
    for parties in (1, 20):
        assert 3.5 < reach_of(parties * near) < REACHES[0]
        assert 6.5 < reach_of(parties * near + far) < REACHES[2]
    with pytest.raises(ConfigError, match="range over more powers of ten"):
        reach_of(near + told_of_reach(np.array([-12.0])))
    assert common_factor(4096.0) == pytest.approx(np.log(64.0), abs=1e-8)
