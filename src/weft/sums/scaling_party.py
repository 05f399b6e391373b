"""Federated scaling, a party's half: parts of sums over columns and rows, each told once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto import Cipher
from weft.errors import ConfigError, ProtocolError
from weft.matching.party_view import PartyView
from weft.protocol.declared_message_fields import malformed
from weft.protocol.message_bytes import question_digest
from weft.sums.maxima_from_digit_sums import (
    EXPONENT_ROUNDS,
    ROUNDS,
    LargestParty,
    extend,
    keys_of,
    reached,
    values_of,
)
from weft.sums.party_contribution import Wire
from weft.sums.party_table_products import Block
from weft.sums.party_table_with_overlap_weights import build_table, cohort_bounds, counted_once
from weft.sums.table_scaling_and_certificate_messages import (
    DigitReply,
    DigitRequest,
    ExtremesRequest,
    FeatureSumReply,
    FinishScalingRequest,
    LongestRequest,
    MomentsRequest,
    RowNormsReply,
    RowNormsRequest,
)

Moments = Callable[[Floats, NDArray[np.int32]], tuple[Floats, Floats]]

#: Cells that are looked at together.
_AT_ONCE = 500_000
#: How many digits there are of which values.
_DIGITS = {"range": ROUNDS, "absolute": ROUNDS, "deviation": EXPONENT_ROUNDS}
#: What all factors of a column of float32 together may be, either way from one. Its cells are read
#: up to 2^36 either way (`data/float32_conversion.py`), and float32 ends at 126 bits.
MOST_FACTOR = 2.0**90
#: What comes before the end of each rule.
_LAST_STEP = {
    "standard": "column spread",
    "minmax": f"range {ROUNDS - 1}",
    "maxabs": f"absolute {ROUNDS - 1}",
}


class ScalingParty:
    """A party's half: statistics of its columns, then their common shift and factor.

    Without ``sample_norms`` it tells no norms of samples, only bounds for whole cohorts. Columns
    that stay ``as_they_are`` have no shift and no factor, and neither has the constant one.
    """

    def __init__(
        self,
        view: PartyView,
        blocks: Sequence[Block],
        bias_value: float | None,
        cipher: Cipher,
        *,
        sample_norms: bool = True,
        as_they_are: Ints | None = None,
    ) -> None:
        self._view = view
        self._as_they_are = np.zeros(view.n_columns, bool)
        if as_they_are is not None:
            self._as_they_are[as_they_are] = True
        if view.bias_slot >= 0:
            self._as_they_are[view.bias_slot] = True
        self._sample_norms = sample_norms
        self._blocks = blocks
        self._single = any(block.dtype == np.float32 for block in blocks)
        self._bias = bias_value
        self._cipher = cipher
        holders = view.column_holders
        # Flags are 0 or 1; of the moments every cell is counted once, and divided by N.
        self._flag_wire = Wire("v", view.n_shared_columns, float(holders), cipher)
        self._moment_wire = Wire("v", view.n_shared_columns, 2.0, cipher)
        # Bounds are rounded up by up to √2.
        self._z = Wire("z", view.n_shared_rows, 1.5 * view.row_holders, cipher)
        m = view.n_columns
        self.shift: Floats = np.zeros(m)
        self.factor: Floats = np.ones(m)
        self.row_factor = 1.0
        self._keys: list[NDArray[np.uint64]] = []
        self._prefix: list[NDArray[np.uint64]] = []
        self._magnitude: Floats = np.ones(m)
        self._unit: Floats = np.ones(m)
        self._mean: Floats = np.zeros(m)
        self._count: Floats = np.zeros(m)
        self._part: Floats = np.zeros((m, 2))
        self._squares: Floats = np.zeros((view.n_rows, 1))
        self._largest, self._longest = LargestParty(cipher), LargestParty(cipher, ROUNDS)
        #: The step of scaling that was taken last.
        self._step = ""

    def _go_on(self, step: str, *after: str) -> None:
        """Take every step once: sums of other columns or cells than agreed on tell more."""
        if self._step not in after:
            raise ProtocolError("a request of scaling comes again, or too early")
        self._step = step

    # ── extremes of columns ───────────────────────────────────────────────────────────────

    def extremes(self, message: ExtremesRequest) -> FeatureSumReply:
        """One digit of the columns' maxima (of x and −x, of |x|, or of |x − mean|)."""
        round_, of = message.digit, message.of
        if of not in _DIGITS or not 0 <= round_ < _DIGITS[of]:
            raise malformed("digit", "is none of the digits of these values")
        first = "column sums" if of == "deviation" else ""
        self._go_on(f"{of} {round_}", first if round_ == 0 else f"{of} {round_ - 1}")
        if round_ == 0:
            if of == "deviation":
                self._take_mean(message.v)
            self._start_extremes(of)
        else:
            self._extend(message.v, round_ - 1)
        flags = [
            reached(keys, prefix, round_)
            for keys, prefix in zip(self._keys, self._prefix, strict=True)
        ]
        self._flags = np.concatenate(flags, axis=1)
        shared = self._view.n_shared_columns
        pads = message.v_pads
        sent = self._flag_wire.send(self._flags[:shared], pads) if shared else None
        return FeatureSumReply(v=sent)

    def _start_extremes(self, of: str) -> None:
        """Keys of this party's own extremes; a column without a value says −∞."""
        m = self._view.n_columns
        low, high = np.full(m, np.inf), np.full(m, -np.inf)
        for tile, block in enumerate(self._blocks):
            columns = self._view.tile_columns[tile]
            smallest, largest = _range_of(block, self._view.tile_rows[tile] >= 0)
            np.minimum.at(low, columns, smallest)
            np.maximum.at(high, columns, largest)
        wanted = [high, -low]
        if of != "range":
            centre = self._mean if of == "deviation" else 0.0
            known = np.isfinite(high)
            largest = np.maximum(np.abs(low - centre), np.abs(high - centre))
            wanted = [np.where(known, largest, -np.inf)]
        self._keys = [keys_of(values) for values in wanted]
        self._prefix = [np.zeros(m, np.uint64) for _ in wanted]

    def _extend(self, v: bytes | None, round_: int) -> None:
        totals = self._flags
        shared = self._view.n_shared_columns
        if shared:
            totals[:shared] = self._flag_wire.open(v, totals.shape[1])
        for i in range(len(self._prefix)):
            part = totals[:, 15 * i : 15 * (i + 1)]
            self._prefix[i] = extend(self._prefix[i], part, round_)

    # ── moments ───────────────────────────────────────────────────────────────────────────

    def sums(self, message: MomentsRequest) -> FeatureSumReply:
        """Cells and their sum per column, in units of the column's magnitude."""
        self._go_on("column sums", f"absolute {EXPONENT_ROUNDS - 1}")
        self._extend(message.v, EXPONENT_ROUNDS - 1)
        self._unit = self._power_of_two_above()
        return self._moment(lambda x, columns: (np.ones_like(x), x / self._unit[columns]), message)

    def _take_mean(self, v: bytes | None) -> None:
        total = self._totals(v)
        self._count = np.maximum(total[:, 0], 1e-300)
        self._mean = total[:, 1] / self._count * self._unit

    def spread(self, message: MomentsRequest) -> FeatureSumReply:
        """Σ (x − mean) and Σ (x − mean)² per column, in units of its largest deviation.

        The unit follows the spread and not the magnitude, so that a column far from zero loses
        no digits; the first sum mends what the mean lost.
        """
        self._go_on("column spread", f"deviation {EXPONENT_ROUNDS - 1}")
        self._extend(message.v, EXPONENT_ROUNDS - 1)
        self._magnitude = self._unit
        self._unit = self._power_of_two_above()

        def powers(x: Floats, columns: NDArray[np.int32]) -> tuple[Floats, Floats]:
            deviation = (x - self._mean[columns]) / self._unit[columns]
            return deviation, deviation**2

        return self._moment(powers, message)

    def _power_of_two_above(self) -> Floats:
        """2^e above every value of the column, from the digits of its exponent."""
        below = np.uint64(2 ** (64 - 4 * EXPONENT_ROUNDS) - 1)
        bound = values_of(self._prefix[0] | below)
        known = np.isfinite(bound) & (bound > 0)
        _, exponent = np.frexp(np.where(known, bound, 1.0))
        return np.where(known, np.ldexp(1.0, exponent), 1.0)

    def _moment(self, function: Moments, message: MomentsRequest) -> FeatureSumReply:
        """Two sums per column over the cells known here, each cell counted once over all."""
        part = np.zeros((self._view.n_columns, 2))
        for tile, block in enumerate(self._blocks):
            columns = self._view.tile_columns[tile]
            kept = self._view.tile_rows[tile] >= 0
            weights = counted_once(self._view, tile, block)
            sums = np.zeros((2, len(columns)))
            for band in _bands(block):
                x: Floats = block[band] if isinstance(block, np.ndarray) else block[band].toarray()
                known = ~np.isnan(x) & kept[band, None]
                weight = known.astype(np.float64) if weights is None else known * weights[band]
                # What is missing weighs nothing; the mean in its place deviates by nothing either.
                filled = np.where(known, x, self._mean[columns])
                for i, values in enumerate(function(filled, columns)):
                    sums[i] = _added(sums[i], values * weight)
            for i in range(2):
                np.add.at(part[:, i], columns, sums[i])
        self._part = part / self._view.n_samples
        shared = self._view.n_shared_columns
        pads = message.v_pads
        sent = self._moment_wire.send(self._part[:shared], pads) if shared else None
        return FeatureSumReply(v=sent)

    def _totals(self, v: bytes | None) -> Floats:
        total = self._part
        shared = self._view.n_shared_columns
        if shared:
            total[:shared] = self._moment_wire.open(v, 2)
        return total

    # ── the agreed scaling ────────────────────────────────────────────────────────────────

    def finish(self, message: FinishScalingRequest) -> None:
        """Shift and factor of every column."""
        rule = message.rule
        if rule not in _LAST_STEP:
            raise malformed("rule", "is no rule of scaling")
        self._go_on("columns", _LAST_STEP[rule])
        if rule == "standard":
            first, second = (self._totals(message.v) / self._count[:, None]).T
            deviation = np.sqrt(np.maximum(second - first**2, 0.0)) * self._unit
            self.shift = self._mean + first * self._unit
            # A column that varies by no more than rounding is constant: centred, not blown up.
            self.factor = _inverse(deviation, 1e-12 * self._magnitude)
        else:
            self._extend(message.v, ROUNDS - 1)
            high = values_of(self._prefix[0])
            known = np.isfinite(high)
            width = magnitude = np.where(known, high, 0.0)
            if rule == "minmax":
                self.shift = np.where(known, -values_of(self._prefix[1]), 0.0)
                width = magnitude - self.shift
                magnitude = np.maximum(np.abs(magnitude), np.abs(self.shift))
            self.factor = _inverse(width, 10 * np.finfo(np.float64).eps * magnitude)
        self.shift[self._as_they_are] = 0.0
        self.factor[self._as_they_are] = 1.0
        self._insist_on_range(self.factor)

    def hold_back(self, factor: Floats) -> None:
        """Multiply every column by a factor, which makes weights of it dearer or cheaper."""
        self._go_on("penalties", "", "columns")
        self.factor = self.factor * factor
        self._insist_on_range(self.factor)

    # ── rows ──────────────────────────────────────────────────────────────────────────────

    def size(self, blocks: Sequence[Block], message: DigitRequest) -> DigitReply:
        """One digit of the largest share of ‖x_i‖² that any party has."""
        if message.digit == 0:
            self._go_on("row size", "", "columns", "penalties")

        def largest() -> Floats:
            self._squares = build_table(self._view, blocks, self._bias).squares
            return np.asarray(self._squares.max(axis=0, initial=0.0))

        return self._largest.tell(message, largest)

    def norms(self, message: RowNormsRequest) -> RowNormsReply:
        """This party's share of ‖x_i‖² of the scaled rows, in a common unit."""
        self._go_on("row norms", "row size")
        self._largest.insist_on_unit(message.unit)
        # In units of their own, parties' norms would not be summed.
        self._cipher.agree(question_digest(message))
        squares = self._squares if self._sample_norms else cohort_bounds(self._squares, self._view)
        self._squares = squares / message.unit
        shared = self._view.n_shared_rows
        sent = self._z.send(self._squares[:shared], message.z_pads) if shared else None
        return RowNormsReply(z=sent)

    def longest(self, message: LongestRequest) -> DigitReply:
        """One digit of the largest squared norm, in that unit."""
        if message.digit == 0:
            self._go_on("longest row", "row norms")

        def counted() -> Floats:
            rows = self._view.counted_shared_rows
            if len(rows):
                self._squares[rows] = self._z.open(message.z, 1, rows)
            counts = self._squares[self._view.counted_rows]
            return np.asarray(counts.max(axis=0, initial=0.0))

        return self._longest.tell(message, counted)

    def take_row_factor(self, factor: float) -> None:
        """The factor of all rows, the same for all parties."""
        self._go_on("rows", "longest row")
        if not 0 < factor < np.inf:
            raise malformed("factor", "is no number above zero")
        self._insist_on_range(self.factor * factor)
        self._cipher.agree(factor.hex().encode())
        self.row_factor = factor

    def _insist_on_range(self, factor: Floats) -> None:
        """Refuse factors by which cells of float32 could vanish or overflow.

        By the factors alone, not by what they make of cells: whoever can move them would find out
        how large these are.
        """
        inside = (factor >= 1 / MOST_FACTOR) & (factor <= MOST_FACTOR)
        if self._single and not inside.all():
            # Which factor it is stays unsaid: the coordinator never sees those of columns.
            raise ConfigError(
                "its cells are in single precision, which has no room for factors of columns and "
                f"rows outside {1 / MOST_FACTOR:.1g} to {MOST_FACTOR:.1g}; bring columns into "
                "units in which values are nearer to one, or leave storage = 'float32' out"
            )


def _bands(block: Block) -> Iterator[slice]:
    """Rows that are looked at together: whole copies of a large block would be most of its memory.

    A single column is added up in pairs, and in one go.
    """
    count, width = block.shape
    rows = max(1, _AT_ONCE // width) if width > 1 else max(1, count)
    return (slice(start, start + rows) for start in range(0, count, rows))


def _added(sums: Floats, rows: Floats) -> Floats:
    """Sums with more rows added, one after the other: the same bits as all rows in one go."""
    more = rows if rows.shape[1] == 1 else np.concatenate([sums[None], rows])
    total: Floats = more.sum(axis=0)
    return sums + total if rows.shape[1] == 1 else total


def _range_of(block: Block, kept: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Smallest and largest known value of each column; implicit zeros of CSR count."""
    if not kept.any():
        nothing = np.full(block.shape[1], np.inf)
        return nothing, -nothing
    if isinstance(block, np.ndarray):
        known = ~np.isnan(block) & kept[:, None]
        low = np.min(block, axis=0, initial=np.inf, where=known)
        high = np.max(block, axis=0, initial=-np.inf, where=known)
        return low, high
    columns: Any = sp.csc_array(block if kept.all() else block[np.flatnonzero(kept)])
    return columns.min(axis=0).toarray().ravel(), columns.max(axis=0).toarray().ravel()


def _inverse(width: Floats, negligible: Floats) -> Floats:
    """1/width, and one where the width is nothing."""
    varies = width > negligible
    return np.where(varies, 1.0 / np.where(varies, width, 1.0), 1.0)
