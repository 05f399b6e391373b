"""Amounts that are often zero: Tweedie's compound of Poisson and gamma."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from weft.errors import ConfigError
from weft.losses.base import Array
from weft.losses.log_link import LogLinkLoss, area, rate, root_of


@dataclass(frozen=True)
class Tweedie(LogLinkLoss):
    """Half the Tweedie deviance of a power p between 1 (Poisson) and 2 (gamma).

    l(z) = e^{(2−p)z}/(2−p) + y e^{(1−p)z}/(p−1) − y^{2−p}/((p−1)(2−p)); all α are in its dual
    domain, but where y = 0 only α ≤ 0.

    Parameters
    ----------
    power : float, default 1.5
        The variance grows with this power of the mean; above 1 and below 2.
    """

    power: float = 1.5

    name: ClassVar[str] = "tweedie"

    def __post_init__(self) -> None:
        if not 1.0 < self.power < 2.0:
            raise ConfigError(
                f'parameter "power" of loss "tweedie" is {self.power!r}; set it to a number '
                "between 1 and 2, such as 1.5, or use poisson or gamma"
            )

    def value(self, z: Array, y: Array) -> Array:
        """Return l(z)."""
        return np.maximum(self._unclipped(z, y), 0.0)

    def conjugate_inside(self, a: Array, y: Array) -> Array:
        """Return −a t − l(t) with t where −l'(t) = a."""
        a, y = (np.asarray(part, np.float64) for part in np.broadcast_arrays(a, y))
        # Without a response e^{(2−p)t} = −a; t goes to −∞ with a, and a·t to zero.
        plain = np.log(np.maximum(-a, 1e-300)) / (2.0 - self.power)
        t = np.where(y > 0, self._point(a, np.where(y > 0, y, 1.0)), plain)
        return np.where((y > 0) | (a < 0), -a * t - self._unclipped(t, y), 0.0)

    def _point(self, a: Array, y: Array) -> Array:
        """Where −l' is a, for y > 0: the two terms of −l' and a, on logarithms, which are nearly
        straight lines."""
        up, down, size = 2.0 - self.power, self.power - 1.0, np.log(y)
        with np.errstate(divide="ignore"):
            log_a = np.log(np.abs(a))

        def rising(t: Array) -> Array:
            fall, rise = size - down * t, up * t
            above = np.logaddexp(np.where(a > 0, rise, fall), log_a)
            gap: Array = np.where(a > 0, above - fall, rise - above)
            return gap

        def slope(t: Array) -> Array:
            moving = np.where(a > 0, up * t, size - down * t)
            share = np.exp(moving - np.logaddexp(moving, log_a))
            steep: Array = np.where(a > 0, down + up * share, up + down * share)
            return steep

        return root_of(rising, slope, size)

    def _unclipped(self, t: Array, y: Array) -> Array:
        up, down = 2.0 - self.power, self.power - 1.0
        value: Array = area(up * t) / up + y * area(-down * t) / down - y**up / (up * down)
        return value

    def u(self, z: Array, y: Array) -> Array:
        """Return y e^{(1−p)z} − e^{(2−p)z}."""
        return y * rate((1.0 - self.power) * z) - rate((2.0 - self.power) * z)

    def curvature(self, z: Array, y: Array) -> Array:
        """Return (p − 1) y e^{(1−p)z} + (2 − p) e^{(2−p)z}."""
        up, down = 2.0 - self.power, self.power - 1.0
        return down * y * rate(-down * z) + up * rate(up * z)

    def curvature_below(self, slope: float, label: float) -> float:
        """Return slope + the two terms of −l' where they are equal, which is y^{2−p}."""
        return float(slope + max(label, 1.0) ** (2.0 - self.power))

    def project(self, alpha: Array, y: Array) -> Array:
        """Return α, but at most 0 where y = 0."""
        return np.where(y > 0, alpha, np.minimum(alpha, 0.0))
