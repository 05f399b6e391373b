"""The curvature of the logistic loss as a sum of cosines, for Hessians: σ'(z) on |z| ≤ τ.

The derivative of the series for the slope is off by 1e-5 and more, where most σ'(z) of a good model
are as small. σ' itself falls off like e^−|z| and so do its frequencies, F(ω) = πω/sinh(πω): summed
up with a period P it is 1/P + Σ 2/P F(ω_k) cos(ω_k z) at the harmonics of P, exactly, and copies at
a distance of P − τ are far enough away. Frequencies are multiples of 2π/2^18, as for all series.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import cached_property

import numpy as np

from weft.array_types import Floats
from weft.crypto.primitives.seeded_words import Words
from weft.solvers.sealed.masked_sine_kernels import SINE_ERROR
from weft.solvers.sealed.sine_series import SCORE_BITS, SERIES

#: Scores that copies are away at least, and the frequency up to which there are terms.
_APART, _HIGHEST = 18.0, 6.3
_PI = Decimal("3.1415926535897932384626433832795028841971693993751")
_GRID = 1 << (64 - SCORE_BITS)


@dataclass(frozen=True)
class CurvatureSeries:
    """Terms that hold for scores within ±``reach``."""

    reach: float

    @cached_property
    def _multiple(self) -> int:
        """Of the first harmonic."""
        return math.floor(_GRID / (self.reach + _APART))

    @cached_property
    def terms(self) -> int:
        return math.ceil(_HIGHEST / (2.0 * np.pi / _GRID * self._multiple))

    @cached_property
    def words(self) -> Words:
        """The frequencies, as multiples of 2π/2^64 of the masked words."""
        return np.arange(1, self.terms + 1, dtype=np.uint64) * np.uint64(self._multiple)

    @property
    def level(self) -> float:
        """1/P, which is public."""
        return self._multiple / _GRID

    @cached_property
    def factors(self) -> Floats:
        """Of cosines: the same bits on every machine, since all parties must round alike."""
        with localcontext(Context(prec=40)):
            step = 2 * _PI * _PI * self._multiple / _GRID
            angles = [step * k for k in range(1, self.terms + 1)]
            twice_sinh = [angle.exp() - (-angle).exp() for angle in angles]
            level = Decimal(self._multiple) / _GRID
            pairs = zip(angles, twice_sinh, strict=True)
            return np.array([float(4 * level * angle / sinh) for angle, sinh in pairs])

    @cached_property
    def error(self) -> float:
        """How far the curvature may be off, for any score in reach: copies, terms left out."""
        # All copies on either side, of e^−|z| each.
        copies = 2.0 * math.exp(self.reach - 1.0 / self.level) / (1.0 - math.exp(-_APART))
        more = np.arange(self.terms + 1, 40 * self.terms)
        angle = np.pi * 2.0 * np.pi * self.level * more
        left_out = float((2.0 * self.level * 2.0 * angle * np.exp(-angle)).sum()) * 1.001
        return copies + left_out + float(4 * SINE_ERROR * np.abs(self.factors).sum())

    def at(self, scores: Floats) -> Floats:
        """The sum itself."""
        frequencies = np.arange(1, self.terms + 1) * (2.0 * np.pi * self.level)
        return np.asarray(self.level + np.cos(np.outer(scores, frequencies)) @ self.factors)


#: By level, as the series for slopes.
CURVATURES = tuple(CurvatureSeries(series.reach) for series in SERIES)
