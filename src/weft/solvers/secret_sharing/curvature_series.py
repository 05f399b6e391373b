"""Curvature and slope of the logistic loss at a released model: σ'(z) and σ(z) − ½ on |z| ≤ τ.

The series that training uses is off by 1e-6 in the slope and by 1e-5 and more in its derivative,
where most σ'(z) of a good model are as small. σ' itself falls off like e^−|z| and so do its
frequencies, F(ω) = πω/sinh(πω). Copies of it at all multiples of P, of one sign and the other in
turn, add up to Σ 2/P F(ω_k) cos(ω_k z) at odd multiples ω_k of π/P, exactly; they are far enough
away at a distance of P − τ. The integral Σ 2/P F(ω_k)/ω_k sin(ω_k z) is σ(z) − ½ and as exact, so
that the same dealt numbers serve for both. Frequencies are multiples of 2π/2^18, as for all series.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import cached_property

import numpy as np

from weft.array_types import Floats
from weft.crypto.primitives.seeded_words import Words
from weft.solvers.secret_sharing.masked_sine_kernels import SINE_ERROR
from weft.solvers.secret_sharing.sine_series import SCORE_BITS, SERIES

_PI = Decimal("3.1415926535897932384626433832795028841971693993751")
_GRID = 1 << (64 - SCORE_BITS)


@dataclass(frozen=True)
class CurvatureSeries:
    """Terms that hold for scores within ±``reach``.

    Attributes
    ----------
    apart, highest
        Scores that copies are away at least, and the frequency up to which there are terms.
    """

    reach: float
    apart: float = 24.0
    highest: float = 8.2

    @cached_property
    def _multiple(self) -> int:
        """Of the first frequency, π/P; the others are odd multiples of it."""
        return math.floor(_GRID / (2 * (self.reach + self.apart)))

    @cached_property
    def terms(self) -> int:
        return math.ceil(self.highest / (4.0 * np.pi / _GRID * self._multiple))

    @cached_property
    def words(self) -> Words:
        """The frequencies, as multiples of 2π/2^64 of the masked words."""
        odd = np.arange(1, 2 * self.terms, 2, dtype=np.uint64)
        return odd * np.uint64(self._multiple)

    @property
    def _density(self) -> float:
        """1/P."""
        return 2.0 * self._multiple / _GRID

    @cached_property
    def factors(self) -> Floats:
        """Of cosines: the same bits on every machine, since all parties must round alike."""
        return np.array([float(each) for each, _ in self._both])

    @cached_property
    def slope_factors(self) -> Floats:
        """Of sines, in the integral."""
        return np.array([float(each) for _, each in self._both])

    @cached_property
    def _both(self) -> list[tuple[Decimal, Decimal]]:
        with localcontext(Context(prec=40)):
            step = 2 * _PI * self._multiple / _GRID
            density, found = 2 * Decimal(self._multiple) / _GRID, []
            for k in range(1, 2 * self.terms, 2):
                frequency = step * k
                angle = _PI * frequency
                factor = 4 * density * angle / (angle.exp() - (-angle).exp())
                found.append((factor, factor / frequency))
            return found

    @cached_property
    def error(self) -> float:
        """How far the curvature may be off, for any score in reach: copies, terms left out."""
        # All copies on either side, of e^−|z| each.
        return self._copies + self._left_out(1.0) + self._computed(self.factors)

    @cached_property
    def slope_error(self) -> float:
        """The same of the slope, whose copies are of 1 − σ(|z|) ≤ e^−|z| each."""
        lowest = np.pi * self._density * (2 * self.terms + 1)
        return self._copies + self._left_out(lowest) + self._computed(self.slope_factors)

    @property
    def _copies(self) -> float:
        return 2.0 * math.exp(self.reach - 1.0 / self._density) / (1.0 - math.exp(-self.apart))

    def _left_out(self, lowest: float) -> float:
        more = np.arange(2 * self.terms + 1, 80 * self.terms, 2)
        angle = np.pi * np.pi * self._density * more
        terms = 2.0 * self._density * 2.0 * angle * np.exp(-angle)
        return float(terms.sum()) * 1.001 / lowest

    @staticmethod
    def _computed(factors: Floats) -> float:
        return float(4 * SINE_ERROR * np.abs(factors).sum())

    @property
    def _frequencies(self) -> Floats:
        return np.arange(1, 2 * self.terms, 2, dtype=float) * (np.pi * self._density)

    def at(self, scores: Floats) -> Floats:
        """The curvature itself."""
        return np.asarray(np.cos(np.outer(scores, self._frequencies)) @ self.factors)

    def slope_at(self, scores: Floats) -> Floats:
        """The slope itself."""
        return np.asarray(np.sin(np.outer(scores, self._frequencies)) @ self.slope_factors)


#: By level, as the series for slopes.
CURVATURES = tuple(CurvatureSeries(series.reach) for series in SERIES)
