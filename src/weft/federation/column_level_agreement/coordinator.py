"""The coordinator's side of declared columns: it compares tokens and carries lists, unread."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from weft.array_types import Ints
from weft.errors import DataError, ProtocolError
from weft.federation.column_level_agreement.messages import (
    DIFFERENT,
    JOIN_LEVELS,
    LIST_COLUMNS,
    TAKE_LEVELS,
    ColumnsReply,
    ColumnsRequest,
    DifferentRequest,
    JoinLevelsRequest,
    TakeLevelsRequest,
)
from weft.protocol import Channel
from weft.protocol.shared_fields import Boxes, Everyone

_DIFFERENT = (
    "two parties declare the same column in different ways; the logs of their sites name it: let "
    "all that hold it say the same about it"
)


def agree_on_columns(channel: Channel, company: Everyone | None, *, confirmed: bool) -> None:
    """Let holders of a column find out that they declare it alike, and agree on levels.

    Parameters
    ----------
    company
        All parties, where the cipher hides anything.
    confirmed
        Whether levels that look like the same in another writing are meant to be different.
    """
    asked = dict.fromkeys(channel.parties, ColumnsRequest(company=company))
    replies = channel.ask(LIST_COLUMNS, asked).insist("comparing columns")
    for party, reply in replies.items():
        _check(party, reply)
    _refuse_differences(channel, replies)
    agreed = _joined(channel, replies, confirmed=confirmed)
    told = {party: _levels_for(reply, agreed) for party, reply in replies.items()}
    channel.ask(TAKE_LEVELS, told).insist("agreeing on levels")


def _check(party: str, reply: ColumnsReply) -> None:
    sizes = [
        (len(reply.names), len(reply.rules)),
        (len(reply.left), len(reply.right)),
        (len(reply.open), len(reply.levels.lengths)),
    ]
    if any(one != other for one, other in sizes) or not np.isin(reply.open, reply.names).all():
        raise ProtocolError(f"party {party} sent tokens of columns that do not fit each other")


# ── differences ───────────────────────────────────────────────────────────────────────────────


def _refuse_differences(channel: Channel, replies: Mapping[str, ColumnsReply]) -> None:
    """Stop where two holders say different things, and let each tell its owner which it is."""
    said: dict[int, set[int]] = {}
    for reply in replies.values():
        for name, rule in zip(reply.names.tolist(), reply.rules.tolist(), strict=True):
            said.setdefault(name, set()).add(rule)
    different = {name for name, rules in said.items() if len(rules) > 1}
    different |= _lone_products(replies)
    if not different:
        return
    places = {party: _places(reply, different) for party, reply in replies.items()}
    asked = {p: DifferentRequest(places=at) for p, at in places.items() if len(at)}
    refused = channel.ask(DIFFERENT, asked).missing
    named = "; ".join(f"{party}: {failure.reason}" for party, failure in refused.items())
    raise DataError(
        f"{' and '.join(asked)} declare {len(different)} column(s) in different ways ({named}); "
        "let all that hold a column say the same about it",
        # Who has columns in common with whom, and how many, is not for a submitter.
        told=_DIFFERENT,
    )


def _lone_products(replies: Mapping[str, ColumnsReply]) -> set[int]:
    """Columns that one party multiplies, and another with both of them does not."""
    pairs = {
        party: set(zip(reply.left.tolist(), reply.right.tolist(), strict=True))
        for party, reply in replies.items()
    }
    found: set[int] = set()
    for pair in set().union(*pairs.values()):
        for party, reply in replies.items():
            if pair not in pairs[party] and np.isin(pair, reply.names).all():
                found.update(pair)
    return found


def _places(reply: ColumnsReply, wanted: set[int]) -> Ints:
    return np.array([i for i, name in enumerate(reply.names.tolist()) if name in wanted], np.int64)


# ── levels ────────────────────────────────────────────────────────────────────────────────────


def _joined(
    channel: Channel, replies: Mapping[str, ColumnsReply], *, confirmed: bool
) -> dict[int, bytes]:
    """Per category the list of all its holders, which the first of them joins."""
    lists: dict[int, list[bytes]] = {}
    joiner: dict[int, str] = {}
    for party, reply in replies.items():
        for name, box in zip(reply.open.tolist(), reply.levels.cut(), strict=True):
            lists.setdefault(name, []).append(box)
            joiner.setdefault(name, party)
    asked = {}
    for party in dict.fromkeys(joiner.values()):
        names = [name for name, first in joiner.items() if first == party]
        asked[party] = JoinLevelsRequest(
            names=np.array(names, np.uint64),
            counts=np.array([len(lists[name]) for name in names], np.int64),
            # In an order that tells nothing of whose they are.
            lists=Boxes.of([box for name in names for box in sorted(lists[name])]),
            confirmed=confirmed,
        )
    agreed: dict[int, bytes] = {}
    told = channel.ask(JOIN_LEVELS, asked).insist("agreeing on levels") if asked else {}
    for party, answered in told.items():
        boxes = answered.levels.cut()
        if len(boxes) != len(asked[party].names):
            raise ProtocolError(f"party {party} sent lists of other categories than it was asked")
        agreed.update(zip(asked[party].names.tolist(), boxes, strict=True))
    return agreed


def _levels_for(reply: ColumnsReply, agreed: Mapping[int, bytes]) -> TakeLevelsRequest:
    return TakeLevelsRequest(
        names=reply.open, levels=Boxes.of([agreed[name] for name in reply.open.tolist()])
    )
