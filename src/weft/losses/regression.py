"""Losses for real-valued labels."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from weft.losses.base import Array, Flags, Loss, check_parameter
from weft.losses.dual_steps import compiled, deviation_step, tube_step


class DeviationLoss(Loss):
    """A loss of the deviation |z − y|: its dual domain is |α| ≤ L."""

    task: ClassVar[Literal["classification", "regression"]] = "regression"

    def project(self, alpha: Array, y: Array) -> Array:
        """Return clip(α, −L, L)."""
        return np.minimum(np.maximum(alpha, -self.lipschitz), self.lipschitz)


@dataclass(frozen=True)
class Squared(DeviationLoss):
    """Squared loss, l(z) = ½(z − y)²."""

    name: ClassVar[str] = "squared"
    lipschitz: ClassVar[float] = math.inf
    smoothness: ClassVar[float] = 1.0
    spreads: ClassVar[bool] = True

    def value(self, z: Array, y: Array) -> Array:
        """Return ½(z − y)²."""
        deviation = z - y
        return 0.5 * deviation * deviation

    def conjugate_inside(self, a: Array, y: Array) -> Array:
        """Return −ay + a²/2."""
        return a * (0.5 * a - y)

    def u(self, z: Array, y: Array) -> Array:
        """Return y − z."""
        return y - z

    def curvature(self, z: Array, y: Array) -> Array:
        """Return 1."""
        return np.ones(np.broadcast_shapes(z.shape, y.shape))

    def spread_curvature(self, z: Array, y: Array, width: Array) -> Array:
        """Return 1."""
        return self.curvature(z, y)

    def dual_step(self, alpha: Array, z: Array, y: Array, q: Array | float) -> Array:
        """Return α + (y − z − α)/(1 + q)."""
        return compiled(deviation_step)(alpha, z, y, q, 1.0, math.inf)


@dataclass(frozen=True)
class EpsilonInsensitive(DeviationLoss):
    """Loss of support vector regression, l(z) = max(0, |z − y| − ε).

    Parameters
    ----------
    epsilon : float, default 0.1
        Half the width of the tube in which a prediction costs nothing; zero or more.
    """

    epsilon: float = 0.1

    name: ClassVar[str] = "epsilon_insensitive"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        check_parameter(self.name, "epsilon", self.epsilon, zero_allowed=True)

    def value(self, z: Array, y: Array) -> Array:
        """Return max(0, |z − y| − ε)."""
        return np.maximum(np.abs(z - y) - self.epsilon, 0.0)

    def _add_table(
        self, z: Array, target: Array, y: Array, steps: Array, mask: Flags, out: Array
    ) -> None:
        """Add the losses in one pass."""
        # Loaded with the first call: who only names a loss waits for no compiler.
        from weft.losses.compiled_sample_losses import tube_table

        tube_table(z, target, y, steps[:, 0], steps[:, 1], mask, out, self.epsilon)

    def conjugate_inside(self, a: Array, y: Array) -> Array:
        """Return −ay + ε|a|."""
        return self.epsilon * np.abs(a) - a * y

    def u(self, z: Array, y: Array) -> Array:
        """Return sign(y − z) where |y − z| > ε, else 0."""
        deviation = y - z
        return np.where(np.abs(deviation) > self.epsilon, np.sign(deviation), 0.0)

    def dual_step(self, alpha: Array, z: Array, y: Array, q: Array | float) -> Array:
        """Return clip(soft(α + (y − z)/q, ε/q), −1, 1), soft(s, r) = sign(s)·max(|s| − r, 0)."""
        return compiled(tube_step)(alpha, z, y, q, self.epsilon)


@dataclass(frozen=True)
class Absolute(EpsilonInsensitive):
    """Absolute loss, l(z) = |z − y|: the ε-insensitive loss at ε = 0."""

    epsilon: float = field(default=0.0, init=False, repr=False)

    name: ClassVar[str] = "absolute"


@dataclass(frozen=True)
class Huber(DeviationLoss):
    """Huber's loss: squared near the label, absolute beyond.

    l(z) = (z − y)²/(2g) where |z − y| ≤ g, and |z − y| − g/2 beyond.

    Parameters
    ----------
    g : float, default 1.0
        Deviation at which the loss turns linear, above zero; l' is 1/g-Lipschitz.
    """

    g: float = 1.0

    name: ClassVar[str] = "huber"
    lipschitz: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        check_parameter(self.name, "g", self.g, zero_allowed=False)

    @property
    def smoothness(self) -> float:
        """1/g."""
        return 1.0 / self.g

    def value(self, z: Array, y: Array) -> Array:
        """Return c(d − c/2)/g with d = |z − y| and c = min(d, g): both cases at once."""
        deviation = np.abs(z - y)
        near = np.minimum(deviation, self.g)
        return near / self.g * (deviation - 0.5 * near)

    def conjugate_inside(self, a: Array, y: Array) -> Array:
        """Return −ay + g a²/2."""
        return a * (0.5 * self.g * a - y)

    def u(self, z: Array, y: Array) -> Array:
        """Return clip((y − z)/g, −1, 1)."""
        return np.minimum(np.maximum(y - z, -self.g), self.g) / self.g

    def curvature(self, z: Array, y: Array) -> Array:
        """Return 1/g where |z − y| < g, else 0."""
        return np.where(np.abs(z - y) < self.g, 1.0 / self.g, 0.0)

    def dual_step(self, alpha: Array, z: Array, y: Array, q: Array | float) -> Array:
        """Return clip(α + (y − z − gα)/(q + g), −1, 1)."""
        return compiled(deviation_step)(alpha, z, y, q, self.g, 1.0)
