"""Digits of second moments, noise in what guards and readers get of them, and how far they are off.

Curvatures, σ' or e^z, are made row by row in as many digits as 64 bits hold, and cut twice: to
those that have room in products with two cells, and to more, which are multiplied apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from weft.array_types import Floats
from weft.crypto.primitives.seeded_words import Words
from weft.errors import ConfigError
from weft.solvers.secret_sharing.curvature_series import CurvatureSeries
from weft.solvers.secret_sharing.digit_widths import CELL_BITS, CHANCE, Errors, TableBounds, Widths
from weft.solvers.secret_sharing.exponential_fourier_series import ExponentialSeries
from weft.solvers.secret_sharing.sample_weight_digit_widths import (
    LOSS_NOISE,
    WEIGHT_DIGITS,
    Weighing,
)

#: Binary digits that curvatures must have at least, and those that are of any use.
FEWEST_BENDS, MOST_BENDS = 8, 40
#: Binary digits of curvatures before they are cut, and of slopes that are dealt with them.
_BEND_DIGITS = 60
#: Noise of each party in an entry of a gradient that readers get, by the root of all rows: it
#: leaves weights uncertain by a millionth of what samples do, and hides what exact sums of whole
#: numbers would tell.
_GRADIENT_NOISE = -24
#: Noise of each party in Σ log y! of counts is even within ±2^(this − 1).
FACTORIAL_NOISE = -5
_TOO_LARGE = (
    "products of these columns are too large for second moments in 64 bits; scale the columns "
    "(scaling = 'standard'), or leave second_moments out"
)


def gram_error(bounds: TableBounds, holders: int) -> float:
    """How far an entry of XᵀX may be off; tables whose products wrap are refused.

    ``holders`` is the most parties that hold one cell: each rounds its part.
    """
    if bounds.column_norm**2 >= 2.0 ** (62 - 2 * CELL_BITS):
        raise ConfigError(_TOO_LARGE)
    off = holders * math.sqrt(bounds.rows) * 2.0 ** -(CELL_BITS + 1)
    return 2 * bounds.column_norm * off + off**2


@dataclass(frozen=True)
class BendDigits:
    """Binary digits of curvatures before they are cut.

    Attributes
    ----------
    total
        Of a curvature.
    dealt
        Of dealt sines and cosines; factors from opened words have the rest.
    """

    total: int
    dealt: int

    @property
    def public(self) -> int:
        return self.total - self.dealt

    def rounding(self, factors: Floats) -> float:
        """The variance that dithered rounding gives a sum with these factors."""
        size = float(factors @ factors)
        return (size * 4.0**-self.dealt + len(factors) * 4.0**-self.public) / 4


def bend_digits(series: CurvatureSeries, weighing: Weighing | None) -> BendDigits:
    """Of curvatures, and of slopes with them, see `Widths.dealt`; weights take their own."""
    total = _BEND_DIGITS - (0 if weighing is None else WEIGHT_DIGITS)
    apart = math.log2(series.terms / float(series.factors @ series.factors)) / 2
    return BendDigits(total, round((total - apart) / 2))


def bend_width(bounds: TableBounds) -> int:
    """Leading binary digits of curvatures with which Xᵀ diag(σ') X does not wrap."""
    largest = 0.26 * bounds.most_weight * bounds.column_norm**2 + 1.0
    width = 61 - 2 * CELL_BITS - math.ceil(math.log2(largest))
    if width < FEWEST_BENDS:
        raise ConfigError(_TOO_LARGE)
    return width


def weight_width(bounds: TableBounds) -> int:
    """The same of weights of samples, which are four times as large as curvatures with them."""
    width = bend_width(bounds) - 2
    if width < FEWEST_BENDS:
        raise ConfigError(_TOO_LARGE)
    return width


def split_weights(words: Words, weighing: Weighing, width: int, rest: int) -> Words:
    """Leading digits of one's own weights, and those that follow; (2 × rows)."""
    more = width + rest - weighing.bits
    whole = words << np.uint64(more) if more >= 0 else words >> np.uint64(-more)
    leading = whole >> np.uint64(rest)
    found: Words = np.stack([leading, whole - (leading << np.uint64(rest))])
    return found


def weighed_gram_error(bounds: TableBounds, holders: int) -> float:
    """How far an entry of Xᵀ diag(ω) X may be off: weights are rounded, and cut."""
    weighing, most, width = bounds.weighing, bounds.most_weight, weight_width(bounds)
    assert weighing is not None
    each = most * weighing.rounding + 2.0 ** -(width + rest_width(width, most))
    return each * bounds.column_norm**2 + most * gram_error(bounds, holders)


def rest_width(width: int, most_weight: float) -> int:
    """How many digits follow: they are below one unit of those, where ωσ' is below ω/4."""
    room = width - 3 + min(0, math.floor(math.log2(most_weight)))
    return max(0, min(room, MOST_BENDS - width))


def exponential_widths(bounds: TableBounds, most: float) -> tuple[int, int]:
    """Leading digits of e^z, none of which is above ``most``, and those that follow."""
    square = bounds.column_norm**2
    width = 61 - 2 * CELL_BITS - math.ceil(math.log2(most * square * 1.02 + 1.0))
    rest = 60 - 2 * CELL_BITS - math.ceil(math.log2(square * 1.02 + 1.0))
    return width, max(0, min(rest, MOST_BENDS - width))


def carry_noise(rest: int, parties: int) -> int:
    """Noise of each party that leading digits of products have too much, and the rest too little.

    Even within ±2^(this − 1) units of the leading digits, and within 2^62 of the rest in total,
    which is below 2^61 by itself. The sum of both is as before. Apart they would be two matrices of
    the same rows under two weights, of which a reader could make the difference one row.
    """
    return 63 - rest - math.ceil(math.log2(parties))


def bend_total(series: CurvatureSeries | ExponentialSeries, weighing: Weighing | None) -> int:
    """Digits of curvatures, and of slopes with them, before they are cut."""
    if isinstance(series, ExponentialSeries):
        return series.total
    total = bend_digits(series, weighing).total
    return total if weighing is None else total + weighing.bits


def bend_cuts(total: int, width: int, rest: int, slope: int) -> tuple[int, int, int]:
    """Digits that are cut off curvatures, to leave the leading ones and more, and off slopes."""
    return total - width, total - width - rest, total - slope


def hessian_error(
    bounds: TableBounds, series: CurvatureSeries, columns: int, norm: float, holders: int
) -> float:
    """How far an entry of Xᵀ diag(σ'(z)) X may be off at released weights of that norm.

    What is cut off counts for every row, and rounding as in slopes; σ' bends by 0.1 at most.
    """
    weighing, most = bounds.weighing, bounds.most_weight
    digits, terms, width = bend_digits(series, weighing), series.terms, bend_width(bounds)
    shaken = math.sqrt(2 * math.log(2 * bounds.rows / CHANCE) * digits.rounding(series.factors))
    cut = 1.5 * 2.0 ** -(width + rest_width(width, most))
    # No cell is off by more than half a unit at each holder, and no weight at all.
    moved = holders * math.sqrt(columns) * 2.0 ** -(CELL_BITS + 1) * norm
    each = series.error + 2 * terms * 2.0**-digits.total + shaken + 0.1 * moved
    if weighing is not None:
        each += 0.25 * weighing.rounding
    off = (most * each + cut) * bounds.column_norm**2
    return off + 0.25 * most * gram_error(bounds, holders)


def exponential_hessian_error(
    bounds: TableBounds,
    series: ExponentialSeries,
    columns: int,
    norm: float,
    holders: int,
    most: float,
) -> float:
    """The same of Xᵀ diag(e^z) X, where no e^z is above ``most``.

    Rounding and cutting are right on average, row by row, and independent: of sums with factors
    x_j·x_k, whose squares add up to no more than those of a column times the longest row's.
    """
    width, rest = exponential_widths(bounds, most)
    tail = 2 * math.log(2 * columns**2 / CHANCE)
    spread = math.sqrt(tail * (series.variance + 4.0 ** -(width + rest)))
    shaken = spread * bounds.row_norm * bounds.column_norm
    moved = holders * math.sqrt(columns) * 2.0 ** -(CELL_BITS + 1) * norm
    each = series.slope_error + 4 * series.terms * 2.0**-series.total + 1.01 * most * moved
    return shaken + each * bounds.column_norm**2 + most * gram_error(bounds, holders)


def pearson_width(errors: Errors, series: ExponentialSeries, point: float, scores: float) -> int:
    """Digits of y/μ − 1 with which the sum of its squares does not wrap; a mean loss is ``point``.

    Nor do products with cells, for which slopes have their digits.

    (r − 1)² is at most twice the loss r − log r − 1, times r if that is above one.
    """
    most = 2 * max(series.most_at(scores), 1.0) * errors.bounds.samples * max(point, 0.01)
    return min(errors.widths.slope, (61 - math.ceil(math.log2(most))) // 2)


def pearson_noise(rows: int, digits: int) -> int:
    """Noise of each party in that sum is even within ±2^(this − 1) units: of 1e-7 a row."""
    return max(1, math.ceil(math.log2(LOSS_NOISE * rows) + digits))


def pearson_error(
    errors: Errors, series: ExponentialSeries, point: float, norm: float, scores: float, width: int
) -> float:
    """How far Σ(y/μ − 1)² may be off: by twice what is squared, times how far a ratio is."""
    of, most = errors.bounds, series.most_at(scores)
    moved = (
        math.sqrt(errors.columns) * 2.0 ** -(CELL_BITS + 1) * norm + of.row_norm * errors.weights
    )
    each = series.slope_error + 4 * series.terms * 2.0**-series.total + 1.5 * 2.0**-width
    shaken = math.sqrt(2 * math.log(2 * of.rows / CHANCE) * series.variance)
    off = (each + shaken + 1.01 * most * moved) * math.sqrt(of.rows)
    square = 2 * max(most, 1.0) * of.samples * max(point, 0.0)
    noise = errors.parties * 2.0 ** (pearson_noise(of.rows, 2 * width) - 1 - 2 * width)
    return off * (2 * math.sqrt(square) + off) + noise


def gradient_noise(rows: int, widths: Widths, most_weight: float) -> int:
    """Noise of each party in Xᵀα as readers get it is even within ±2^(this − 1) units."""
    size = math.ceil(0.5 * math.log2(rows) + math.log2(most_weight))
    return CELL_BITS + widths.slope + _GRADIENT_NOISE + size + 1


def sum_noise(width: int, weighing: Weighing | None) -> int:
    """The same of sums of curvatures in so many digits: within ±1, four samples' worth.

    With weights, within a quarter of the largest: what one sample can add.
    """
    if weighing is None:
        return width + 1
    return max(1, width - 1 + math.ceil(math.log2(weighing.most)))


def square_noise(width: int) -> int:
    """The same of sums of squared weights, by the square of the largest: within a 64th."""
    return max(1, width - 5)


def exponential_vector(
    errors: Errors, series: ExponentialSeries, value: float, norm: float, scores: float
) -> float:
    """How far the gradient that readers get of a Poisson model may be off, where its mean loss is
    ``value`` at most, beside that of a point of training: it has noise."""
    size = errors.slope_size(value, series, scores)
    return _told_noise(errors, series.noise_scale) + errors.vector(series, size, norm, scores)


def _told_noise(errors: Errors, most: float) -> float:
    """What all parties' noise adds to a gradient at most, in length."""
    noise = errors.parties * 2.0 ** (gradient_noise(errors.bounds.rows, errors.widths, most) - 1)
    noise *= math.sqrt(errors.columns) * 2.0 ** -(CELL_BITS + errors.widths.slope)
    return noise / errors.bounds.samples


def fine_vector(errors: Errors, series: CurvatureSeries, norm: float) -> float:
    """How far the gradient that readers get may be off, from the finer series, at such weights.

    Its slopes are cut as those of a squared loss, and have noise.
    """
    bounds, most = errors.bounds, errors.bounds.most_weight
    digits = bend_digits(series, bounds.weighing)
    size, rounding = 1.0, 0.0
    if bounds.weighing is not None:
        size, rounding = bounds.weighing.size, bounds.weighing.rounding
    slope = size * (series.slope_error + 2 * series.terms * 2.0**-digits.total + rounding)
    slope += 1.5 * 2.0**-errors.widths.slope
    variance = most**2 * digits.rounding(series.slope_factors)
    return _told_noise(errors, most) + errors.gradient(slope, variance, 0.25 * most, size, norm)
