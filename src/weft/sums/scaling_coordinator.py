"""Federated scaling: every party scales a column the same way, from sums alone.

``standard``: mean and standard deviation over all cells held (each cell once).
``minmax``: the column's range to [0, 1]. ``maxabs``: divide by the largest absolute value.
Then, if wished, all rows by one public constant, so that ‖x_i‖ ≤ 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from weft.crypto import Adder
from weft.errors import ConfigError
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Phase
from weft.sums.column_scaling_rules import Rule
from weft.sums.coordinator_totals import IncrementTotals
from weft.sums.maxima_from_digit_sums import (
    EXPONENT_ROUNDS,
    ROUNDS,
    ask_largest,
    units_above,
)
from weft.sums.shared_slots_by_party import Layout
from weft.sums.table_scaling_and_certificate_messages import (
    COLUMN_SPREAD,
    COLUMN_SUMS,
    EXTREMES,
    FINISH_SCALING,
    LONGEST_ROW,
    PENALTIES,
    ROW_NORMS,
    ROW_SIZE,
    SCALE_ROWS,
    ExtremesRequest,
    FeatureSumReply,
    FinishScalingRequest,
    LongestRequest,
    MomentsRequest,
    PenaltiesRequest,
    RowNormsRequest,
    ScaleRowsRequest,
)

S = TypeVar("S", ExtremesRequest, MomentsRequest)


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
        self._totals: IncrementTotals | None = None

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
        totals = IncrementTotals("v", self._columns, width, self._adder)
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
    totals = IncrementTotals("z", Layout(holdings.rows, parties), 1, adder)
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
