"""Counts: the Poisson distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from weft.losses.base import Array
from weft.losses.log_link import LogLinkLoss, area, rate


@dataclass(frozen=True)
class Poisson(LogLinkLoss):
    """Half the Poisson deviance, l(z) = e^z − yz + y log y − y; its dual domain is α ≤ y."""

    name: ClassVar[str] = "poisson"

    def value(self, z: Array, y: Array) -> Array:
        """Return e^z − yz + y log y − y."""
        return np.maximum(area(z) - y * z + (scipy.special.xlogy(y, y) - y), 0.0)

    def conjugate_inside(self, a: Array, y: Array) -> Array:
        """Return m log m − m − y log y + y with m = y − a, the mean that a belongs to."""
        mean = np.maximum(y - a, 0.0)
        return np.asarray(
            scipy.special.xlogy(mean, mean) - mean - scipy.special.xlogy(y, y) + y, dtype=np.float64
        )

    def u(self, z: Array, y: Array) -> Array:
        """Return y − e^z."""
        return y - rate(z)

    def curvature(self, z: Array, y: Array) -> Array:
        """Return e^z."""
        return rate(z) + 0.0 * y

    def curvature_below(self, slope: float, label: float) -> float:
        """Return slope + label: e^z = y + l'(z)."""
        return slope + label

    def project(self, alpha: Array, y: Array) -> Array:
        """Return min(α, y)."""
        return np.minimum(alpha, y)
