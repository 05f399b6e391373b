"""Matching through key holders: the coordinator's half, which carries letters it cannot read."""

from __future__ import annotations

from collections.abc import Sequence

from weft.crypto.key_messages import RunKeys
from weft.errors import ConfigError, ProtocolError
from weft.guards.terms import Matching
from weft.matching.agreed_classes import AgreedClasses
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
_MATCHING: Matching = "oprf"


def tokens_through_holders(
    channel: Channel, run: bytes, classes: AgreedClasses | None, holders: Sequence[str] | None
) -> tuple[dict[str, RunKeys], dict[str, TokensReply]]:
    """What the parties announce, and their tokens.

    Parameters
    ----------
    run
        Random name of the run.
    classes
        The classes of the run, if labels are classes.
    holders
        Who holds a key, in their order; None: the first two parties.
    """
    parties = channel.parties
    chosen = tuple(holders) if holders is not None else parties[:HOLDERS]
    _check_holders(chosen, parties)
    greeted = {party: HelloRequest(run=run) for party in parties}
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
    last = {
        p: TokensRequest(run=run, matching=_MATCHING, classes=classes, box=boxes[p])
        for p in parties
    }
    tokens = channel.ask(TOKENS, last).insist("matching")
    return {party: reply.keys for party, reply in hello.items()}, tokens


def _check_holders(chosen: Sequence[str], parties: Sequence[str]) -> None:
    strangers = [name for name in chosen if name not in parties]
    if strangers:
        raise ConfigError(f"key holder '{strangers[0]}' is no party of this run; name one that is")
    if not chosen or len(set(chosen)) < len(chosen):
        raise ConfigError("name at least one key holder for matching, and each only once")
