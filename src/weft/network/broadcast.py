"""Asking several parties at once, and reading their replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.errors import ProtocolError
from weft.network.envelope import Damaged, Failed, Garbled, Reply, Worked, decode_reply
from weft.network.exchange_outcome import Answered, NoAnswer
from weft.network.transport import Transport
from weft.protocol import Failure, Message, Phase, unpack

_MISFIT = "its reply does not fit what it was asked"


def ask(
    transport: Transport, envelopes: Mapping[str, bytes], timeout: float
) -> dict[str, Reply | Failure]:
    """Decoded replies; a reply that was damaged in transit is asked for once more."""
    found: dict[str, Reply | Failure] = {}
    waiting = dict(envelopes)
    for _ in range(2):
        answers = transport.send(waiting, timeout) if waiting else {}
        for party in waiting:
            answer = answers.get(party, Failure("unknown", "the network does not know it"))
            found[party] = answer if isinstance(answer, Failure) else _decode(answer)
        waiting = {p: envelopes[p] for p in waiting if isinstance(found[p], Garbled)}
    return found


def _decode(answer: bytes) -> Reply | Failure:
    try:
        reply = decode_reply(answer)
    except Damaged:
        return Garbled("its reply was damaged on the way")
    except ProtocolError as error:
        return Failure("refused", str(error))
    return Garbled("what it was sent was damaged on the way") if type(reply) is Garbled else reply


def outcome_of(reply: Reply | Failure, number: int, parts: int) -> Answered | NoAnswer:
    """The outcome of an exchange with one party."""
    match reply:
        case Worked() if reply.number == number and len(reply.replies) == parts:
            return Answered(reply.replies, reply.seconds, reply.worked)
        case Failure():
            return NoAnswer(reply.kind, reply.reason, unsure=reply.kind != "refused")
        case Failed():
            return NoAnswer(reply.kind, reply.reason)
        case Garbled():
            return NoAnswer("failed", reply.reason, unsure=True)
    return NoAnswer("refused", _MISFIT)


def failure_of(reply: Reply | Failure) -> Failure:
    """The failure that an unexpected reply stands for."""
    match reply:
        case Failure():
            return reply
        case Failed():
            return Failure(reply.kind, reply.reason)
        case Garbled():
            return Failure("failed", reply.reason)
    return Failure("refused", _MISFIT)


def not_there(missing: Mapping[str, Failure]) -> ProtocolError:
    """The error for a run that cannot begin."""
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
