"""Counts that vary more than Poisson's: the negative binomial distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from weft.losses.base import Array, check_parameter
from weft.losses.log_link import LogLinkLoss


@dataclass(frozen=True)
class NegativeBinomial(LogLinkLoss):
    """Half the negative binomial deviance of a given dispersion θ, with k = 1/θ.

    l(z) = (y + k) log((k + e^z)/(k + y)) − yz + y log y; its dual domain is −k ≤ α ≤ y.

    Parameters
    ----------
    dispersion : float, default 1.0
        θ of the variance μ + θμ², above zero: statsmodels' ``alpha``.
    """

    dispersion: float = 1.0

    name: ClassVar[str] = "negative_binomial"

    def __post_init__(self) -> None:
        check_parameter(self.name, "dispersion", self.dispersion, zero_allowed=False)

    @property
    def _k(self) -> float:
        return 1.0 / self.dispersion

    def value(self, z: Array, y: Array) -> Array:
        """Return l(z), without overflow."""
        k = self._k
        fitted = (y + k) * (np.logaddexp(z, math.log(k)) - np.log(y + k)) - y * z
        return np.asarray(np.maximum(fitted + scipy.special.xlogy(y, y), 0.0), dtype=np.float64)

    def conjugate_inside(self, a: Array, y: Array) -> Array:
        """Return (y + k)(p log p + (1 − p) log(1 − p)) + …, with p = (y − a)/(y + k)."""
        k = self._k
        n = y + k
        p = np.clip((y - a) / n, 0.0, 1.0)
        entropy = scipy.special.xlogy(p, p) + scipy.special.xlog1py(1.0 - p, -p)
        constant = n * (np.log(n) - math.log(k) * (1.0 - p)) - scipy.special.xlogy(y, y)
        return np.asarray(n * entropy + constant, dtype=np.float64)

    def u(self, z: Array, y: Array) -> Array:
        """Return y − (y + k) e^z/(k + e^z)."""
        return y - (y + self._k) * np.asarray(scipy.special.expit(z - math.log(self._k)))

    def curvature(self, z: Array, y: Array) -> Array:
        """Return (y + k) σ(1 − σ), with σ = e^z/(k + e^z)."""
        share = np.asarray(scipy.special.expit(z - math.log(self._k)))
        return (y + self._k) * share * (1.0 - share)

    def curvature_below(self, slope: float, label: float) -> float:
        """Return (label + k)/4, whatever the slope."""
        return 0.25 * (label + self._k)

    def largest_dual(self, label: float, reach: float = 0.0) -> float:
        """Return max(label, k), the ends of the domain."""
        return max(label, self._k)

    def project(self, alpha: Array, y: Array) -> Array:
        """Return clip(α, −k, y)."""
        return np.clip(alpha, -self._k, y)
