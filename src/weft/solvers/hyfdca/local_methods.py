"""The three local dual methods: how far α moves at the samples that a party draws.

Each object is built once at a party. A method is asked for the change of α at some local rows:
what the paper calls Δα_k. γ_t and the average over |B_i| are applied later, except in ``safe``,
where all holders take the same full step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from weft.array_types import Floats, Ints, Slots
from weft.losses import Loss


class LocalMethod(ABC):
    """Change of α at given rows, from their inner products z."""

    @abstractmethod
    def change(
        self, slots: Slots | None, alpha: Floats, z: Floats, y: Floats, gamma: float
    ) -> Floats:
        """Δα for rows whose current values are ``alpha``, ``z``, ``y``."""


class Practical(LocalMethod):
    """Algorithm 5: the dual step with curvature 1/(λN), as if ‖x_i‖ = 1 and nobody else moved."""

    def __init__(self, loss: Loss, lam: float, n_samples: int) -> None:
        self._loss = loss
        self._q = 1.0 / (lam * n_samples)

    def change(
        self, slots: Slots | None, alpha: Floats, z: Floats, y: Floats, gamma: float
    ) -> Floats:
        return self._loss.dual_step(alpha, z, y, self._q) - alpha


class Theory(LocalMethod):
    """Algorithm 3: a step towards u = −l'(z), as long as the theorems allow.

    s = argmax over [0, 1] of −l*(−(α + s d)) − s d z − (s d)²/(2λ) with d = cγ(u − α). In
    δ = s d this is the dual step with curvature 1/λ, and a concave function of one variable
    is largest, between 0 and d, at the point nearest to its free maximum.
    """

    def __init__(self, loss: Loss, lam: float, share: float) -> None:
        self._loss = loss
        self._q = 1.0 / lam
        self._share = share

    def change(
        self, slots: Slots | None, alpha: Floats, z: Floats, y: Floats, gamma: float
    ) -> Floats:
        direction = self._share * gamma * (self._loss.u(z, y) - alpha)
        free = self._loss.dual_step(alpha, z, y, self._q) - alpha
        limited = np.clip(free, np.minimum(direction, 0.0), np.maximum(direction, 0.0))
        return limited / gamma


class Safe(LocalMethod):
    """Ours: the dual step with curvature q_i = β_c ‖x_i‖² / (λN).

    β_c = 1 − (b_c − 1)/(n_c − 1) + (b_c/n_c) ω for a cohort of n_c samples of which b_c are
    drawn, with ω ≥ ‖X̃‖² for X̃ = the rows scaled to norm 1: the expected separable
    over-approximation of mini-batch dual ascent (Qu and Richtárik, 2016) for draws per cohort.
    β = 1 would be Algorithm 5's curvature, β = N that of Algorithm 3.
    """

    def __init__(
        self,
        loss: Loss,
        lam: float,
        n_samples: int,
        norms: Floats,
        drawn: Ints,
        sizes: Ints,
    ) -> None:
        self._loss = loss
        self._unit = norms / (lam * n_samples)
        self._drawn = drawn
        self._sizes = sizes
        self._q = self._unit
        self._omega = 0.0

    def set_omega(self, omega: float) -> None:
        """Use this bound ω; costs nothing while it stays the same."""
        if omega == self._omega:
            return
        self._omega = omega
        n, b = self._sizes, self._drawn
        beta = 1.0 - (b - 1) / np.maximum(n - 1, 1) + b / n * omega
        beta = np.where(b >= n, omega, beta)
        # With cohort bounds far above the norms ω can be tiny; a curvature of zero is no step rule.
        self._q = self._unit * np.repeat(np.maximum(beta, 1e-12), n)[:, None]

    def change(
        self, slots: Slots | None, alpha: Floats, z: Floats, y: Floats, gamma: float
    ) -> Floats:
        q = self._q if slots is None else self._q.take(slots, axis=0)
        return self._loss.dual_step(alpha, z, y, q) - alpha
