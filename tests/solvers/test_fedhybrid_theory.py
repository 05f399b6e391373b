"""Theorem 4.1 of the FedHybrid paper on federated runs, for problems with a closed form.

For quadratics f_i(x) = ½xᵀH_ix − c_iᵀx the augmented Lagrangian L̃ and its minimum g(λ) over all
copies are quadratic too, so that Δ = 13 Δ_λ + Δ_x̃ is known without rounding trouble. Nothing of
that uses Weft's code; x_i and λ_i are what the parties of a federation hold.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from covering import before_release
from weft.data import Tile
from weft.federation.local_federation import Federation
from weft.solvers.fedhybrid.local_function import Curvature
from weft.solvers.fedhybrid.step_sizes import Theory
from weft.solvers.run_settings import Settings

LAM = 0.5
COLUMNS = 2
#: Eigenvalues of every party's Hessian: m and ℓ.
LOWER, UPPER = 1.0, 1.1


@cache
def blocks():
    """Rows and responses of three parties with the same two eigenvalues, turned differently."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(3):
        turn, _ = np.linalg.qr(rng.normal(size=(COLUMNS, COLUMNS)))
        # A party's f_i has 1/N_i of its losses.
        scale = np.sqrt(COLUMNS * (np.linspace(LOWER, UPPER, COLUMNS) - LAM))
        made.append((scale[:, None] * turn, 3.0 * rng.normal(size=COLUMNS)))
    return made


def tiles():
    features = [f"x{i}" for i in range(COLUMNS)]
    return {
        f"p{k}": (Tile.make([f"{97 * i + k}" for i in range(len(y))], features, block, y),)
        for k, (block, y) in enumerate(blocks())
    }


class Lagrangian:
    """L̃ of (2.1) over x̃ = (x₀, x₁, …, x_n), as matrices."""

    def __init__(self, mu):
        n, d = len(blocks()), COLUMNS
        w = np.kron(np.hstack([np.ones((n, 1)), -np.eye(n)]), np.eye(d))
        self.mu, self.matrix = mu, mu * w.T @ w
        slope = np.zeros((n + 1) * d)
        for i, (block, y) in enumerate(blocks(), start=1):
            part = slice(i * d, (i + 1) * d)
            self.matrix[part, part] += block.T @ block / len(y) + LAM * np.eye(d)
            slope[part] = block.T @ y / len(y)
        self.w, self.slope, self.inverse = w, slope, np.linalg.inv(self.matrix)
        # g is concave with Hessian −W K⁻¹ Wᵀ, and its gradient W x̃*(λ) is zero at λ*.
        self.bend = w @ self.inverse @ w.T
        self.best = np.linalg.solve(self.bend, w @ self.inverse @ slope)

    def delta(self, x, lam):
        """13 Δ_λ + Δ_x̃ from (parties × columns) arrays; x₀ is the server's."""
        x0 = (x - lam / self.mu).mean(axis=0)
        x, lam = np.concatenate([x0, x.ravel()]), lam.ravel()
        x_best = self.inverse @ (self.slope - self.w.T @ lam)
        tracking = 0.5 * (x - x_best) @ self.matrix @ (x - x_best)
        dual = 0.5 * (lam - self.best) @ self.bend @ (lam - self.best)
        return 13.0 * dual + tracking


def deltas(options, mu, iterations):
    """Δ after every iteration of a federated run, and at the start."""
    federation = Federation(tiles())
    lagrangian = Lagrangian(mu)
    zeros = np.zeros((len(blocks()), COLUMNS))
    found = [lagrangian.delta(zeros, zeros)]

    places = []

    def follow(record):
        halves = [party._half for party in federation.parties.values()]
        if not places:
            assert {half._facts.mu for half in halves} == {mu}
            places.extend(party.view.tile_columns[0] for party in federation.parties.values())
        x = np.array([h.local.x[at, 0] for h, at in zip(halves, places, strict=True)])
        lam = np.array([h.local.multiplier[at, 0] for h, at in zip(halves, places, strict=True)])
        found.append(lagrangian.delta(x, lam))

    federation.train(
        Settings(
            lam=LAM,
            loss="squared",
            solver="fedhybrid",
            options=options,
            weigh="parties",
            cipher="plain",
            gap=None,
            iterations=iterations,
            certify_every=10**9,
        ),
        progress=follow,
    )
    return np.array(found)


MIXTURES = {"all gradient": 0, "one Newton": 1, "all Newton": 3}


def proven(newton):
    """The theory's numbers for the eigenvalues that were put in."""
    return Theory.of([Curvature(LOWER, UPPER)] * 3, [i < newton for i in range(3)])


@pytest.mark.parametrize("mixture", ["one Newton", *before_release("all gradient", "all Newton")])
def test_the_error_falls_at_the_proven_rate_in_every_iteration(mixture):
    newton = MIXTURES[mixture]
    rule = proven(newton)
    assert rule.rate > 1e-3
    iterations = int(np.log(0.1) / np.log1p(-rule.rate)) + 1
    # μ is given, since bounds that a party computes differ from those put in by rounding.
    options = {"steps": "theory", "newton": newton, "mu": rule.mu}
    delta = deltas(options, rule.mu, iterations)
    bound = delta[0] * (1.0 - rule.rate) ** np.arange(len(delta))
    assert bound[-1] <= 0.1 * delta[0]
    assert (delta <= bound).all()
    assert (delta[1:] <= (1.0 - rule.rate) * delta[:-1]).all()


@pytest.mark.parametrize("mixture", MIXTURES)
def test_steps_fifty_times_as_long_break_the_bound(mixture):
    newton = MIXTURES[mixture]
    rule = proven(newton)
    pairs = [rule.own(Curvature(LOWER, UPPER), kind) for kind in (False, True)]
    options = {
        "steps": "fixed",
        "newton": newton,
        "mu": rule.mu,
        "a": [50.0 * pair.a for pair in pairs],
        "b": [50.0 * pair.b for pair in pairs],
    }
    # Once is enough, and more would be refused: the weights grow without end.
    first, second = deltas(options, rule.mu, 1)
    assert second > first


def test_the_steps_are_those_of_the_condition():
    """(4.2) by hand, for one gradient-type and one Newton-type party."""
    bounds, mu = [Curvature(1.0, 4.0), Curvature(2.0, 3.0)], 0.6
    rule = Theory.of(bounds, [False, True], mu)
    first, second = rule.own(bounds[0], False), rule.own(bounds[1], True)
    reach = 1 / (22 * 0.6 / 9 + 2 * 4.0)
    assert first.a == pytest.approx(reach)
    assert second.a == pytest.approx(2.6 * reach)
    alpha = min(first.a, second.a / 3.6)
    beta = min(mu / 9, alpha * 1.0**2 / 21)
    assert first.b == pytest.approx(beta)
    assert second.b == pytest.approx(beta / 3.6)
    below = min(first.b, second.b * 2.6)
    assert rule.rate == pytest.approx(min(3 * below / (13 * 4.6), 1.0 * alpha / 2))
    assert not first.search
    assert not second.search


def test_without_a_penalty_given_the_proven_rate_is_the_best_of_all():
    bounds, newton = [Curvature(1.0, 1.5)] * 3, [True, False, False]
    best = Theory.of(bounds, newton)
    for factor in (0.5, 0.8, 1.25, 2.0):
        assert Theory.of(bounds, newton, factor * best.mu).rate <= best.rate
