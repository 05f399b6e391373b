"""The loss of all classes at once: value, slope and conjugate belong together."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit, softmax
from sklearn.metrics import log_loss

from weft.losses import Softmax

Floats = NDArray[np.float64]
LOSS = Softmax()
RNG = np.random.default_rng(3)
Z: Floats = RNG.normal(size=(40, 4)) * 3.0
CLASS = RNG.integers(0, 4, 40)
Y: Floats = np.where(CLASS[:, None] == np.arange(4), 1.0, -1.0)


def test_it_is_the_cross_entropy_of_scikit_learn() -> None:
    judge = log_loss(CLASS, softmax(Z, axis=1), labels=range(4))
    assert LOSS.value(Z, Y).mean() == pytest.approx(judge, rel=1e-12)


def test_scores_far_out_do_not_overflow() -> None:
    z = np.array([[1e4, -1e4, 0.0, 0.0]])
    assert LOSS.value(z, np.array([[-1.0, 1.0, -1.0, -1.0]])) == pytest.approx([2e4])
    assert LOSS.u(z, np.array([[1.0, -1.0, -1.0, -1.0]])) == pytest.approx(np.zeros((1, 4)))


def test_slopes_and_hessian_products_are_those_of_finite_differences() -> None:
    way = RNG.normal(size=4)
    for z, y in zip(Z[:10], Y[:10], strict=True):
        slope = approx_fprime(z, lambda at, y=y: float(LOSS.value(at, y)))
        assert LOSS.u(z, y) == pytest.approx(-slope, abs=1e-6)
        bent = (LOSS.u(z - 1e-6 * way, y) - LOSS.u(z + 1e-6 * way, y)) / 2e-6
        assert LOSS.hessian_product(z, y, way) == pytest.approx(bent, abs=1e-8)


def test_the_conjugate_is_the_largest_value_that_a_search_finds() -> None:
    for z, y in zip(Z[:6], Y[:6], strict=True):
        a = LOSS.u(z, y)
        # Scores count up to a common shift, so that one of them may stay at zero.
        found = minimize(
            lambda t, a=a, y=y: float(LOSS.value(np.append(t, 0.0), y) + a[:3] @ t),
            np.zeros(3),
            options={"gtol": 1e-9},
        )
        assert float(LOSS.conjugate(a, y)) == pytest.approx(-found.fun, abs=1e-6)


def test_fenchel_young_holds_everywhere_and_is_an_equality_at_the_slope() -> None:
    at_slope = LOSS.u(Z, Y)
    total = LOSS.value(Z, Y) + LOSS.conjugate(at_slope, Y) + (at_slope * Z).sum(axis=1)
    assert total == pytest.approx(np.zeros(40), abs=1e-9)
    others = np.where(Y > 0, 1.0, 0.0) - RNG.dirichlet(np.ones(4), 40)
    assert (LOSS.value(Z, Y) + LOSS.conjugate(others, Y) + (others * Z).sum(axis=1) >= 0).all()


def test_outside_the_simplex_the_conjugate_is_infinite() -> None:
    y = Y[:1]
    for p in ([0.5, 0.6, 0.0, 0.0], [1.1, -0.1, 0.0, 0.0], [0.2, 0.2, 0.2, 0.2]):
        a = np.where(y > 0, 1.0, 0.0) - np.array([p])
        assert LOSS.conjugate(a, y) == np.inf


def test_a_projection_is_nearer_than_any_other_point_of_the_domain() -> None:
    far = RNG.normal(size=(40, 4))
    mine = np.where(Y > 0, 1.0, 0.0)
    nearest = LOSS.project(far, Y)
    p = mine - nearest
    assert p.min() >= 0
    assert p.sum(axis=1) == pytest.approx(np.ones(40))
    others = mine - RNG.dirichlet(np.ones(4), (500, 40))
    distance = ((others - far) ** 2).sum(axis=-1)
    assert (distance >= ((nearest - far) ** 2).sum(axis=-1) - 1e-12).all()


def test_scores_of_classes_are_their_log_odds() -> None:
    assert expit(LOSS.class_scores(Z)) == pytest.approx(softmax(Z, axis=1), rel=1e-10)


def test_samples_without_a_label_have_no_slope() -> None:
    assert not LOSS.u(Z, np.zeros_like(Z)).any()
    assert not LOSS.hessian_product(Z, np.zeros_like(Z), Z).any()
