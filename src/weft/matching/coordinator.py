"""Matching over the channel: the parties tell tokens, the coordinator seats them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import token_bytes

import numpy as np
from numpy.typing import NDArray

from weft.crypto import Adder
from weft.crypto.primitives.hash_tree import ways
from weft.errors import DataError, ProtocolError
from weft.guards.terms import OPEN, Matching, Terms
from weft.matching.build_holdings import Holding, LabelConflict, build_holdings
from weft.matching.cohort_seeds import ask_for_seeds, deliver
from weft.matching.holding_map import HoldingMap, Overlap
from weft.matching.oprf_relay import tokens_through_holders
from weft.protocol import Channel, Message
from weft.protocol.message import Value, array, integer, text


def meet(
    channel: Channel,
    adder: Adder,
    *,
    classes: NDArray[np.generic] | None,
    overlap: Overlap = "mean",
    bias: float | None = None,
    confirm_separate_ids: bool = False,
    follow_draws: bool = True,
    terms: Terms = OPEN,
    matching: Matching = "hmac",
    holders: Sequence[str] | None = None,
    run: bytes | None = None,
) -> HoldingMap:
    """Coordinator: collect tokens, build the holdings, tell every party its view, carry boxes.

    Parameters
    ----------
    adder
        Learns the parties' public keys.
    classes
        The class values the federation agreed on, None for regression.
    bias
        Value of the constant column, None for no constant column.
    follow_draws
        Whether parties must be able to compute each other's draws.
    terms
        What the parties agreed on.
    matching
        Whether tokens come from the run secret alone, or also through key holders.
    holders
        Who holds a key for matching, in their order; None: the first two parties.
    run
        Sixteen random bytes that name the run; None: fresh ones.
    """
    parties = channel.parties
    answered = _tokens(channel, classes, matching, holders, run or token_bytes(16))
    check_secrets(answered)
    try:
        holdings = build_holdings(
            parties,
            [_holding(party, answered[party]) for party in parties],
            overlap=overlap,
            bias=bias is not None,
            confirm_separate_ids=confirm_separate_ids,
            terms=terms,
        )
    except LabelConflict as conflict:
        raise DataError(_told(channel, conflict)) from None
    seats = {}
    for number, party in enumerate(parties):
        seats[party] = holdings.view(number, follow_draws=follow_draws).to_message()
        if bias is not None:
            seats[party]["bias_value"] = bias
    keys = [_bytes(party, answered[party], "public", 64) for party in parties]
    nonces = [_bytes(party, answered[party], "nonce", 16) for party in parties]
    cards = [key + nonce for key, nonce in zip(keys, nonces, strict=True)]
    if adder.linked:
        ask_for_seeds(holdings, seats, cards, places=adder.whole)
        for party, way in zip(parties, ways(nonces), strict=True):
            seats[party]["way"] = way
    replies = channel.ask("match.view", seats).insist("seating")
    public = replies[parties[0]].get("shared.public", b"")
    adder.meet(parties, cards, _key(replies), public if isinstance(public, bytes) else b"")
    boxes: dict[str, Message] = {party: {} for party in parties}
    if adder.linked:
        boxes = deliver(parties, seats, replies)
    # Asked under every cipher, so that a run takes the same round trips.
    channel.ask("match.keys", boxes).insist("handing out keys")
    return holdings


def _tokens(
    channel: Channel,
    classes: NDArray[np.generic] | None,
    matching: Matching,
    holders: Sequence[str] | None,
    name: bytes,
) -> dict[str, Message]:
    """What every party announces, and its tokens: one round trip, or six through key holders."""
    run: Message = {"run": name}
    question: Message = {"matching": matching}
    if classes is not None:
        question["classes"] = classes
    if matching == "oprf":
        return tokens_through_holders(channel, run, question, holders)
    asked = {party: {**run, **question} for party in channel.parties}
    return channel.ask("match.tokens", asked).insist("matching")


def _told(channel: Channel, conflict: LabelConflict) -> str:
    """The parties concerned say which rows of theirs have the labels: only they know."""
    asked: dict[str, Message] = {
        party: {"places": places} for party, places in conflict.places.items()
    }
    refused = channel.ask("match.conflict", asked).missing
    return conflict.sentence({party: failure.reason for party, failure in refused.items()})


def check_secrets(answered: Mapping[str, Message]) -> None:
    """Parties whose run secrets differ would only see noise in each other's sums."""
    marks = {party: text(reply, "mark") for party, reply in answered.items()}
    first = next(iter(marks))
    for party, mark in marks.items():
        if mark != marks[first]:
            raise ProtocolError(
                f"parties {first} and {party} hold different run secrets; hand out one with "
                "`weft keys new` and let both use it"
            )


def _key(replies: Mapping[str, Message]) -> int:
    """The public number of the run's key, which all parties must name."""
    numbers = {party: integer(reply, "key") for party, reply in replies.items()}
    first = next(iter(numbers))
    for party, number in numbers.items():
        if number != numbers[first]:
            raise ProtocolError(f"parties {first} and {party} derived different keys; use one run")
    return numbers[first]


def _bytes(party: str, reply: Message, field: str, length: int) -> bytes:
    value = reply.get(field)
    if not isinstance(value, bytes) or len(value) != length:
        raise ProtocolError(f"party {party} announced no '{field}' of {length} bytes; update it")
    return value


def _holding(party: str, message: dict[str, Value]) -> Holding:
    def cut(field: str, counts: str) -> tuple[NDArray[np.generic], ...]:
        bounds = np.cumsum(array(message, counts))[:-1]
        return tuple(np.split(array(message, field), bounds))

    rows, places = array(message, "rows"), array(message, "loose.rows")
    loose = rows.copy()
    inside = not len(places) or (places.min() >= 0 and places.max() < len(rows))
    if not inside or len(places) != len(array(message, "loose")):
        raise ProtocolError(f"party {party} sent loose forms of other rows than its own")
    loose[places] = array(message, "loose")
    return Holding(
        rows=cut("rows", "row_counts"),  # type: ignore[arg-type]
        columns=cut("columns", "column_counts"),  # type: ignore[arg-type]
        labelled=cut("labelled", "row_counts"),  # type: ignore[arg-type]
        labels=cut("labels", "row_counts"),  # type: ignore[arg-type]
        loose=loose,
    )
