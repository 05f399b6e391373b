"""Federated scaling: every party scales a column the same way, from sums alone.

``standard``: mean and standard deviation over all cells held (each cell once).
``minmax``: the column's range to [0, 1]. ``maxabs``: divide by the largest absolute value.
Then, if wished, all rows by one public constant, so that ‖x_i‖ ≤ 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto import Adder, Cipher
from weft.errors import ConfigError, ProtocolError
from weft.matching.holding_map import HoldingMap
from weft.matching.party_view import PartyView
from weft.protocol import Channel, Phase
from weft.protocol.message import malformed
from weft.protocol.message_bytes import question_digest
from weft.sums.local_table import Block, build_table, cohort_bounds, counted_once
from weft.sums.masked_maxima import (
    EXPONENT_ROUNDS,
    ROUNDS,
    LargestParty,
    ask_largest,
    extend,
    keys_of,
    reached,
    units_above,
    values_of,
)
from weft.sums.messages import (
    COLUMN_SPREAD,
    COLUMN_SUMS,
    EXTREMES,
    FINISH_SCALING,
    LONGEST_ROW,
    PENALTIES,
    ROW_NORMS,
    ROW_SIZE,
    SCALE_ROWS,
    DigitReply,
    DigitRequest,
    ExtremesRequest,
    FeatureSumReply,
    FinishScalingRequest,
    LongestRequest,
    MomentsRequest,
    PenaltiesRequest,
    RowNormsReply,
    RowNormsRequest,
    ScaleRowsRequest,
)
from weft.sums.party_contribution import Wire
from weft.sums.running_totals import RunningTotals
from weft.sums.shared_slot_layout import Layout

Moments = Callable[[Floats, NDArray[np.int32]], tuple[Floats, Floats]]
S = TypeVar("S", ExtremesRequest, MomentsRequest)
Rule = Literal["none", "standard", "minmax", "maxabs"]

#: How many digits there are of which values.
_DIGITS = {"range": ROUNDS, "absolute": ROUNDS, "deviation": EXPONENT_ROUNDS}
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
            x = block if isinstance(block, np.ndarray) else block.toarray()
            known = ~np.isnan(x) & kept[:, None]
            weight = known.astype(np.float64) if weights is None else known * weights
            # What is missing weighs nothing; the mean in its place deviates by nothing either.
            filled = np.where(known, x, self._mean[columns])
            for i, values in enumerate(function(filled, columns)):
                np.add.at(part[:, i], columns, (values * weight).sum(axis=0))
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

    def hold_back(self, factor: Floats) -> None:
        """Multiply every column by a factor, which makes weights of it dearer or cheaper."""
        self._go_on("penalties", "", "columns")
        self.factor = self.factor * factor

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
        self._cipher.agree(factor.hex().encode())
        self.row_factor = factor


def agree_on_scaling(
    channel: Channel,
    holdings: HoldingMap,
    rule: Rule,
    unit_rows: bool,
    adder: Adder,
    penalties: Mapping[str, float] | None = None,
) -> None:
    """Coordinator: lead the parties to a common scaling, which it never sees."""
    if rule != "none" and holdings.overlap == "sum":
        raise ConfigError(
            f"scaling = '{rule}' has no meaning for cells that are additive shares "
            "(overlap = 'sum'); scale the table before it is dealt out"
        )
    columns = Layout(holdings.columns, holdings.parties)
    if rule != "none":
        sums = _column_sums(channel, columns, rule, adder)
        round_ = adder.advance()
        finish = {p: FinishScalingRequest(round=round_, rule=rule) for p in channel.parties}
        sums.bring(finish)
        channel.ask(FINISH_SCALING, finish).insist("scaling")
    if penalties:
        told = PenaltiesRequest(
            features=np.array(list(penalties), dtype=str),
            factors=np.array(list(penalties.values())),
        )
        channel.ask(PENALTIES, dict.fromkeys(channel.parties, told)).insist("scaling")
    if unit_rows:
        _unit_rows(channel, holdings, adder)


class Bringing(Protocol):
    """A request that may bring totals of feature sums."""

    v: bytes | None


class _FeatureSums:
    """Coordinator: feature sums, one after the other, each with the totals of the one before."""

    def __init__(self, channel: Channel, columns: Layout, adder: Adder) -> None:
        self._channel = channel
        self._columns = columns
        self._adder = adder
        self._totals: RunningTotals | None = None

    def bring(self, messages: Mapping[str, Bringing]) -> None:
        """Put the last totals into the messages of a new request."""
        if self._totals is not None:
            for party, block in self._totals.blocks(self._channel.parties).items():
                messages[party].v = block

    def sum(
        self, phase: Phase[S, FeatureSumReply], width: int, request: Callable[[int], S]
    ) -> None:
        """One feature sum; ``request`` makes a message from the request's number."""
        round_ = self._adder.advance()
        messages = {party: request(round_) for party in self._channel.parties}
        self.bring(messages)
        totals = RunningTotals("v", self._columns, width, self._adder)
        totals.invite(messages)
        totals.add(self._channel.ask(phase, messages).insist("scaling"))
        self._totals = totals

    def digits(self, of: str, rounds: int) -> None:
        """Digits of the columns' extremes."""
        for digit in range(rounds):
            width = 30 if of == "range" else 15
            self.sum(EXTREMES, width, partial(_extremes, digit, of))


def _extremes(digit: int, of: str, round_: int) -> ExtremesRequest:
    return ExtremesRequest(round=round_, digit=digit, of=of)


def _moments(round_: int) -> MomentsRequest:
    return MomentsRequest(round=round_)


def _column_sums(channel: Channel, columns: Layout, rule: Rule, adder: Adder) -> _FeatureSums:
    """Lead to the last sums, whose totals the next request brings."""
    sums = _FeatureSums(channel, columns, adder)
    if rule == "standard":
        sums.digits("absolute", EXPONENT_ROUNDS)
        sums.sum(COLUMN_SUMS, 2, _moments)
        sums.digits("deviation", EXPONENT_ROUNDS)
        sums.sum(COLUMN_SPREAD, 2, _moments)
    else:
        sums.digits("range" if rule == "minmax" else "absolute", ROUNDS)
    return sums


def _unit_rows(channel: Channel, holdings: HoldingMap, adder: Adder) -> None:
    """Norms of rows go only to the one holder of each cohort that counts it."""
    parties = channel.parties
    (unit,) = units_above(channel, adder, ROW_SIZE)
    round_ = adder.advance()
    messages = {party: RowNormsRequest(round=round_, unit=float(unit)) for party in parties}
    totals = RunningTotals("z", Layout(holdings.rows, parties), 1, adder)
    totals.invite(messages)
    totals.add(channel.ask(ROW_NORMS, messages).insist("scaling rows"))

    def with_totals(asked: dict[str, LongestRequest]) -> None:
        wanted = {p: rows for p, rows in holdings.counted_rows.items() if len(rows)}
        for party, block in totals.pieces(wanted).items():
            asked[party].z = block

    (longest,) = ask_largest(channel, adder, LONGEST_ROW, first=with_totals) * unit
    # A hair above the largest norm, so that rounding cannot put a row outside the unit ball.
    factor = 1.0 / (np.sqrt(longest) * (1 + 1e-9)) if longest > 0 else 1.0
    told = ScaleRowsRequest(factor=float(factor))
    channel.ask(SCALE_ROWS, dict.fromkeys(parties, told)).insist("scaling rows")


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
