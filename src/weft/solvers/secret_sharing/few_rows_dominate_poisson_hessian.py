"""Whether a few rows have nearly all of a Poisson model's Hessian, in which each has e^z.

Of a logistic model no row has more than a quarter, so that the sum of all counts rows. A mean e^z
may be of any size: the sum of all would be that of the largest, and tell it. So means are compared
with two caps c < C, by functions of a score that are never above one:

- σ(z − log c) = e^z/(e^z + c) is at most min(e^z, c)/c. If it adds up to n, rows have nc of the
  Hessian together, to which none has added more than c: n rows have a part in it, at least.
- σ(12(z − log C) + 3.24) is nearly one if e^z is above C. If it adds up to less, no row has more
  than C, and so no more than a share C/(nc) of all. It begins to rise below C, so that noise of
  half a row may be in it: with less, whoever brings a sample near C would read its score.

Caps are chosen for the fewest rows that must do: for m rows of the usual mean, of which k must have
a part, c is m/(2k) of these means and C is m/(4√k), so that no row has more than 1/(2√k) of all: as
much as (Σe^z)²/Σe^2z ≥ 4k would leave to one. Whatever the usual mean is, that much is sure. Nor is
C ever above 32 of these means. A row that is far off in its columns, too, would have most of some
combination of them: so a party refuses, beforehand, columns of which a row has more than 1/(1 + C)
of one, and where others have the usual mean, no row has more than half with its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from weft.array_types import Floats
from weft.crypto.primitives.seeded_words import Words
from weft.solvers.secret_sharing.coalition_knowledge import ROWS_PER_NUMBER
from weft.solvers.secret_sharing.curvature_series import CurvatureSeries
from weft.solvers.secret_sharing.exponential_fourier_series import ExponentialSeries
from weft.solvers.secret_sharing.second_moment_guard import row_groups
from weft.solvers.secret_sharing.table_positions import WholeTable

#: How steeply scores beyond the upper cap count, and how far below it they are at half of that.
_STEEP, _BELOW = 12, 0.27
#: Copies of a series are so far away, and its frequencies end there: off by 1e-7.
_APART, _HIGHEST = 18.0, 5.5
#: Digits that counts need at most.
_MOST_DIGITS = 44
#: Noise of each party in a count, in rows; that of all of them in the count beyond the upper cap.
_NOISE, _FINE_NOISE = 2, 1 / 2
#: The upper cap at most, in usual means.
_HIGHEST_CAP = 32.0
#: Two counts, by what their dealt numbers are called.
BROAD, STEEP = "broad", "steep"


@dataclass(frozen=True)
class CountDigits:
    """Binary digits of a total over all rows, and of dealt sines and cosines."""

    total: int
    dealt: int

    @property
    def public(self) -> int:
        return self.total - self.dealt


@dataclass(frozen=True)
class MeanCount:
    """Σ σ(s(z − t)) − ½ as a series, for scores and thresholds t within ±``reach``."""

    reach: float
    steepness: int

    @property
    def series(self) -> CurvatureSeries:
        return _series_for((2 * self.reach + 1) * self.steepness)

    @property
    def words(self) -> Words:
        """Frequencies: those of the series, times the steepness."""
        found: Words = self.series.words * self.series.words.dtype.type(self.steepness)
        return found

    @property
    def factors(self) -> Floats:
        return self.series.slope_factors

    def digits(self, rows: int) -> CountDigits:
        total = min(_MOST_DIGITS, 60 - math.ceil(math.log2(rows + 1)))
        return CountDigits(total, total // 2)

    def noise(self, rows: int, parties: int) -> int:
        """Noise of each party is even within ±2^(this − 1) units."""
        if self.steepness == 1:
            return self.digits(rows).total + 1 + round(math.log2(_NOISE))
        each = _FINE_NOISE / parties
        return self.digits(rows).total + 1 + math.floor(math.log2(each))

    def error(self, rows: int) -> float:
        """How far a total over all rows may be off, beside noise: by six deviations of rounding."""
        digits, factors = self.digits(rows), self.factors
        rounded = float(factors @ factors) * 4.0**-digits.dealt
        rounded += len(factors) * 4.0**-digits.public
        whole = rows * (self.series.slope_error + 4 * len(factors) * 2.0**-digits.total)
        return whole + 6 * math.sqrt(rows * rounded / 4)


@cache
def _series_for(reach: float) -> CurvatureSeries:
    return CurvatureSeries(reach, _APART, _HIGHEST)


def mean_counts(reach: float) -> dict[str, MeanCount]:
    """Of scores within that reach of the centre, by name."""
    return {BROAD: MeanCount(reach, 1), STEEP: MeanCount(reach, _STEEP)}


@dataclass(frozen=True)
class MeanCaps:
    """log c and log C, as scores from the centre of a series."""

    low: float
    high: float

    @classmethod
    def of(cls, table: WholeTable, least: int, series: ExponentialSeries) -> MeanCaps:
        """For all rows that entries of a Hessian are about; ``least`` is ``min_batch`` of all."""
        fewest, needed = _rows(table, least)
        low, high = math.log(fewest / (2 * needed)), math.log(upper_cap(table, least))
        # Beyond the reach of the series there is no score.
        most = series.reach + 1
        return cls(max(-series.reach, min(low, most)), max(-series.reach, min(high, most)))

    def of_count(self, name: str) -> float:
        """The score at which a row is at half of what it can add."""
        return self.low if name == BROAD else self.high - _BELOW

    def rows_alike(self, count: float) -> float:
        """How many rows have a part where the lower cap goes into means so often, at least.

        A group whose readers have few columns needs fewer rows than caps were chosen for, and one
        row could have more than 1/(2√k) of the few: so these k are counted by the share C/(nc).
        """
        parts = max(count, 0.0)
        return min(parts, (0.5 * parts * math.exp(self.low - self.high)) ** 2)


def upper_cap(table: WholeTable, least: int) -> float:
    """C, in usual means."""
    fewest, needed = _rows(table, least)
    return min(fewest / (4 * math.sqrt(needed)), _HIGHEST_CAP)


def _rows(table: WholeTable, least: int) -> tuple[int, int]:
    """The fewest rows that entries are about, and how many of them must have a part."""
    fewest = min(len(rows) for rows in row_groups(table))
    return fewest, ROWS_PER_NUMBER * max(table.n_columns, least)


def surely(told: float, rows: int, parties: int, reach: float) -> float:
    """The count of means at the lower cap over so many rows, at least, of which this was told."""
    return told - _NOISE * parties - mean_counts(reach)[BROAD].error(rows)


def is_beyond(told: float, rows: int, reach: float) -> bool:
    """Whether some mean may be above the upper cap, by what was told of the count beyond it."""
    off = mean_counts(reach)[STEEP].error(rows)
    at_cap = 1.0 / (1.0 + math.exp(-_STEEP * _BELOW))
    return told >= at_cap - _FINE_NOISE - off
