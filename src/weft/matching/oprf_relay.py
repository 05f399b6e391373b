"""Matching through key holders: the coordinator's half, which carries letters it cannot read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from weft.errors import ConfigError, ProtocolError
from weft.protocol import Channel, Message
from weft.protocol.message import binary

#: So many parties hold a key, unless there is but one party.
HOLDERS = 2


def tokens_through_holders(
    channel: Channel, question: Message, last: Message, holders: Sequence[str] | None
) -> dict[str, Message]:
    """What the parties announce and their tokens.

    Parameters
    ----------
    question, last
        What to tell every party first, and with the last letter.
    holders
        Who holds a key, in their order; None: the first two parties.
    """
    parties = channel.parties
    chosen = tuple(holders) if holders is not None else parties[:HOLDERS]
    _check_holders(chosen, parties)
    announced = _everyone(channel, "match.hello", {p: dict(question) for p in parties})
    cards = {party: binary(reply, "card") for party, reply in announced.items()}
    boxes: dict[str, bytes] = {}
    for hop, holder in enumerate(chosen):
        asked: dict[str, Message] = {p: {"hop": hop, "holder": cards[holder]} for p in parties}
        for party, box in boxes.items():
            asked[party]["box"] = box
        letters = _everyone(channel, "match.ask", asked)
        told: Message = {
            "hop": hop,
            "cards": pack([cards[p] for p in parties]),
            "boxes": pack([binary(letters[p], "box") for p in parties]),
        }
        reply = _everyone(channel, "match.evaluate", {holder: told})[holder]
        answers = unpack(binary(reply, "boxes"))
        if len(answers) != len(parties):
            raise ProtocolError(f"key holder {holder} answered {len(answers)} of {len(parties)}")
        boxes = dict(zip(parties, answers, strict=True))
    tokens = _everyone(channel, "match.tokens", {p: {**last, "box": boxes[p]} for p in parties})
    return {party: {**announced[party], **tokens[party]} for party in parties}


def _check_holders(chosen: Sequence[str], parties: Sequence[str]) -> None:
    strangers = [name for name in chosen if name not in parties]
    if strangers:
        raise ConfigError(f"key holder '{strangers[0]}' is no party of this run; name one that is")
    if not chosen or len(set(chosen)) < len(chosen):
        raise ConfigError("name at least one key holder for matching, and each only once")


def _everyone(channel: Channel, phase: str, asked: Mapping[str, Message]) -> dict[str, Message]:
    return channel.ask(phase, asked).insist("matching")


def pack(parts: Sequence[bytes]) -> bytes:
    """Several byte strings in one."""
    return msgspec.msgpack.encode(list(parts))


def unpack(content: bytes) -> list[bytes]:
    """What :meth:`pack` joined."""
    try:
        return msgspec.msgpack.decode(content, type=list[bytes])
    except msgspec.MsgspecError:
        raise ProtocolError("a message is malformed: it should hold several boxes") from None
