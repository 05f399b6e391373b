"""Losses for labels −1 and +1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import scipy

from weft.losses.base import Array, Flags, Loss, check_parameter
from weft.losses.dual_steps import compiled, logistic_step, margin_step


class MarginLoss(Loss):
    """A loss of the margin yz that never rises with it: its dual domain is 0 ≤ yα ≤ L."""

    task: ClassVar[Literal["classification", "regression"]] = "classification"

    def project(self, alpha: Array, y: Array) -> Array:
        """Return y·clip(yα, 0, L)."""
        return y * np.minimum(np.maximum(y * alpha, 0.0), self.lipschitz)


@dataclass(frozen=True)
class Hinge(MarginLoss):
    """Hinge loss of the support vector machine, l(z) = max(0, 1 − yz)."""

    name: ClassVar[str] = "hinge"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = math.inf
    rounds: ClassVar[bool] = True
    spreads: ClassVar[bool] = True

    def value(self, z: Array, y: Array) -> Array:
        """Return max(0, 1 − yz)."""
        return np.maximum(1.0 - y * z, 0.0)

    def _add_table(
        self, z: Array, target: Array, y: Array, steps: Array, mask: Flags, out: Array
    ) -> None:
        """Add the losses in one pass."""
        # Loaded with the first call: who only names a loss waits for no compiler.
        from weft.losses.compiled_sample_losses import hinge_table

        hinge_table(z, target, y, steps[:, 0], steps[:, 1], mask, out)

    def conjugate_inside(self, a: Array, y: Array) -> Array:
        """Return −ya."""
        return -y * a

    def u(self, z: Array, y: Array) -> Array:
        """Return y where yz < 1, else 0."""
        return np.where(y * z < 1.0, y, 0.0)

    def rounded_slope(self, z: Array, y: Array, width: Array) -> Array:
        """Return yσ((1 − yz)/g), the slope of g·log(1 + e^{(1 − yz)/g}) for a width g."""
        return np.asarray(y * scipy.special.expit((1.0 - y * z) / width))

    def spread_curvature(self, z: Array, y: Array, width: Array) -> Array:
        """Return σ(1 − σ)/g."""
        share = scipy.special.expit((1.0 - y * z) / width)
        return np.asarray(share * (1.0 - share) / width)

    def sharpest(self, width: Array) -> Array:
        """Return 1/(4g)."""
        return 0.25 / width

    def dual_step(self, alpha: Array, z: Array, y: Array, q: Array | float) -> Array:
        """Return y·clip(yα + (1 − yz)/q, 0, 1)."""
        return compiled(margin_step)(alpha, z, y, q, 0.0, 1.0)


@dataclass(frozen=True)
class SmoothedHinge(MarginLoss):
    """Hinge loss with its kink rounded off over a width g.

    l(z) = 0 where yz ≥ 1, (1 − yz)²/(2g) where 1 − g ≤ yz ≤ 1, and 1 − yz − g/2 below.

    Parameters
    ----------
    g : float, default 0.5
        Width of the rounding, above zero; l' is 1/g-Lipschitz.
    """

    g: float = 0.5

    name: ClassVar[str] = "smoothed_hinge"
    lipschitz: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        check_parameter(self.name, "g", self.g, zero_allowed=False)

    @property
    def smoothness(self) -> float:
        """1/g."""
        return 1.0 / self.g

    def value(self, z: Array, y: Array) -> Array:
        """Return c(s − c/2)/g with s = 1 − yz and c = clip(s, 0, g): all three cases at once."""
        shortfall = 1.0 - y * z
        rounded = np.minimum(np.maximum(shortfall, 0.0), self.g)
        return rounded / self.g * (shortfall - 0.5 * rounded)

    def conjugate_inside(self, a: Array, y: Array) -> Array:
        """Return −ya + g a²/2."""
        return a * (0.5 * self.g * a - y)

    def u(self, z: Array, y: Array) -> Array:
        """Return y·clip((1 − yz)/g, 0, 1)."""
        return y * (np.minimum(np.maximum(1.0 - y * z, 0.0), self.g) / self.g)

    def curvature(self, z: Array, y: Array) -> Array:
        """Return 1/g where 1 − g < yz < 1, else 0."""
        shortfall = 1.0 - y * z
        return np.where((shortfall > 0.0) & (shortfall < self.g), 1.0 / self.g, 0.0)

    def dual_step(self, alpha: Array, z: Array, y: Array, q: Array | float) -> Array:
        """Return y·clip(yα + (1 − yz − g yα)/(q + g), 0, 1)."""
        return compiled(margin_step)(alpha, z, y, q, self.g, 1.0)


@dataclass(frozen=True)
class SquaredHinge(MarginLoss):
    """Squared hinge loss, l(z) = ½ max(0, 1 − yz)²."""

    name: ClassVar[str] = "squared_hinge"
    lipschitz: ClassVar[float] = math.inf
    smoothness: ClassVar[float] = 1.0

    def value(self, z: Array, y: Array) -> Array:
        """Return ½ max(0, 1 − yz)²."""
        shortfall = np.maximum(1.0 - y * z, 0.0)
        return 0.5 * shortfall * shortfall

    def conjugate_inside(self, a: Array, y: Array) -> Array:
        """Return −ya + a²/2."""
        return a * (0.5 * a - y)

    def u(self, z: Array, y: Array) -> Array:
        """Return y·max(0, 1 − yz)."""
        return y * np.maximum(1.0 - y * z, 0.0)

    def curvature(self, z: Array, y: Array) -> Array:
        """Return 1 where yz < 1, else 0."""
        return np.where(y * z < 1.0, 1.0, 0.0)

    def dual_step(self, alpha: Array, z: Array, y: Array, q: Array | float) -> Array:
        """Return y·max(0, yα + (1 − yz − yα)/(1 + q))."""
        return compiled(margin_step)(alpha, z, y, q, 1.0, math.inf)


@dataclass(frozen=True)
class Logistic(MarginLoss):
    """Logistic loss, l(z) = log(1 + e^{−yz})."""

    name: ClassVar[str] = "logistic"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25
    spreads: ClassVar[bool] = True

    def value(self, z: Array, y: Array) -> Array:
        """Return log(1 + e^{−yz}), without overflow."""
        # As accurate as logaddexp, in a tenth of its time: these two run on vectors of numbers.
        margin = y * z
        value: Array = np.maximum(-margin, 0.0) + np.log1p(np.exp(-np.abs(margin)))
        return value

    def _add_table(
        self, z: Array, target: Array, y: Array, steps: Array, mask: Flags, out: Array
    ) -> None:
        """Add the losses in one pass."""
        # Loaded with the first call, as for the hinge.
        from weft.losses.logistic_losses_along_line import logistic_table

        # One type of each argument: the compiler would compile anew for others.
        z, target, y, here, there, used = (
            np.ascontiguousarray(x, np.float64)
            for x in (z, target, y, steps[:, 0], steps[:, 1], mask)
        )
        logistic_table(z, target, y, here, there, used, out)

    def conjugate_inside(self, a: Array, y: Array) -> Array:
        """Return p log p + (1 − p) log(1 − p) with p = ya, and 0 log 0 = 0."""
        p = y * a
        return np.asarray(
            scipy.special.xlogy(p, p) + scipy.special.xlog1py(1.0 - p, -p), dtype=np.float64
        )

    def u(self, z: Array, y: Array) -> Array:
        """Return y·σ(−yz), σ the logistic function."""
        slope: Array = y * scipy.special.expit(-y * z)
        return slope

    def curvature(self, z: Array, y: Array) -> Array:
        """Return σ(z)(1 − σ(z))."""
        chance: Array = scipy.special.expit(-y * z)
        return chance * (1.0 - chance)

    def spread_curvature(self, z: Array, y: Array, width: Array) -> Array:
        """Return σ(1 − σ) at a score nearer to zero."""
        return self.curvature(z / width, y)

    def dual_step(self, alpha: Array, z: Array, y: Array, q: Array | float) -> Array:
        """Return y·p, where p solves log(p/(1−p)) + yz + q(p − yα) = 0, by Newton's method."""
        return compiled(logistic_step)(alpha, z, y, q)
