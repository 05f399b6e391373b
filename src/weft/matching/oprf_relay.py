"""Matching through key holders: the coordinator's half, which carries letters it cannot read."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from weft.errors import ConfigError, ProtocolError
from weft.matching.messages import (
    ASK,
    EVALUATE,
    HELLO,
    TOKENS,
    AskRequest,
    Cards,
    EvaluateRequest,
    HelloRequest,
    TokensReply,
    TokensRequest,
)
from weft.protocol import Channel
from weft.protocol.shared_fields import Boxes

#: So many parties hold a key, unless there is but one party.
HOLDERS = 2


def tokens_through_holders(
    channel: Channel, question: TokensRequest, holders: Sequence[str] | None
) -> dict[str, TokensReply]:
    """The parties' tokens.

    Parameters
    ----------
    question
        What every party is asked, but for the answer of the last key holder.
    holders
        Who holds a key, in their order; None: the first two parties.
    """
    parties = channel.parties
    chosen = tuple(holders) if holders is not None else parties[:HOLDERS]
    _check_holders(chosen, parties)
    greeted = {party: HelloRequest(run=question.run) for party in parties}
    hello = channel.ask(HELLO, greeted).insist("matching")
    cards = {party: reply.card for party, reply in hello.items()}
    boxes: dict[str, bytes] = {}
    for hop, holder in enumerate(chosen):
        asked = {p: AskRequest(hop=hop, holder=cards[holder], box=boxes.get(p)) for p in parties}
        letters = channel.ask(ASK, asked).insist("matching")
        told = EvaluateRequest(
            hop=hop,
            cards=Cards.of([cards[p] for p in parties]),
            boxes=Boxes.of([letters[p].box for p in parties]),
        )
        reply = channel.ask(EVALUATE, {holder: told}).insist("matching")[holder]
        answers = reply.boxes.cut()
        if len(answers) != len(parties):
            raise ProtocolError(f"key holder {holder} answered {len(answers)} of {len(parties)}")
        boxes = dict(zip(parties, answers, strict=True))
    last = {party: replace(question, box=boxes[party]) for party in parties}
    return channel.ask(TOKENS, last).insist("matching")


def _check_holders(chosen: Sequence[str], parties: Sequence[str]) -> None:
    strangers = [name for name in chosen if name not in parties]
    if strangers:
        raise ConfigError(f"key holder '{strangers[0]}' is no party of this run; name one that is")
    if not chosen or len(set(chosen)) < len(chosen):
        raise ConfigError("name at least one key holder for matching, and each only once")
