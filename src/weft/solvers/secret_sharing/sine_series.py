"""The slope of the logistic loss as a sum of sines, σ(z) − ½ ≈ Σ b_k sin(ω_k z) on |z| ≤ τ.

Frequencies are free, which takes a third of the terms that harmonics need; they lie on the grid of
multiples of 2π/2^18 on which they close in the ring (`SCORE_BITS` binary digits behind the point).
The loss is the integral of the same terms, which
`weft.solvers.secret_sharing.logistic_sine_series_table` lists.
Errors are bounded on a grid when a series is first used (`Series.slope_error`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from weft.array_types import Floats
from weft.crypto.primitives.seeded_words import Words
from weft.solvers.secret_sharing.logistic_sine_series_table import TERMS
from weft.solvers.secret_sharing.masked_sine_kernels import SINE_ERROR

#: Binary digits of a score behind the point: it lies within ±2^17.
SCORE_BITS = 46
#: Points at which the errors are measured: so far apart, and so many at most.
_STEP, _MOST_POINTS = 1.2e-3, 40_001


#: The slowest terms of a loss are by far the largest: they are dealt apart, in more digits.
LOSS_TERMS = 2
#: Terms of the alarm, Σ sin⁸(πz/P).
ALARM_TERMS = 4


def alarm_multiples(period: int) -> Words:
    """Frequencies of the eighth power of a sine of that period, a power of two."""
    step = np.uint64((1 << (64 - SCORE_BITS)) // period)
    return np.arange(1, ALARM_TERMS + 1, dtype=np.uint64) * step


@dataclass(frozen=True)
class Series:
    """Terms that hold for scores within ±``reach``."""

    reach: float
    multiples: tuple[int, ...]
    sines: tuple[float, ...]

    @property
    def terms(self) -> int:
        return len(self.multiples)

    @cached_property
    def words(self) -> Words:
        """The frequencies, as multiples of 2π/2^64 of the masked words."""
        return np.array(self.multiples, np.uint64)

    @cached_property
    def frequencies(self) -> Floats:
        return np.array(self.multiples) * (2.0 * np.pi / 2.0 ** (64 - SCORE_BITS))

    @cached_property
    def odd(self) -> Floats:
        """b_k: the slope is Σ b_k sin(ω_k z)."""
        return np.array(self.sines)

    @cached_property
    def even(self) -> Floats:
        """a_k: the loss log 2cosh(z/2) is its level and Σ a_k cos(ω_k z)."""
        return -self.odd / self.frequencies

    @cached_property
    def level(self) -> float:
        """The middle of what the cosines leave of the loss."""
        left = self._loss_left
        return float(0.5 * (left.max() + left.min()))

    @cached_property
    def slope_error(self) -> float:
        """How far the slope may be off, for any score in reach."""
        z = self._grid
        off = np.abs(
            np.sin(np.outer(z, self.frequencies)) @ self.odd - (scipy.special.expit(z) - 0.5)
        ).max()
        between = self._between(float(np.abs(self.odd) @ self.frequencies**2) + 0.1)
        return float(off + between) + _rounding(self.odd)

    @cached_property
    def loss_error(self) -> float:
        """How far a loss may be off, for any score in reach."""
        left = self._loss_left
        between = self._between(float(np.abs(self.even) @ self.frequencies**2) + 0.25)
        return float(0.5 * (left.max() - left.min())) + between + _rounding(self.even)

    @property
    def _grid(self) -> Floats:
        # Both functions are odd or even.
        return np.linspace(0.0, self.reach, self._points)

    @property
    def _points(self) -> int:
        return min(math.ceil(self.reach / _STEP) + 1, _MOST_POINTS)

    @cached_property
    def _loss_left(self) -> Floats:
        z = self._grid
        return np.logaddexp(z / 2, -z / 2) - np.cos(np.outer(z, self.frequencies)) @ self.even

    def _between(self, curvature: float) -> float:
        """What a function of that curvature may add between two points of the grid."""
        return curvature * (self.reach / (self._points - 1)) ** 2 / 8.0


def _rounding(factors: Floats) -> float:
    """What sines of opened and of dealt words add to a sum, each off by as much as they may be."""
    return float(4 * SINE_ERROR * np.abs(factors).sum())


#: By reach, the shortest first: a run takes the next where scores come too near to the end.
SERIES = tuple(
    Series(reach, tuple(map(int, multiples.split())), tuple(map(float, factors.split())))
    for reach, multiples, factors in TERMS
)
