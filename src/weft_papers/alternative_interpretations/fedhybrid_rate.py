"""The linear rate of FedHybrid's Theorem 4.1, as printed and as proven, against what happens.

Parties with one quadratic each, all alike: eigenvalues m and ℓ, minima at random points. Of
quadratics the dual function is known in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.array_types import Floats

_PARTIES = 3


@dataclass(frozen=True)
class Rates:
    """By how much 13Δ_λ + Δ_x̃ falls in an iteration at least, relative to itself.

    Attributes
    ----------
    printed, proven
        What the theorem says, with m + μ, and its proof, with ℓ + μ.
    happened
        In one iteration from the multipliers that are slowest to move.
    """

    printed: float
    proven: float
    happened: float


def rates(m: float, upper: float, mu: float) -> Rates:
    """With the steps of condition (4.2) taken as equalities, all parties gradient-type."""
    bends = np.array([m, upper])
    a = 1 / (22 * mu / 9 + 2 * upper)
    b = min(mu / 9, a * m**2 / 21)
    primal = m * a / 2
    printed = min(3 * b / (13 * (m + mu)), primal)
    proven = min(3 * b / (13 * (upper + mu)), primal)
    return Rates(printed, proven, _fallen(bends, mu, a, b))


def _fallen(bends: Floats, mu: float, a: float, b: float) -> float:
    """Multipliers are off along the stiff direction, and x is at its best for them."""
    multipliers = np.zeros((_PARTIES, 2))
    multipliers[:, 1] = np.array([1.0, -1.0, 0.0])
    x, x0 = _inner_best(bends, mu, multipliers)
    before = _gaps(bends, mu, x, x0, multipliers)
    moved = x - a * (bends * x - multipliers + mu * (x - x0))
    multipliers = multipliers + b * (x0 - x)
    after = _gaps(bends, mu, moved, moved.mean(0) - multipliers.mean(0) / mu, multipliers)
    return 1 - after / before


def _lagrangian(bends: Floats, mu: float, x: Floats, x0: Floats, multipliers: Floats) -> float:
    """f_i(x) = ½ xᵀ diag(bends) x, so that x* and λ* are zero."""
    apart = x0 - x
    parts = 0.5 * bends * x**2 + multipliers * apart + 0.5 * mu * apart**2
    return float(parts.sum())


def _inner_best(bends: Floats, mu: float, multipliers: Floats) -> tuple[Floats, Floats]:
    """Where the augmented Lagrangian is least: bends·x_i = λ_i + μ(x₀ − x_i), column by column."""
    # Σ_i μ(x₀ − x_i) = −Σ_i λ_i and x_i = (λ_i + μ x₀)/(bends + μ).
    total = multipliers.sum(axis=0)
    x0 = (mu * total / (bends + mu) - total) / (_PARTIES * mu * bends / (bends + mu))
    return (multipliers + mu * x0) / (bends + mu), x0


def _gaps(bends: Floats, mu: float, x: Floats, x0: Floats, multipliers: Floats) -> float:
    """13Δ_λ + Δ_x̃; g(λ*) = 0 here."""
    least = _lagrangian(bends, mu, *_inner_best(bends, mu, multipliers), multipliers)
    return -13 * least + _lagrangian(bends, mu, x, x0, multipliers) - least
