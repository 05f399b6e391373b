"""One question to several parties through a post, and what their replies say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.errors import ProtocolError
from weft.network.envelope import Damaged, Failed, Garbled, Reply, Worked, decode_reply
from weft.network.exchange_outcome import Got, Lacking
from weft.network.transport import Post
from weft.protocol import Failure, Message, Phase, unpack

_MISFIT = "its reply does not fit what it was asked"


def ask(post: Post, letters: Mapping[str, bytes], timeout: float) -> dict[str, Reply | Failure]:
    """Replies as they are read; what was damaged on the way is asked for once more."""
    found: dict[str, Reply | Failure] = {}
    waiting = dict(letters)
    for _ in range(2):
        answers = post.send(waiting, timeout) if waiting else {}
        for party in waiting:
            answer = answers.get(party, Failure("unknown", "the network does not know it"))
            found[party] = answer if isinstance(answer, Failure) else _decode(answer)
        waiting = {p: letters[p] for p in waiting if isinstance(found[p], Garbled)}
    return found


def _decode(answer: bytes) -> Reply | Failure:
    try:
        reply = decode_reply(answer)
    except Damaged:
        return Garbled("its reply was damaged on the way")
    except ProtocolError as error:
        return Failure("refused", str(error))
    return Garbled("what it was sent was damaged on the way") if type(reply) is Garbled else reply


def outcome_of(reply: Reply | Failure, number: int, parts: int) -> Got | Lacking:
    """What came of an exchange with one party."""
    match reply:
        case Worked() if reply.number == number and len(reply.replies) == parts:
            return Got(reply.replies, reply.seconds, reply.worked)
        case Failure():
            return Lacking(reply.kind, reply.reason, unsure=reply.kind != "refused")
        case Failed():
            return Lacking(reply.kind, reply.reason)
        case Garbled():
            return Lacking("failed", reply.reason, unsure=True)
    return Lacking("refused", _MISFIT)


def failure_of(reply: Reply | Failure) -> Failure:
    """Why a reply is not the one that was hoped for."""
    match reply:
        case Failure():
            return reply
        case Failed():
            return Failure(reply.kind, reply.reason)
        case Garbled():
            return Failure("failed", reply.reason)
    return Failure("refused", _MISFIT)


def not_there(missing: Mapping[str, Failure]) -> ProtocolError:
    """Why a run cannot begin."""
    who = "; ".join(f"{party} ({failure.reason})" for party, failure in missing.items())
    if any(failure.kind == "refused" for failure in missing.values()):
        return ProtocolError(f"the run cannot begin, for it was refused: {who}")
    return ProtocolError(
        f"the run cannot begin without every party, but there was no answer from {who}; start "
        "them, and try again"
    )


def reply_of(phase: Phase[Any, Any], party: str, packed: bytes) -> Message:
    """A party's reply; what is not as declared stops the run."""
    try:
        reply: Message = phase.read_reply(unpack(packed))
    except ProtocolError as error:
        raise ProtocolError(
            f"party {party} sent a reply to phase '{phase.name}' that cannot be used: {error}"
        ) from None
    return reply
