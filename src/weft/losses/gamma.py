"""Positive amounts: the gamma distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from weft.losses.base import Array
from weft.losses.log_link import LogLinkLoss, area, rate


@dataclass(frozen=True)
class Gamma(LogLinkLoss):
    """Half the gamma deviance, l(z) = y e^{−z} + z − log y − 1; its dual domain is α ≥ −1."""

    name: ClassVar[str] = "gamma"
    zero_allowed: ClassVar[bool] = False

    def value(self, z: Array, y: Array) -> Array:
        """Return y e^{−z} + z − log y − 1."""
        return np.maximum(y * area(-z) + z - np.log(y) - 1.0, 0.0)

    def conjugate_inside(self, a: Array, y: Array) -> Array:
        """Return p log(p/y) − p + log y + 1 with p = 1 + a."""
        share = np.maximum(1.0 + a, 0.0)
        return np.asarray(
            scipy.special.xlogy(share, share / y) - share + np.log(y) + 1.0, dtype=np.float64
        )

    def u(self, z: Array, y: Array) -> Array:
        """Return y e^{−z} − 1."""
        return y * rate(-z) - 1.0

    def curvature(self, z: Array, y: Array) -> Array:
        """Return y e^{−z}."""
        return y * rate(-z)

    def curvature_below(self, slope: float, label: float) -> float:
        """Return slope + 1: y e^{−z} = 1 − l'(z)."""
        return slope + 1.0

    def project(self, alpha: Array, y: Array) -> Array:
        """Return max(α, −1)."""
        return np.maximum(alpha, -1.0) + 0.0 * y
