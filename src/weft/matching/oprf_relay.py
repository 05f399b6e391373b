"""Matching through key holders: the coordinator's half, which carries letters it cannot read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from weft.errors import ConfigError, ProtocolError
from weft.matching.messages import (
    ASK,
    EVALUATE,
    HELLO,
    TOKENS,
    AskReply,
    AskRequest,
    Cards,
    EvaluateRequest,
    HelloRequest,
    TokensReply,
    TokensRequest,
)
from weft.matching.oprf_announcement_and_limits import most_ids, parts_of, read_announcement
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
    # Parts of ids go through both keys one after the other; who has fewer of them is done sooner.
    asking, part = parties, 0
    parts: dict[str, int] = {}
    while asking:
        for hop, holder in enumerate(chosen):
            asked = {
                p: AskRequest(hop=hop, part=part, holder=cards[holder], box=boxes.get(p))
                for p in asking
            }
            letters = channel.ask(ASK, asked).insist("matching")
            if part == hop == 0:
                parts = {p: _believed(p, cards[p], letters[p].parts) for p in asking}
            answers = _evaluated(channel, holder, hop, part, cards, letters)
            boxes |= zip(asking, answers, strict=True)
        part += 1
        channel.tell(_how_far(part, max(parts.values())))
        asking = tuple(p for p in asking if parts[p] > part)
    last = {party: replace(question, box=boxes[party]) for party in parties}
    return channel.ask(TOKENS, last).insist("matching")


def _evaluated(
    channel: Channel,
    holder: str,
    hop: int,
    part: int,
    cards: Mapping[str, bytes],
    letters: Mapping[str, AskReply],
) -> list[bytes]:
    """A key holder's answers to letters, in their order."""
    told = EvaluateRequest(
        hop=hop,
        part=part,
        cards=Cards.of([cards[p] for p in letters]),
        boxes=Boxes.of([reply.box for reply in letters.values()]),
    )
    answers = channel.ask(EVALUATE, {holder: told}).insist("matching")[holder].boxes.cut()
    if len(answers) != len(letters):
        raise ProtocolError(f"key holder {holder} answered {len(answers)} of {len(letters)}")
    return answers


def _believed(party: str, card: bytes, parts: int) -> int:
    """How many letters a party has for a key holder, if it announced rows for so many."""
    announced = read_announcement(card)
    if announced is None:
        raise ProtocolError(f"party {party} announced what cannot be read; have it use this Weft")
    if not 1 <= parts <= parts_of(most_ids(announced.rows)):
        # How many, of how many, is nobody's business who reads refusals.
        raise ProtocolError(
            f"party {party} has ids in more parts than its rows can be, or in none; stop this run "
            "and find out why"
        )
    return parts


def _how_far(part: int, parts: int) -> str:
    """How much is matched, in tens: finer steps would fill a log."""
    return f"{part * 10 // parts * 10} % of the ids are matched" if part < parts else ""


def _check_holders(chosen: Sequence[str], parties: Sequence[str]) -> None:
    strangers = [name for name in chosen if name not in parties]
    if strangers:
        raise ConfigError(f"key holder '{strangers[0]}' is no party of this run; name one that is")
    if not chosen or len(set(chosen)) < len(chosen):
        raise ConfigError("name at least one key holder for matching, and each only once")
