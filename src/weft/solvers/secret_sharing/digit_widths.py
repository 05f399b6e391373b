"""How many binary digits everything has, and how far results may be off: all of it from bounds.

Numbers are whole multiples of 2^−bits modulo 2^64. What must not wrap is bounded beforehand by what
the parties tell of their tables (`TableBounds`), or a run is refused; what is rounded off enters
`Errors`, and from there the certificate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from weft.array_types import Floats
from weft.errors import ConfigError
from weft.solvers.secret_sharing.exponential_fourier_series import AnySeries, ExponentialSeries
from weft.solvers.secret_sharing.sample_weight_digit_widths import LOSS_NOISE, Weighing
from weft.solvers.secret_sharing.sine_series import LOSS_TERMS, SCORE_BITS, Series
from weft.solvers.secret_sharing.supported_losses import EXPONENTIAL_LOSSES

#: Binary digits of cells, and of weights: products of both have those of scores.
CELL_BITS = 18
WEIGHT_BITS = SCORE_BITS - CELL_BITS
#: Binary digits of a point before it is rounded to those of weights.
POINT_BITS = 90
#: Scores lie within this, so that nothing wraps.
MOST_SCORE = 2.0**15
#: Slopes of squared losses may grow to this multiple of those at w = 0.
SLACK = 8.0
#: Noise in opened products makes vectors uncertain by so many of their units: 2^20.
_PRODUCT_NOISE = 20
#: Noise may follow vectors that become shorter, down to so many bits below the largest.
NOISE_RANGE = 16
#: Chance that a sum of dithered roundings is further off than allowed for.
CHANCE = 1e-9
_FEWEST_BITS = 16
#: Periods that the alarm may take, as powers of two of what it guards.
MOST_ALARM_RATIO = 8.0
#: sin⁸x = 35/128 + Σ_k of these times cos 2kx.
EIGHTH_POWER: Floats = np.array([-56.0, 28.0, -8.0, 1.0]) / 128.0
EIGHTH_LEVEL = 35.0 / 128.0


@dataclass(frozen=True)
class TableBounds:
    """What is known of the whole table, from totals over parties.

    Attributes
    ----------
    rows
        Rows of the table: the samples, and those that are left out.
    column_sum
        Above Σ_i |x_ij| of every column.
    row_norm
        Above every ‖x_i‖.
    mean_square
        Above 1/N Σ ‖x_i‖².
    spread
        Above ‖X‖₂/√N.
    cell_rounding
        Above ‖X̂ − X‖₂/√N, X̂ the rounded table.
    label_square
        1/N Σ ω y² of a squared loss, which has no more than 20 digits; 1/N Σ ω y of a Poisson loss;
        else 1.
    largest_label
        No label is larger.
    column_norm
        Above the norm of every column.
    weighing
        What is known of the weights of samples; None: all weigh one.
    response_reach
        Of a gamma model: no score is farther from its centre at w = 0.
    """

    samples: int
    rows: int
    column_sum: float
    row_norm: float
    mean_square: float
    spread: float
    cell_rounding: float
    label_square: float
    column_norm: float
    largest_label: float = 1.0
    weighing: Weighing | None = None
    response_reach: float = 0.0

    @property
    def most_weight(self) -> float:
        return 1.0 if self.weighing is None else self.weighing.most

    @property
    def most_counts(self) -> float:
        """Mean |e^z − y| of a Poisson loss that there is room for.

        The loss is at least (√e^z − √y)², so that √Σe^z ≤ √Σl + √Σy; and no point of a run is
        worse than w = 0, where it is 1 − y + y log y. Each has its weight in all of these sums.
        Of a gamma model counts are one, and losses there at most as far as scores reach, or eight.
        """
        usual = 1.0 if self.weighing is None else self.weighing.size
        most = math.log1p(self.largest_label) + self.response_reach
        return 2 * self.counts_at(usual + self.label_square * most)

    def counts_at(self, loss: float) -> float:
        """Above the mean of |e^z − y| where that of losses is such."""
        mean = self.label_square
        return (math.sqrt(max(loss, 0.0)) + math.sqrt(mean)) ** 2 + mean


@dataclass(frozen=True)
class Widths:
    """Binary digits that parties and dealer must know alike.

    Attributes
    ----------
    slope
        Of the slope α.
    cut
        Digits of a vector that are cut off before products are formed.
    """

    slope: int
    cut: int

    def dealt(self, series: Series) -> int:
        """Of dealt sines and cosines; factors from opened words have the rest of ``slope``.

        Rounding the former adds ‖b‖² 4^−dealt to the slope's variance, the latter K 4^−rest.
        """
        apart = math.log2(series.terms / float(series.odd @ series.odd)) / 2
        return round((self.slope - apart) / 2)

    def public(self, series: Series) -> int:
        """Of the factors that parties compute from opened words."""
        return self.slope - self.dealt(series)

    @property
    def vector(self) -> int:
        """Of N·b = Xᵀα, once cut."""
        return CELL_BITS + self.slope - self.cut


def choose_widths(bounds: TableBounds, loss: str, columns: int) -> Widths:
    """Widths with which nothing wraps; a table that 64 bits cannot hold is refused."""
    largest = bounds.most_weight * bounds.column_sum
    if loss in EXPONENTIAL_LOSSES:
        largest = bounds.row_norm * bounds.samples * bounds.most_counts
    if loss == "squared":
        # Σ ω²s² is no more than the largest weight times Σ ωs².
        squares = bounds.most_weight * bounds.samples * bounds.label_square
        largest = bounds.column_norm * SLACK * math.sqrt(squares)
    room = 61 - CELL_BITS - math.ceil(math.log2(max(largest, 1.0) * 1.02 + 1.0))
    slope = min(36, room)
    if slope < _FEWEST_BITS or bounds.row_norm >= MOST_SCORE:
        raise ConfigError(
            "these tables have cells or labels that are too large for sealed training in 64 bits; "
            "scale the columns (scaling = 'standard'), or train with mode = 'sums'"
        )
    log_columns = math.ceil(math.log2(columns + 1))
    # Products of two vectors stay below 2^126.
    cut = max(1, (log_columns - 3) // 2)
    return Widths(slope, cut)


def intercept_units(widths: Widths) -> int:
    """The entry of the vector of a free intercept, in units of vectors: as long as any may be."""
    return 1 << (60 - widths.cut)


def largest_noise(widths: Widths, columns: int) -> int:
    """Noise bits for vectors as long as any may be; see `product_noise`."""
    return product_noise(widths, columns, 2.0 ** (61 - widths.cut))


def product_noise(widths: Widths, columns: int, norm: float) -> int:
    """Noise of each party in a product of vectors of up to that norm, in their units.

    It is even within ±2^(this − 1), as much as if every entry of a vector were uncertain by 2^20 of
    its units: exact products of whole vectors would give the vectors away.
    """
    size = math.log2(max(norm, 1.0)) + 0.5 * math.log2(columns)
    return _PRODUCT_NOISE + math.ceil(size) + 1


@dataclass(frozen=True)
class LossDigits:
    """Binary digits under a total of losses.

    Attributes
    ----------
    total
        Of the total.
    dealt
        Of the dealt sines and cosines of the slowest terms; factors have the rest.
    noise
        Noise of each party is even within ±2^(noise − 1).
    """

    total: int
    dealt: int
    noise: int


def loss_digits(rows: int, series: Series) -> LossDigits:
    """Digits with which a total over all rows does not wrap."""
    total = min(48, 61 - math.ceil(math.log2(rows * float(np.abs(series.even).sum()))))
    noise = max(1, math.ceil(math.log2(LOSS_NOISE * rows * 2.0**total)))
    return LossDigits(total, total // 2, noise)


def product_cuts(
    series: AnySeries | None, weighing: Weighing | None, slope: int, rows: int, label: float
) -> list[int]:
    """Digits that are cut off slopes which are told to be cut, and off losses of such labels."""
    if isinstance(series, ExponentialSeries):
        total, most = series.total, 1.0
        if weighing is not None:
            total, most = total + weighing.bits, weighing.most
        return [total - slope, total - series.loss_digits(rows, label, most)]
    assert weighing is not None
    cuts = [weighing.slope_cut(series, slope)]
    return cuts if series is None else [*cuts, weighing.loss_cut(rows, series)]


def alarm_bits(rows: int) -> tuple[int, int]:
    """Binary digits of dealt cosines and of factors, under a total of eighth powers."""
    room = 61 - math.ceil(math.log2(rows + 1))
    return room // 2, room - room // 2


def alarm_threshold(reach: float, period: float) -> float:
    """What one score beyond ``reach`` adds to the alarm at least."""
    return math.sin(math.pi * reach / period) ** 8


def alarm_noise_bits(rows: int, reach: float, period: float, parties: int) -> int:
    """Noise of each party in the alarm: all of it is a 64th of the threshold at most."""
    unit = 2.0 ** sum(alarm_bits(rows))
    return max(1, math.floor(math.log2(alarm_threshold(reach, period) / 64 / parties * unit)))


def alarm_error(rows: int, reach: float, period: float, parties: int) -> float:
    """How far the alarm may be off: dithered rounding, and noise."""
    dealt, public = alarm_bits(rows)
    variance = (float(EIGHTH_POWER @ EIGHTH_POWER) * 4.0**-dealt + 4 * 4.0**-public) / 4
    noise = parties * 2.0 ** (alarm_noise_bits(rows, reach, period, parties) - 1)
    rounding = math.sqrt(2 * math.log(1 / CHANCE) * rows * variance)
    both = 8 * rows * 2.0 ** -(dealt + public)
    return rounding + both + noise * 2.0 ** -(dealt + public)


@dataclass(frozen=True)
class Errors:
    """How far what the coordinator computes may be from what is true.

    Attributes
    ----------
    parties
        Each adds its noise.
    """

    bounds: TableBounds
    widths: Widths
    parties: int
    columns: int

    @property
    def unit(self) -> float:
        """Of an entry of b."""
        return 2.0**-self.widths.vector / self.bounds.samples

    def product(self, noise: int) -> float:
        """Of an inner product b_j·b_k with noise of so many bits."""
        return self.parties * 2.0 ** (noise - 1) * self.unit**2

    @property
    def weights(self) -> float:
        """‖ŵ − w‖: the model is rounded."""
        return math.sqrt(self.columns) * 2.0**-WEIGHT_BITS

    def vector(
        self, series: AnySeries | None, slope_norm: float, norm: float, scores: float = math.inf
    ) -> float:
        """δ: how far b = Xᵀα/N at a point may be from the gradient there.

        Parameters
        ----------
        series
            None: the loss is squared.
        slope_norm
            Above √(1/N Σα²).
        norm
            ‖w‖ of the point.
        scores
            None is larger there.
        """
        slope, variance, bend = self._slopes(series)
        if isinstance(series, ExponentialSeries):
            bend = self.bounds.most_weight * series.most_at(scores)
        off = self.gradient(slope, variance, bend, slope_norm, norm)
        weighing = self.bounds.weighing
        if weighing is None:
            return off
        return off + weighing.rounding * slope_norm * self.bounds.spread

    @property
    def _size(self) -> float:
        """Above √(1/N Σω²)."""
        return 1.0 if self.bounds.weighing is None else self.bounds.weighing.size

    def _slopes(self, series: AnySeries | None) -> tuple[float, float, float]:
        """How far a slope may be off, its variance by rounding, and how it bends."""
        widths = self.widths
        if isinstance(series, ExponentialSeries):
            off = self._size * (series.slope_error + 4 * series.terms * 2.0**-series.total)
            variance = self.bounds.most_weight**2 * series.variance
            return off + 1.5 * 2.0**-widths.slope, variance, series.most
        if self.bounds.weighing is not None:
            return self.bounds.weighing.slopes(series, widths.slope)
        if series is None:
            # Cut off from z, and rounded from y.
            return 1.5 * 2.0**-widths.slope, 0.0, 1.0
        slope = series.slope_error + 2 * series.terms * 2.0**-widths.slope
        dealt = float(series.odd @ series.odd) * 4.0 ** -widths.dealt(series)
        variance = (dealt + series.terms * 4.0 ** -widths.public(series)) / 4
        return slope, variance, 0.25

    def slope_size(self, value: float, series: AnySeries, scores: float = math.inf) -> float:
        """Above √(1/N Σα²) where the mean of losses is ``value`` at most.

        Of a logistic loss slopes are at most one, and their squares at most the loss: |l'| =
        1 − exp(−l). With weights, Σ ω²l'² is no more than the largest of them times Σ ωl. Of a
        Poisson loss, (e^z − y)² is at most 2l times the larger of both.
        """
        if isinstance(series, ExponentialSeries):
            largest = max(series.most_at(scores), self.bounds.largest_label)
            return math.sqrt(2 * self.bounds.most_weight * largest * max(value, 0.0))
        most = self.bounds.most_weight
        return math.sqrt(min(most**2, most * max(value, 0.0)))

    def residual_size(self, value: float) -> float:
        """The same of a squared loss."""
        return math.sqrt(2 * self.bounds.most_weight * max(value, 0.0))

    def gradient(
        self, slope: float, variance: float, smooth: float, slope_norm: float, norm: float
    ) -> float:
        """From how far a slope may be off, its variance by rounding, and how it bends."""
        of, tail = self.bounds, math.log(1 / CHANCE)
        square = of.spread**2
        shaken = of.mean_square + 2 * math.sqrt(square * of.mean_square * tail) + 2 * square * tail
        cut = math.sqrt(self.columns) * self.unit
        return (
            slope * of.spread
            + of.cell_rounding * (slope_norm + smooth * of.spread * norm)
            + math.sqrt(variance / of.samples * shaken)
            + cut
            + smooth * square * self.weights
        )

    def loss(
        self, series: AnySeries | None, norm: float, value: float, scores: float = math.inf
    ) -> float:
        """Of the mean loss at a point, which is ``value``, without what products add to it.

        Rounding of weights moves every loss by a share of itself.
        """
        of, weighing = self.bounds, self.bounds.weighing
        rounded = 0.0 if weighing is None else 1.01 * weighing.rounding * max(value, 0.0)
        if series is None:
            # P is told by products alone, but for that at w = 0.
            told = 2.0**-20 * of.label_square + rounded
            # Slopes of weighed scores are cut besides.
            return told if weighing is None else told + self._slopes(None)[0] * of.spread * norm
        most, size = of.most_weight, self._size
        moved = of.spread * self.weights + of.cell_rounding * norm
        if isinstance(series, ExponentialSeries):
            told = size * series.slope_error * of.rows / of.samples + self.loss_noise(series)
            told += rounded
            bent = 0.5 * most * series.most * moved**2
            return told + moved * self.slope_size(value + told, series, scores) + bent
        told = size * series.loss_error * of.rows / of.samples + self.loss_noise(series) + rounded
        # ŵ and X̂ are off by little; on the way to w and X the loss is below that of either end.
        return told + moved * self.slope_size(value + told + most * moved, series)

    def loss_noise(self, series: AnySeries) -> float:
        """Of a mean loss, what differs from point to point: dithered rounding, and noise."""
        of, tail = self.bounds, 0.5 * math.log(1 / CHANCE)
        if isinstance(series, ExponentialSeries):
            label, most, size = of.largest_label, of.most_weight, self._size
            digits = series.loss_digits(of.rows, label, most)
            noise = self.parties * 2.0 ** (series.loss_noise(of.rows, label, most) - 1)
            whole = (2 * of.rows + noise) * 2.0**-digits
            whole += size * 4 * series.terms * of.rows * 2.0**-series.total
            return (2 * size * math.sqrt(tail * series.variance * of.rows) + whole) / of.samples
        dealt = self.widths.dealt(series)
        if of.weighing is not None:
            return of.weighing.loss_noise(of.rows, series, self.parties, tail) / of.samples
        told = loss_digits(of.rows, series)
        slow, fast = series.even[:LOSS_TERMS], series.even[LOSS_TERMS:]
        variance = float(fast @ fast) * 4.0**-dealt
        variance += series.terms * 4.0 ** (dealt - told.total)
        variance += float(slow @ slow) * 4.0**-told.dealt
        variance += LOSS_TERMS * 4.0 ** (told.dealt - told.total)
        noise = self.parties * 2.0 ** (told.noise - 1)
        whole = (2 * series.terms * of.rows + noise) * 2.0**-told.total
        return (math.sqrt(tail * variance * of.rows) + whole) / of.samples
