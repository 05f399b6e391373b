"""Theorem 4.1 of the FedHybrid paper, iteration by iteration, on problems with a closed form.

For quadratics f_i(x) = ½xᵀH_ix − c_iᵀx the augmented Lagrangian L̃ and its minimum g(λ) over all
copies are quadratic too, so that Δ = 13 Δ_λ + Δ_x̃ is known without rounding trouble. Nothing of
that uses Weft's code.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from weft.algorithms.fedhybrid.local import Curvature, LocalFunction
from weft.algorithms.fedhybrid.simulation import Simulation
from weft.algorithms.fedhybrid.steps import Fixed, Pair, Theory
from weft.losses import get_loss
from weft.sums.local_table import DensePiece, LocalTable

LAM = 0.5


def table(block):
    n, d = block.shape
    piece = DensePiece(block, np.arange(n, dtype=np.int32), np.arange(d, dtype=np.int32), n, d)
    return LocalTable(n, d, [piece], (block**2).sum(axis=1, keepdims=True))


def functions(parties=3, columns=2, spread=1.5, seed=0):
    """Least squares at every party with eigenvalues between 1 and ``spread``, both taken on."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(parties):
        turn, _ = np.linalg.qr(rng.normal(size=(columns, columns)))
        block = np.sqrt(np.linspace(1.0, spread, columns) - LAM)[:, None] * turn
        y = rng.normal(size=(columns, 1))
        made.append((block, y, LocalFunction(table(block), y, get_loss("squared"), LAM, 1.0)))
    return made


class Lagrangian:
    """L̃ of (2.1) over x̃ = (x₀, x₁, …, x_n), as matrices."""

    def __init__(self, made, mu):
        n, d = len(made), made[0][0].shape[1]
        w = np.kron(np.hstack([np.ones((n, 1)), -np.eye(n)]), np.eye(d))
        self.matrix = mu * w.T @ w
        slope = np.zeros((n + 1) * d)
        for i, (block, y, _) in enumerate(made, start=1):
            part = slice(i * d, (i + 1) * d)
            self.matrix[part, part] += block.T @ block + LAM * np.eye(d)
            slope[part] = block.T @ y[:, 0]
        self.w, self.slope, self.inverse = w, slope, np.linalg.inv(self.matrix)
        # g is concave with Hessian −W K⁻¹ Wᵀ, and its gradient W x̃*(λ) is zero at λ*.
        self.bend = w @ self.inverse @ w.T
        self.best = np.linalg.solve(self.bend, w @ self.inverse @ slope)

    def delta(self, x0, states):
        x = np.concatenate([x0[:, 0], *(state.x[:, 0] for state in states)])
        lam = np.concatenate([state.multiplier[:, 0] for state in states])
        x_best = self.inverse @ (self.slope - self.w.T @ lam)
        tracking = 0.5 * (x - x_best) @ self.matrix @ (x - x_best)
        dual = 0.5 * (lam - self.best) @ self.bend @ (lam - self.best)
        return 13.0 * dual + tracking


MIXTURES = {
    "all gradient": [False, False, False],
    "one Newton": [True, False, False],
    "all Newton": [True, True, True],
}


def deltas(made, newton, rule, iterations):
    lagrangian = Lagrangian(made, rule.mu)
    run = Simulation([function for *_, function in made], newton).run(rule)
    return np.array([lagrangian.delta(m.x0, m.states) for m in islice(run, iterations)])


@pytest.mark.parametrize("mixture", MIXTURES)
def test_the_error_falls_at_the_proven_rate_in_every_iteration(mixture):
    made, newton = functions(), MIXTURES[mixture]
    rule = Simulation([function for *_, function in made], newton).theory()
    assert rule.rate > 2e-4
    iterations = int(np.log(0.1) / np.log1p(-rule.rate)) + 1
    delta = deltas(made, newton, rule, iterations)
    assert (delta[1:] <= (1.0 - rule.rate) * delta[:-1]).all()
    assert delta[-1] <= 0.1 * delta[0]


@pytest.mark.parametrize("mixture", MIXTURES)
def test_steps_fifty_times_as_long_break_the_bound(mixture):
    made, newton = functions(), MIXTURES[mixture]
    simulation = Simulation([function for *_, function in made], newton)
    proven = simulation.theory()
    longer = [
        Pair(50.0 * pair.a, 50.0 * pair.b)
        for pair in (proven.own(simulation.functions[0].curvature, kind) for kind in (False, True))
    ]
    delta = deltas(made, newton, Fixed(proven.mu, *longer), 30)
    assert (delta[1:] > (1.0 - proven.rate) * delta[:-1]).any()


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
