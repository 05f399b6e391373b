"""Binary digits where samples weigh differently, and how far that puts results off.

A weight ω is a whole multiple of a unit, so that the largest has `WEIGHT_DIGITS` digits. Products
ω·slope and ω·loss are made row by row in as many digits as 64 bits hold, and are cut before they
are added up. Rounding of ω moves every loss by no more than a share of itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from weft.array_types import Floats
from weft.crypto.primitives.seeded_words import Words
from weft.errors import ConfigError
from weft.solvers.secret_sharing.sine_series import LOSS_TERMS, SCORE_BITS, Series
from weft.solvers.secret_sharing.table_product_kernels import encoded

#: What is dealt times the masks of weights is drawn under names of its own.
TIMES_MASKS = " times masks"
#: Binary digits of the largest weight; of a Poisson loss, whose products need more themselves.
WEIGHT_DIGITS, COUNT_WEIGHT_DIGITS = 22, 18
#: Weights below this part of the largest would have too few.
_LEAST_SHARE = 2.0**-12
#: Bits that scores of a squared loss have before the point, with their sign.
_SCORE_ROOM = 15
#: Digits that a product may have: it is cut exactly.
_MOST_DIGITS = 61
#: Noise in a mean loss, where all samples weigh one.
LOSS_NOISE = 1e-7
#: Digits of a total of losses.
_MOST_TOTAL = 48


@dataclass(frozen=True)
class ProductDigits:
    """Digits of slopes and losses before they are weighed, and of dealt sines and cosines.

    Attributes
    ----------
    slope, loss
        Behind the point.
    dealt, slow
        Of what is dealt for all terms, and apart for the slowest ones of a loss.
    """

    slope: int
    loss: int
    dealt: int
    slow: int

    def slope_variance(self, series: Series) -> float:
        """By dithered rounding of factors, of a slope."""
        size = float(series.odd @ series.odd)
        return (size * 4.0**-self.dealt + series.terms * 4.0 ** (self.dealt - self.slope)) / 4

    def loss_variance(self, series: Series) -> float:
        """Four times that of a loss."""
        slow, fast = series.even[:LOSS_TERMS], series.even[LOSS_TERMS:]
        variance = float(fast @ fast) * 4.0**-self.dealt
        variance += series.terms * 4.0 ** (self.dealt - self.loss)
        variance += float(slow @ slow) * 4.0**-self.slow
        return variance + LOSS_TERMS * 4.0 ** (self.slow - self.loss)


@dataclass(frozen=True)
class Weighing:
    """What all know of the weights.

    Attributes
    ----------
    most
        No weight is larger.
    rounding
        No weight is rounded by a larger share of itself; parties need not know it.
    size
        Above √(1/N Σω²); nor this.
    digits
        Binary digits of the largest.
    """

    most: float
    rounding: float = 0.0
    size: float = 1.0
    digits: int = WEIGHT_DIGITS

    @property
    def _above(self) -> int:
        """The power of two above all weights."""
        return math.ceil(math.log2(self.most))

    @property
    def bits(self) -> int:
        """Binary digits of weights behind the point."""
        return self.digits - self._above

    def words(self, weights: Floats) -> Words:
        return encoded(weights, self.bits)

    # ── digits ────────────────────────────────────────────────────────────────────────────

    @property
    def score(self) -> int:
        """Of scores of a squared loss before they are weighed."""
        return _MOST_DIGITS - WEIGHT_DIGITS - _SCORE_ROOM

    @property
    def score_cut(self) -> int:
        """What is cut off scores before that."""
        return SCORE_BITS - self.score

    def products(self, series: Series) -> ProductDigits:
        """Slopes are below one, losses below that at the end of the series."""
        room = _MOST_DIGITS - WEIGHT_DIGITS
        slope = room - 1
        loss = room - math.ceil(math.log2(0.5 * series.reach + 1.5))
        apart = math.log2(series.terms / float(series.odd @ series.odd)) / 2
        size = float(np.linalg.norm(series.even[:LOSS_TERMS])) / math.sqrt(LOSS_TERMS)
        slow = round((loss + math.log2(size)) / 2)
        return ProductDigits(slope, loss, round((slope - apart) / 2), slow)

    def slope_cut(self, series: Series | None, slope: int) -> int:
        """Digits that are cut off a weighed slope, to leave so many."""
        before = self.score if series is None else self.products(series).slope
        return self.bits + before - slope

    def total(self, rows: int, series: Series) -> int:
        """Digits of losses with which their total over so many rows does not wrap."""
        largest = rows * (0.5 * series.reach + 1.5)
        room = _MOST_DIGITS - math.ceil(math.log2(largest)) - self._above
        return min(_MOST_TOTAL, room, self.bits + self.products(series).loss - 1)

    def loss_cut(self, rows: int, series: Series) -> int:
        return self.bits + self.products(series).loss - self.total(rows, series)

    def noise(self, rows: int, series: Series) -> int:
        """Noise of each party in a total of losses is even within ±2^(this − 1) units."""
        unit = 2.0 ** self.total(rows, series)
        return max(1, math.ceil(math.log2(LOSS_NOISE * self.most * rows * unit)))

    # ── errors ────────────────────────────────────────────────────────────────────────────

    def slopes(self, series: Series | None, slope: int) -> tuple[float, float, float]:
        """Of ω·slope: how far they may be off in square mean, the variance of one, how it bends.

        Cutting counts for one unit, and labels are rounded.
        """
        cut = 1.5 * 2.0**-slope
        if series is None:
            return self.size * 2.0**-self.score + cut, 0.0, self.most
        digits = self.products(series)
        off = series.slope_error + 2 * series.terms * 2.0**-digits.slope
        return self.size * off + cut, self.most**2 * digits.slope_variance(series), self.most / 4

    def loss_noise(self, rows: int, series: Series, parties: int, tail: float) -> float:
        """Of a total of losses, what differs from point to point: dithered rounding, and noise."""
        digits, unit = self.products(series), 2.0 ** -self.total(rows, series)
        shaken = self.size * math.sqrt(tail * digits.loss_variance(series) * rows)
        whole = self.size * 2 * series.terms * rows * 2.0**-digits.loss
        noise = parties * 2.0 ** (self.noise(rows, series) - 1)
        return shaken + whole + (2 * rows + noise) * unit


def told_of_weights(weights: Floats, weighing: Weighing) -> list[float]:
    """The square of the largest share of itself by which a weight is rounded, and Σω².

    Neither is zero: whoever has totals over parties knows whether samples weigh differently.
    """
    if weights.min(initial=np.inf) < _LEAST_SHARE * weighing.most:
        raise ConfigError(
            "has a weight below a 4,096th of the largest that there is, too little for sealed "
            "training; make weights less uneven, leave such samples out, or use mode = 'sums'"
        )
    moved = np.abs(np.rint(weights * 2.0**weighing.bits) * 2.0**-weighing.bits - weights)
    largest = max(float((moved / weights).max(initial=0.0)), 2.0**-40)
    return [largest**2, float((weights**2).sum())]
