"""The updates of FedHybrid (Algorithm 1) at a party, and the server's.

A party keeps its copy x_i of the model and its multiplier λ_i, and gets the server's x₀:

    x_i⁺ = x_i − a_i D_i⁻¹ (∇f_i(x_i) − λ_i + μ(x_i − x₀)),   λ_i⁺ = λ_i + b_i D_i (x₀ − x_i),

with D_i = I (gradient-type) or D_i = ∇²f_i(x_i) + μI (Newton-type). Both use the old x_i. The
server answers with x₀⁺ = mean(x_i⁺) − mean(λ_i⁺)/μ = mean(x_i⁺ − λ_i⁺/μ), so one vector a party
is enough, and a sum of them is all the server needs.

At a fixed point x_i = x₀, ∇f_i(x₀) = λ_i and mean(λ_i) = 0, hence Σ ∇f_i(x₀) = 0: the optimum,
whatever the steps. A party that is absent keeps x_i and λ_i, and its last x_i − λ_i/μ stays in the
mean, which leaves that fixed point as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.array_types import Floats
from weft.solvers.fedhybrid.local_function import LocalFunction
from weft.solvers.fedhybrid.step_sizes import Pair

_ARMIJO = 1e-4
_MOST_HALVINGS = 30
#: Two values of a function that differ by less than this share are the same up to rounding.
_ROUNDING = 1e-13
_TINY = 1e-300


@dataclass(frozen=True)
class State:
    """What a party keeps: its x_i and its multiplier λ_i, both (d, classes)."""

    x: Floats
    multiplier: Floats

    @classmethod
    def start(cls, shape: tuple[int, int]) -> State:
        """Zeros."""
        return cls(np.zeros(shape), np.zeros(shape))

    def share(self, mu: float) -> Floats:
        """x_i − λ_i/μ, whose mean over the parties is the server's x₀."""
        return self.x - self.multiplier / mu


@dataclass(frozen=True)
class Stand:
    """Where a party stands when x₀ arrives.

    Attributes
    ----------
    slope
        ∇f_i(x_i).
    residual
        ‖∇f_i(x_i) − λ_i‖ + (ℓ_i + μ) ‖x_i − x₀‖ of every class. Since mean(λ_i) = μ(mean(x_i) −
        x₀), its mean over all parties is at least ‖∇P(x₀)‖, P = 1/n Σ f_i: zero at the optimum, and
        a bound on the distance from it, P(x₀) − P* ≤ ‖∇P(x₀)‖²/2m.
    """

    slope: Floats
    residual: Floats


def stand(function: LocalFunction, state: State, x0: Floats, mu: float) -> Stand:
    """Gradient and residual at the party's own point."""
    slope = function.gradient(state.x)
    apart = np.linalg.norm(state.x - x0, axis=0)
    residual = np.linalg.norm(slope - state.multiplier, axis=0)
    return Stand(slope, residual + (function.curvature.upper + mu) * apart)


def gradient_update(
    function: LocalFunction, state: State, here: Stand, x0: Floats, mu: float, pair: Pair
) -> State:
    """Lines 5 and 6 of Algorithm 1.

    With ``pair.search`` the step is ``search``/κ where that is longer than a, κ the curvature
    along the direction of what the party minimises, f_i(x) − λ_iᵀx + μ/2 ‖x − x₀‖². At
    search = 1 a quadratic then falls by the most. It costs a product with the party's cells.
    """
    slope = here.slope - state.multiplier + mu * (state.x - x0)
    a = np.full(slope.shape[1], pair.a)
    if pair.search:
        squares = np.maximum((slope * slope).sum(axis=0), _TINY)
        bend = function.bend(state.x, slope) / squares + mu
        a = np.maximum(a, pair.search / bend)
        a = _backtracked(function, state, x0, mu, slope, slope, a, pair.a)
    return State(state.x - a * slope, state.multiplier + pair.b * (x0 - state.x))


def newton_update(
    function: LocalFunction, state: State, here: Stand, x0: Floats, mu: float, pair: Pair
) -> State:
    """Lines 9 and 10 of Algorithm 1; with ``pair.search`` the step a is cut where too long."""
    system = function.system(state.x, mu)
    slope = here.slope - state.multiplier + mu * (state.x - x0)
    direction = system.solve(slope)
    a = np.full(slope.shape[1], pair.a)
    if pair.search:
        shortest = pair.a * 0.5**_MOST_HALVINGS
        a = _backtracked(function, state, x0, mu, slope, direction, a, shortest)
    return State(
        state.x - a * direction,
        state.multiplier + pair.b * system.times(x0 - state.x),
    )


def _backtracked(
    function: LocalFunction,
    state: State,
    x0: Floats,
    mu: float,
    slope: Floats,
    direction: Floats,
    a: Floats,
    shortest: float,
) -> Floats:
    """Steps halved, class by class, until Armijo's condition holds or they are the shortest.

    It is that of f_i(x) − λ_iᵀx + μ/2 ‖x − x₀‖². A quadratic meets it at once.
    """
    if function.quadratic:
        return a

    def augmented(x: Floats) -> Floats:
        away = x - x0
        rest: Floats = (0.5 * mu * away * away - state.multiplier * x).sum(axis=0)
        return function.value(x) + rest

    before = augmented(state.x)
    fall = (slope * direction).sum(axis=0)
    slack = _ROUNDING * (1.0 + np.abs(before))
    for _ in range(_MOST_HALVINGS):
        rises = augmented(state.x - a * direction) > before - _ARMIJO * a * fall + slack
        if not (rises & (a > shortest)).any():
            break
        a = np.where(rises, np.maximum(0.5 * a, shortest), a)
    return a
