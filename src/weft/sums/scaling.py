"""Federated scaling: every party scales a column the same way, from sums alone.

``standard``: mean and standard deviation over all cells held (each cell once).
``minmax``: the column's range to [0, 1]. ``maxabs``: divide by the largest absolute value.
Then, if wished, all rows by one public constant, so that ‖x_i‖ ≤ 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.channels import Channel, Message
from weft.channels.message import array, integer, number, text
from weft.crypto import Adder, Cipher
from weft.errors import ConfigError
from weft.matching.roster import Roster
from weft.matching.seat import Seat
from weft.sums.contribution import Wire
from weft.sums.extremes import (
    EXPONENT_ROUNDS,
    ROUNDS,
    answer_largest,
    ask_largest,
    extend,
    keys_of,
    reached,
    unit_above,
    values_of,
)
from weft.sums.local_table import Block, build_table, counted_once
from weft.sums.totals import Layout, RunningTotals

Floats = NDArray[np.float64]
Moments = Callable[[Floats, NDArray[np.int32]], tuple[Floats, Floats]]
Rule = Literal["none", "standard", "minmax", "maxabs"]


class ScalingParty:
    """A party's half: statistics of its columns, then their common shift and factor."""

    def __init__(
        self, seat: Seat, blocks: Sequence[Block], bias_value: float | None, cipher: Cipher
    ) -> None:
        self._seat = seat
        self._blocks = blocks
        self._bias = bias_value
        self._wire = Wire("v", seat.contributors, cipher)
        self._z = Wire("z", seat.contributors, cipher)
        m = seat.n_columns
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
        self._squares: Floats = np.zeros((seat.n_rows, 1))

    # ── extremes of columns ───────────────────────────────────────────────────────────────

    def extremes(self, message: Message) -> Message:
        """One digit of the columns' maxima (of x and −x, of |x|, or of |x − mean|)."""
        round_ = integer(message, "round")
        if round_ == 0:
            of = text(message, "of")
            if of == "deviation":
                self._take_mean(message)
            self._start_extremes(of)
        else:
            self._extend(message, round_ - 1)
        flags = [
            reached(keys, prefix, round_)
            for keys, prefix in zip(self._keys, self._prefix, strict=True)
        ]
        self._flags = np.concatenate(flags, axis=1)
        shared = self._seat.n_shared_columns
        return {"v": self._wire.send(self._flags[:shared])} if shared else {}

    def _start_extremes(self, of: str) -> None:
        """Keys of this party's own extremes; a column without a value says −∞."""
        m = self._seat.n_columns
        low, high = np.full(m, np.inf), np.full(m, -np.inf)
        for tile, block in enumerate(self._blocks):
            columns = self._seat.tile_columns[tile]
            smallest, largest = _range_of(block, self._seat.tile_rows[tile] >= 0)
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

    def _extend(self, message: Message, round_: int) -> None:
        totals = self._flags
        shared = self._seat.n_shared_columns
        if shared:
            totals[:shared] = self._wire.open(array(message, "v"))
        for i in range(len(self._prefix)):
            part = totals[:, 15 * i : 15 * (i + 1)]
            self._prefix[i] = extend(self._prefix[i], part, round_)

    # ── moments ───────────────────────────────────────────────────────────────────────────

    def sums(self, message: Message) -> Message:
        """Cells and their sum per column, in units of the column's magnitude."""
        self._extend(message, EXPONENT_ROUNDS - 1)
        self._unit = self._power_of_two_above()
        return self._moment(lambda x, columns: (np.ones_like(x), x / self._unit[columns]))

    def _take_mean(self, message: Message) -> None:
        total = self._totals(message)
        self._count = np.maximum(total[:, 0], 1e-300)
        self._mean = total[:, 1] / self._count * self._unit

    def spread(self, message: Message) -> Message:
        """Σ (x − mean) and Σ (x − mean)² per column, in units of its largest deviation.

        The unit follows the spread and not the magnitude, so that a column far from zero loses
        no digits; the first sum mends what the mean lost.
        """
        self._extend(message, EXPONENT_ROUNDS - 1)
        self._magnitude = self._unit
        self._unit = self._power_of_two_above()

        def powers(x: Floats, columns: NDArray[np.int32]) -> tuple[Floats, Floats]:
            deviation = (x - self._mean[columns]) / self._unit[columns]
            return deviation, deviation**2

        return self._moment(powers)

    def _power_of_two_above(self) -> Floats:
        """2^e above every value of the column, from the digits of its exponent."""
        below = np.uint64(2 ** (64 - 4 * EXPONENT_ROUNDS) - 1)
        bound = values_of(self._prefix[0] | below)
        known = np.isfinite(bound) & (bound > 0)
        _, exponent = np.frexp(np.where(known, bound, 1.0))
        return np.where(known, np.ldexp(1.0, exponent), 1.0)

    def _moment(self, function: Moments) -> Message:
        """Two sums per column over the cells known here, each cell counted once over all."""
        part = np.zeros((self._seat.n_columns, 2))
        for tile, block in enumerate(self._blocks):
            columns = self._seat.tile_columns[tile]
            kept = self._seat.tile_rows[tile] >= 0
            weights = counted_once(self._seat, tile, block)
            x = block if isinstance(block, np.ndarray) else block.toarray()
            known = ~np.isnan(x) & kept[:, None]
            weight = known.astype(np.float64) if weights is None else known * weights
            for i, values in enumerate(function(np.where(known, x, 0.0), columns)):
                np.add.at(part[:, i], columns, (values * weight).sum(axis=0))
        self._part = part / self._seat.n_samples
        shared = self._seat.n_shared_columns
        return {"v": self._wire.send(self._part[:shared])} if shared else {}

    def _totals(self, message: Message) -> Floats:
        total = self._part
        shared = self._seat.n_shared_columns
        if shared:
            total[:shared] = self._wire.open(array(message, "v"))
        return total

    # ── the agreed scaling ────────────────────────────────────────────────────────────────

    def finish(self, message: Message) -> Message:
        """Shift and factor of every column."""
        rule = text(message, "rule")
        if rule == "standard":
            first, second = (self._totals(message) / self._count[:, None]).T
            deviation = np.sqrt(np.maximum(second - first**2, 0.0)) * self._unit
            self.shift = self._mean + first * self._unit
            # A column that varies by no more than rounding is constant: centred, not blown up.
            self.factor = _inverse(deviation, 1e-12 * self._magnitude)
        else:
            self._extend(message, ROUNDS - 1)
            high = values_of(self._prefix[0])
            known = np.isfinite(high)
            width = magnitude = np.where(known, high, 0.0)
            if rule == "minmax":
                self.shift = np.where(known, -values_of(self._prefix[1]), 0.0)
                width = magnitude - self.shift
                magnitude = np.maximum(np.abs(magnitude), np.abs(self.shift))
            self.factor = _inverse(width, 10 * np.finfo(np.float64).eps * magnitude)
        if self._seat.bias_slot >= 0:
            self.shift[self._seat.bias_slot] = 0.0
            self.factor[self._seat.bias_slot] = 1.0
        return {}

    # ── rows ──────────────────────────────────────────────────────────────────────────────

    def size(self, blocks: Sequence[Block], message: Message) -> Message:
        """One digit of the largest share of ‖x_i‖² that any party has."""
        if integer(message, "round") == 0:
            self._squares = build_table(self._seat, blocks, self._bias).squares
        return answer_largest(float(self._squares.max(initial=0.0)), message)

    def norms(self, message: Message) -> Message:
        """This party's share of ‖x_i‖² of the scaled rows, in a common unit."""
        self._squares = self._squares / number(message, "unit")
        shared = self._seat.n_shared_rows
        return {"z": self._z.send(self._squares[:shared])} if shared else {}

    def longest(self, message: Message) -> Message:
        """One digit of the largest squared norm, in that unit."""
        if "z" in message:
            rows = self._seat.counted_shared_rows
            self._squares[rows] = self._z.open(array(message, "z"), rows)
        counted = self._squares[self._seat.counted_rows]
        return answer_largest(float(counted.max(initial=0.0)), message)


def agree_on_scaling(
    channel: Channel, roster: Roster, rule: Rule, unit_rows: bool, adder: Adder
) -> None:
    """Coordinator: lead the parties to a common scaling, which it never sees."""
    if rule == "none" and not unit_rows:
        return
    if rule != "none" and roster.overlap == "sum":
        raise ConfigError(
            f"scaling = '{rule}' has no meaning for cells that are additive shares "
            "(overlap = 'sum'); scale the table before it is dealt out"
        )
    columns = Layout(roster.columns, roster.parties)
    if rule != "none":
        messages = _column_messages(channel, columns, rule, adder)
        channel.ask("scale.finish", {p: {**m, "rule": rule} for p, m in messages.items()}).insist(
            "scaling"
        )
    if unit_rows:
        _unit_rows(channel, roster, adder)


def _column_messages(
    channel: Channel, columns: Layout, rule: Rule, adder: Adder
) -> dict[str, Message]:
    """Lead to the last sums; returns each party's totals of them."""

    def digits(messages: dict[str, Message], of: str, rounds: int) -> dict[str, Message]:
        for round_ in range(rounds):
            asked: dict[str, Message] = {
                p: {**m, "round": round_, "of": of} for p, m in messages.items()
            }
            width = 30 if of == "range" else 15
            messages = _feature_sum(channel, "scale.extremes", asked, columns, width, adder)
        return messages

    messages: dict[str, Message] = {p: {} for p in channel.parties}
    if rule != "standard":
        return digits(messages, "range" if rule == "minmax" else "absolute", ROUNDS)
    messages = digits(messages, "absolute", EXPONENT_ROUNDS)
    messages = _feature_sum(channel, "scale.sums", messages, columns, 2, adder)
    messages = digits(messages, "deviation", EXPONENT_ROUNDS)
    return _feature_sum(channel, "scale.spread", messages, columns, 2, adder)


def _feature_sum(
    channel: Channel,
    phase: str,
    messages: dict[str, Message],
    columns: Layout,
    width: int,
    adder: Adder,
) -> dict[str, Message]:
    """One feature sum; returns each party's totals as the next message."""
    replies = channel.ask(phase, messages).insist("scaling")
    totals = RunningTotals("v", columns, width, adder)
    totals.add(replies)
    blocks = totals.blocks(channel.parties)
    return {p: {"v": b} if len(b) else {} for p, b in blocks.items()}


def _unit_rows(channel: Channel, roster: Roster, adder: Adder) -> None:
    """Norms of rows go only to the one holder of each cohort that counts it."""
    parties = channel.parties
    unit = unit_above(channel, "scale.size")
    messages: dict[str, Message] = {p: {"unit": unit} for p in parties}
    replies = channel.ask("scale.norms", messages).insist("scaling rows")
    totals = RunningTotals("z", Layout(roster.rows, parties), 1, adder)
    totals.add(replies)
    first: dict[str, Message] = {
        p: {"z": totals.take(p, rows)} if len(rows) else {}
        for p, rows in roster.counted_rows.items()
    }
    longest = ask_largest(channel, "scale.longest", first) * unit
    # A hair above the largest norm, so that rounding cannot put a row outside the unit ball.
    factor = 1.0 / (np.sqrt(longest) * (1 + 1e-9)) if longest > 0 else 1.0
    channel.ask("scale.rows", {p: {"factor": float(factor)} for p in parties}).insist(
        "scaling rows"
    )


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
