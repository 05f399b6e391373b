"""Losses of models whose mean is e^z: counts, rates, amounts.

Each is half the deviance of a distribution, so that it is zero at a perfect fit. Neither its slope
nor its curvature is bounded; runs stay where the loss is no larger than at w = 0, and check it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np

from weft.losses.base import Array, Loss

#: Scores beyond which e^z counts as that of this one: far beyond all sums, far below an overflow.
_FARTHEST = 300.0
#: How many times the largest response a slope may be on the way: more costs digits of all sums.
_ROOM = 16.0
#: Steps of a safeguarded Newton method: bisection alone would take 60.
_MOST_STEPS = 100


def rate(z: Array) -> Array:
    """Return e^z, without overflow: beyond 300 that of 300."""
    return np.exp(np.minimum(z, _FARTHEST))


def area(z: Array) -> Array:
    """Return the integral of `rate` up to z: e^z, and beyond 300 a straight line."""
    return rate(z) * (1.0 + np.maximum(z - _FARTHEST, 0.0))


class LogLinkLoss(Loss):
    """A loss of z = log of the mean, with responses that are not negative."""

    task: ClassVar[Literal["classification", "regression"]] = "regression"
    lipschitz: ClassVar[float] = math.inf
    smoothness: ClassVar[float] = math.inf
    smooth: ClassVar[bool] = True

    #: Whether a response may be zero.
    zero_allowed: ClassVar[bool] = True

    @abstractmethod
    def curvature_below(self, slope: float, label: float) -> float:
        """Return the largest l'' where |l'| ≤ slope, for responses up to ``label``."""

    @abstractmethod
    def curvature(self, z: Array, y: Array) -> Array:
        """Return l''(z)."""

    def response(self, z: Array) -> Array:
        """Return the mean e^z."""
        return rate(z)

    def largest_dual(self, label: float, reach: float = 0.0) -> float:
        """Return room above the largest response, and above the largest e^z at first."""
        return _ROOM * max(label, math.exp(min(reach, _FARTHEST)))

    def largest_at(self, reach: float, label: float) -> float:
        """Return the largest l(z) for |z| ≤ reach: l is convex in z and in the response."""
        smallest = 0.0 if self.zero_allowed else SMALLEST
        y = np.array([smallest, max(label, 1.0)])
        return float(self.value(np.array([[-reach], [reach]]), y).max())

    def refused_labels(self, labels: Array) -> str:
        """Responses must not be negative, and for some losses not zero."""
        if (labels < 0).any():
            return f"has negative responses, the lowest {labels.min():g}"
        if not self.zero_allowed and (labels < SMALLEST).any():
            return "has responses of zero"
        return ""

    def dual_step(self, alpha: Array, z: Array, y: Array, q: Array | float) -> Array:
        """Return −l'(t) where t = z + q(−l'(t) − α), which is the argmax's own point."""
        alpha, z, y, q = (np.asarray(part, np.float64) for part in (alpha, z, y, q))
        shape = np.broadcast_shapes(alpha.shape, z.shape, y.shape, q.shape)
        alpha, z, y, q = (np.broadcast_to(part, shape) for part in (alpha, z, y, q))

        def excess(t: Array) -> Array:
            return t - z + q * (alpha - self.u(t, y))

        t = root_of(excess, lambda t: 1.0 + q * self.curvature(t, y), z)
        # At q = 0 t is z itself; elsewhere α follows from t without rounding of the loss.
        step = np.where(q > 0, alpha + (t - z) / np.where(q > 0, q, 1.0), self.u(t, y))
        return self.project(step, y)


#: Responses of a loss that takes none of zero are larger.
SMALLEST = 1e-20


def root_of(
    rising: Callable[[Array], Array], slope: Callable[[Array], Array], start: Array
) -> Array:
    """Return where a rising function is zero, elementwise, from a start: Newton's steps, bisected.

    Parameters
    ----------
    rising, slope : functions of an array
        The function, and its derivative.
    """
    t = np.array(start, np.float64)
    low, high = np.full(t.shape, -np.inf), np.full(t.shape, np.inf)
    reach = np.ones(t.shape)
    for _ in range(_MOST_STEPS):
        value = rising(t)
        low, high = np.where(value < 0, t, low), np.where(value > 0, t, high)
        newton = t - value / np.maximum(slope(t), 1e-300)
        bounded = np.isfinite(low) & np.isfinite(high)
        # Until the root lies between two points, no step is longer than twice the last.
        free = t + np.clip(newton - t, -reach, reach)
        middle = 0.5 * (np.where(bounded, low, 0.0) + np.where(bounded, high, 0.0))
        inside = (newton > low) & (newton < high)
        after = np.where(bounded, np.where(inside, newton, middle), free)
        after = np.where(value == 0, t, after)
        reach *= 2.0
        if (np.abs(after - t) <= 1e-15 * (1.0 + np.abs(t))).all():
            return after
        t = after
    return t
