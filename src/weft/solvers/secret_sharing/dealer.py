"""The dealer: makes masks and what follows from them, and never learns what they hide.

It has every party's seed, so it knows all masks. Of what goes through its hands it sees ciphertext
only, under pads that it lacks; nothing in this file can open one. A value that it deals is split
into a share for each party: those of all but the last follow from their seeds, so that one is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from weft.array_types import Ints
from weft.crypto.primitives.seeded_words import MARGIN, SeededStream, Words, seeded_words
from weft.solvers.secret_sharing.curvature_series import CurvatureSeries
from weft.solvers.secret_sharing.digit_widths import (
    POINT_BITS,
    WEIGHT_BITS,
    Widths,
    alarm_bits,
    loss_digits,
)
from weft.solvers.secret_sharing.exponential_fourier_series import ExponentialSeries
from weft.solvers.secret_sharing.few_rows_dominate_poisson_hessian import mean_counts
from weft.solvers.secret_sharing.masked_sine_kernels import blocks_of, less_dealt
from weft.solvers.secret_sharing.sample_weight_digit_widths import TIMES_MASKS, Weighing
from weft.solvers.secret_sharing.second_moment_kernels import CUT_TWICE, cross_products
from weft.solvers.secret_sharing.sine_series import LOSS_TERMS, SCORE_BITS, Series, alarm_multiples
from weft.solvers.secret_sharing.table_positions import WholeTable
from weft.solvers.secret_sharing.table_product_kernels import add_products, transposed_products
from weft.solvers.secret_sharing.wide_ring import (
    Wide,
    inner,
    minus,
    plus,
    shifted_down,
    times,
    widened,
)

_U63 = np.uint64(63)
_LOW63 = np.uint64((1 << 63) - 1)
_RING = 1 << 64


@dataclass(frozen=True)
class _VectorMask:
    """The mask of one vector: its lower bits, cut, and its highest one, per problem."""

    problems: Ints
    low: Wide
    top: Wide

    def of(self, problems: Ints) -> tuple[Wide, Wide]:
        places = np.searchsorted(self.problems, problems)
        return self.low[places], self.top[places]


class Dealer:
    """Deals for one run.

    Parameters
    ----------
    seeds
        Of all parties, in their order.
    table
        Where the parties' tables lie.
    """

    def __init__(self, seeds: list[bytes], table: WholeTable) -> None:
        self._seeds, self._table = seeds, table
        self._own = blake2b(b"".join(seeds), digest_size=32, person=b"weft dealer").digest()
        #: A, the masks of all cells, table by table.
        self._tables = [
            seeded_words(seed, "table", *place.shape)
            for seed, place in zip(seeds, table.places, strict=True)
        ]
        self._vectors: list[_VectorMask] = []
        self._point: Words = np.zeros((0, 0), np.uint64)
        self._scores: Words = np.zeros((0, 0), np.uint64)
        self._slopes: Words = np.zeros((0, 0), np.uint64)
        self._problems: Ints = np.zeros(0, np.int64)
        self._rounding: Words = np.zeros((0, 0), np.uint64)
        self._spread: Words = np.zeros((0, 0, 0), np.uint64)
        #: a, the masks of weights of samples, and those of what is weighed.
        self._weights: Words = np.zeros(0, np.uint64)
        self._products: Words = np.zeros((0, 0, 0), np.uint64)

    def free_intercept(self, problems: Ints) -> None:
        """The vector of a free intercept is public: it has no mask."""
        nothing = np.zeros((len(problems), self._table.n_columns, 2), np.uint64)
        self._vectors.append(_VectorMask(problems, nothing, nothing))

    # ── what one gradient takes, in order ─────────────────────────────────────────────────

    def point(self, serial: int, problems: Ints) -> Words:
        """For a point: the share of the cut mask that is sent."""
        shape = len(problems), self._table.n_columns
        mask = self._wide_mask(f"{serial} point", *shape)
        self._problems = problems
        self._point = shifted_down(mask, POINT_BITS - WEIGHT_BITS)
        return self._sent(f"{serial} cut", self._point)

    def scores(self, serial: int) -> None:
        """For scores: the mask is that of all parties, and what A makes of the point's mask."""
        mask = self._mask(f"{serial} scores", len(self._point), self._table.n_rows)
        for place, table in zip(self._table.places, self._tables, strict=True):
            add_products(table, self._point[:, place.columns], place.rows, mask)
        self._scores = mask

    def series(
        self, serial: int, series: Series, period: int, widths: Widths, weighing: Weighing | None
    ) -> Words:
        """Cosines and sines of the scores' masks, and those of an alarm: the share sent."""
        rows = self._table.n_rows
        dealt, slow = widths.dealt(series), loss_digits(rows, series).dealt
        if weighing is not None:
            digits = weighing.products(series)
            dealt, slow = digits.dealt, digits.slow
            self._products = self._mask(f"{serial} weighed", 2, *self._scores.shape)
        sent = [
            self._waves(serial, "wave", series.words, dealt, weighing is not None),
            self._waves(serial, "loss", series.words[:LOSS_TERMS], slow, weighing is not None),
        ]
        if period:
            multiples = alarm_multiples(period)
            sent.append(self._waves(serial, "alarm", multiples, alarm_bits(rows)[0], False))
        return np.concatenate(sent)

    def exponential(
        self, serial: int, series: ExponentialSeries, period: int, *, weighed: bool
    ) -> Words:
        """The same for a Poisson loss."""
        self._products = self._mask(f"{serial} weighed", 1, *self._scores.shape)
        sent = [self._waves(serial, "wave", series.words, series.dealt, weighed)]
        if period:
            multiples, digits = alarm_multiples(period), alarm_bits(self._table.n_rows)[0]
            sent.append(self._waves(serial, "alarm", multiples, digits, False))
        return np.concatenate(sent)

    def cut_scores(self, serial: int, widths: Widths) -> Words:
        """For a squared loss: masks of scores with the digits of slopes, and the highest bit."""
        low = (self._scores & _LOW63) >> np.uint64(SCORE_BITS - widths.slope)
        top = self._scores >> _U63
        sent = self._sent(f"{serial} low", low), self._sent(f"{serial} top", top)
        return np.concatenate([part.reshape(-1) for part in sent])

    # ── weights of samples ────────────────────────────────────────────────────────────────

    def weights_of_samples(self, serial: int) -> None:
        """For weights: only masks that follow from seeds."""
        self._weights = self._mask(f"{serial} weights of samples", self._table.n_rows)

    def cut_weighed_scores(self, serial: int, digits: int) -> Words:
        """For a squared loss: masks of scores, cut, and times those of weights."""
        low, top = (self._scores & _LOW63) >> np.uint64(digits), self._scores >> _U63
        sent = [
            self._sent(f"{serial} {name}{times}", part * factor)
            for times, factor in (("", np.uint64(1)), (TIMES_MASKS, self._weights))
            for name, part in (("low", low), ("top", top))
        ]
        self._products = self._mask(f"{serial} weighed", 1, *self._scores.shape)
        return np.concatenate([part.reshape(-1) for part in sent])

    def cut_products(self, serial: int, cuts: list[int]) -> Words:
        """Masks of what is weighed, cut by so many digits, and their highest bits."""
        digits = np.array(cuts, np.uint64)[:, None, None]
        low = (self._products & _LOW63) >> digits
        top = np.broadcast_to(self._products >> _U63, low.shape)
        sent = self._sent(f"{serial} low", low), self._sent(f"{serial} top", top)
        return np.concatenate([part.reshape(-1) for part in sent])

    # ── what one gradient takes, from slopes on ───────────────────────────────────────────

    def slopes(self, serial: int, problems: Ints) -> None:
        """For slopes: only masks that follow from seeds."""
        self._problems = problems
        self._slopes = self._mask(f"{serial} slopes", len(problems), self._table.n_rows)

    def vector(self, serial: int) -> Words:
        """What A makes of the slopes' mask: the share sent."""
        total = np.zeros((len(self._slopes), self._table.n_columns), np.uint64)
        for place, table in zip(self._table.places, self._tables, strict=True):
            total[:, place.columns] += transposed_products(table, self._slopes, place.rows)
        self._rounding = self._mask(f"{serial} vector", *total.shape)
        return self._sent(f"{serial} products", total)

    def products(self, serial: int, widths: Widths) -> Words:
        """The vector's mask, and its products with those of all vectors: the shares sent."""
        low = widened((self._rounding & _LOW63) >> np.uint64(widths.cut))
        top = widened(self._rounding >> _U63)
        new = _VectorMask(self._problems, low, top)
        self._vectors.append(new)
        before = [old.of(new.problems) for old in self._vectors]
        lows, tops = (np.stack(parts) for parts in zip(*before, strict=True))
        parts = low, top, inner(low, lows), times(low, tops), times(top, lows), times(top, tops)
        value = np.concatenate([part.reshape(-1, 2) for part in parts])
        for seed in self._seeds[:-1]:
            value = minus(value, seeded_words(seed, f"{serial} products", *value.shape))
        return value

    # ── second moments ────────────────────────────────────────────────────────────────────

    def kept_point(self, serial: int) -> None:
        """For a model's point: only masks that follow from seeds."""
        self._point = self._mask(f"{serial} point", 1, self._table.n_columns)

    def gram(self, serial: int) -> Words:
        """AᵀA: the share sent."""
        masks = self._all_cells()
        return self._sent(f"{serial} gram", cross_products(masks, masks))

    def bends(self, serial: int, series: CurvatureSeries, digits: int, *, weighed: bool) -> Words:
        """Cosines and sines of the masks of one problem's scores: the share sent."""
        self._slopes = self._mask(f"{serial} bends", 2, self._table.n_rows)
        return self._waves(serial, "bend", series.words, digits, weighed)

    def exponential_bends(self, serial: int, series: ExponentialSeries) -> Words:
        """The same for a Poisson loss, and for counts of means beyond caps."""
        rows = self._table.n_rows
        self._slopes = self._mask(f"{serial} bends", 2, rows)
        sent = [self._waves(serial, "bend", series.words, series.dealt, False)]
        for name, count in mean_counts(series.reach).items():
            sent.append(self._waves(serial, name, count.words, count.digits(rows).dealt, False))
        return np.concatenate(sent)

    def weights(self, serial: int, cuts: tuple[int, int, int]) -> Words:
        """The masks of σ', cut twice, and slopes, and their highest bits: the shares sent."""
        digits, masks = np.array(cuts, np.uint64)[:, None], self._slopes[list(CUT_TWICE)]
        low, top = (masks & _LOW63) >> digits, masks >> _U63
        sent = self._sent(f"{serial} low", low), self._sent(f"{serial} top", top)
        self._slopes = self._mask(f"{serial} weights", *low.shape)
        return np.concatenate([part.reshape(-1) for part in sent])

    def sample_weights(self, serial: int) -> None:
        """For weights in the place of σ', without slopes: only masks that follow from seeds."""
        self._slopes = self._mask(f"{serial} weights", len(CUT_TWICE), self._table.n_rows)

    def cells(self, serial: int) -> Words:
        """The masks of σ' times A, row by row, and Aᵀ times that of slopes: the shares sent."""
        masks = self._all_cells()
        sent = self._sent(f"{serial} cells", self._slopes[:-1, :, None] * masks)
        crossed = transposed_products(masks, self._slopes[-1:], np.arange(len(masks)))
        self._spread = self._mask(f"{serial} spread", *sent.shape)
        gradient = self._sent(f"{serial} gradient", crossed)
        return np.concatenate([sent.reshape(-1), gradient.reshape(-1)])

    def hessian(self, serial: int, *, counts: bool) -> Words:
        """A times the masks of what was opened last: the share sent; with counts, one of zero."""
        masks = self._all_cells()
        crossed = np.stack([cross_products(masks, spread) for spread in self._spread])
        sent = self._sent(f"{serial} hessian", crossed).reshape(-1)
        return np.append(sent, self._others(f"{serial} nothing", 1)) if counts else sent

    # ── the dispersion of a gamma model ───────────────────────────────────────────────────

    def ratios(self, serial: int, series: ExponentialSeries) -> Words:
        """Cosines and sines of the masks of a model's scores: the share sent."""
        self._slopes = self._mask(f"{serial} ratios", 1, self._table.n_rows)
        return self._waves(serial, "ratio", series.words, series.dealt, False)

    def cut_ratios(self, serial: int, cut: int) -> Words:
        """The masks of ratios, cut, and their highest bits: the shares sent."""
        masks = self._slopes[0]
        low, top = (masks & _LOW63) >> np.uint64(cut), masks >> _U63
        self._slopes = self._mask(f"{serial} pearson", 1, len(masks))
        return np.concatenate([self._sent(f"{serial} low", low), self._sent(f"{serial} top", top)])

    def pearson(self, serial: int) -> Words:
        """The squares of all masks of ratios, added up, and Aᵀ times masks: the shares sent."""
        masks = self._all_cells()
        squares = (self._slopes * self._slopes).sum(axis=1, dtype=np.uint64)
        crossed = transposed_products(masks, self._slopes, np.arange(len(masks)))[0]
        sent = self._sent(f"{serial} squares", squares), self._sent(f"{serial} gradient", crossed)
        return np.concatenate(sent)

    def _all_cells(self) -> Words:
        """A as one table: cells that several parties hold have the sum of their masks."""
        total = np.zeros((self._table.n_rows, self._table.n_columns), np.uint64)
        for place, table in zip(self._table.places, self._tables, strict=True):
            total[np.ix_(place.rows, place.columns)] += table
        return total

    # ── masks and shares ──────────────────────────────────────────────────────────────────

    def _waves(self, serial: int, name: str, multiples: Words, digits: int, weighed: bool) -> Words:
        """Cosines and sines of multiples of the scores' masks in so many digits: the share sent.

        ``weighed``: besides, the same numbers times the masks of weights.
        """
        count = 2 * self._scores.size * len(multiples)
        dither = int(seeded_words(self._own, f"{serial} {name} dither", 1)[0])
        streams = [SeededStream(seed, f"{serial} {name}") for seed in self._seeds[:-1]]
        sent, at = np.empty(count + MARGIN, np.uint64), 0
        times = np.empty(count if weighed else 0, np.uint64)
        for masks in self._scores:
            for part in blocks_of(len(masks)):
                some = masks[part]
                end = at + 2 * len(multiples) * len(some)
                words = _total(streams, sent[at : end + MARGIN])
                drawn = words.copy() if weighed else words
                less_dealt(some, multiples, 2.0**digits, np.uint64(dither), words)
                if weighed:
                    waves = (words + drawn).reshape(-1, len(some))
                    times[at:end] = (waves * self._weights[part]).reshape(-1)
                dither, at = (dither + len(some)) % _RING, end
        if weighed:
            times += self._others(f"{serial} {name}{TIMES_MASKS}", count)
        return np.concatenate([sent[:count], times]) if weighed else sent[:count]

    def _mask(self, label: str, *shape: int) -> Words:
        """The sum of what all parties draw."""
        total = np.zeros(shape, np.uint64)
        for seed in self._seeds:
            total += seeded_words(seed, label, *shape)
        return total

    def _wide_mask(self, label: str, *shape: int) -> Wide:
        total = np.zeros((*shape, 2), np.uint64)
        for seed in self._seeds:
            total = plus(total, seeded_words(seed, label, *shape, 2))
        return total

    def _others(self, label: str, *shape: int) -> Words:
        """Less the shares of all parties but the last."""
        total = np.zeros(shape, np.uint64)
        for seed in self._seeds[:-1]:
            total -= seeded_words(seed, label, *shape)
        return total

    def _sent(self, label: str, value: Words) -> Words:
        return value + self._others(label, *value.shape)


def _total(streams: list[SeededStream], room: Words) -> Words:
    """The next words of all streams, added up: see `SeededStream.fill`."""
    total = streams[0].fill(room)
    more = np.empty(len(room), np.uint64) if len(streams) > 1 else room
    for stream in streams[1:]:
        total += stream.fill(more)
    return total
