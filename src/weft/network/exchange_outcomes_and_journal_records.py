"""Asking several parties at once, and the outcome as the coordinator's journal keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from weft.errors import ProtocolError
from weft.network import clock
from weft.network.envelope_bytes import Damaged, Failed, Garbled, Reply, Worked, decode_reply
from weft.network.hide_paths import without_paths
from weft.network.record_and_replay_absences import Moment
from weft.network.transport_interface import Transport
from weft.protocol import Failure, Message, Phase, Request, fields_of, pack, unpack
from weft.thread_safe_decoding import prepared

#: Phases and packed messages for one party.
Parts = list[tuple[str, bytes]]


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class Answered(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """A party's replies, as in :class:`weft.network.envelope_bytes.Worked`."""

    replies: list[bytes]
    seconds: list[float]
    worked: list[int]


class NoAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Why there is no reply.

    Attributes
    ----------
    kind, reason
        As in :class:`weft.protocol.Failure`.
    sent
        Whether the party was asked at all.
    unsure
        Whether it may have done the work anyway.
    """

    kind: Literal["refused", "failed", "late", "unknown"]
    reason: str
    sent: bool = True
    unsure: bool = False


class RunStarted(_Struct, frozen=True):
    """The run began: its plan and every party's announcement, packed, and version of Weft."""

    plan: bytes
    announcements: dict[str, bytes]
    versions: dict[str, str]


class ExchangeOutcome(_Struct, frozen=True):
    """One exchange: the checksum of each party's envelope, and what came back."""

    number: int
    asked: dict[str, int]
    elapsed: float
    got: dict[str, Answered]
    lacking: dict[str, NoAnswer]


class Ground(_Struct, frozen=True):
    """The set-up is over; snapshots stand on it (`weft.network.coordinator_snapshots`)."""


class Chapter(_Struct, frozen=True):
    """Iterations and exchanges since the chapter before: rows of the history, and who was missing.

    ``history_from`` and ``moments_from`` say at which place of all of them they begin.
    """

    history_from: int
    history: list[list[Any]]
    moments_from: int
    moments: list[Moment]


class ChannelStanding(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """What a channel knows after an exchange, but for who was there.

    Attributes
    ----------
    answered, last, unsure
        Per party: its replies, the number of the last, and exchanges that it may have worked on.
    away
        Parties that are not asked at the moment: kind and reason of their failure.
    """

    number: int
    answered: dict[str, int]
    last: dict[str, int]
    unsure: dict[str, list[int]]
    now: float
    round_trips: int
    phases: dict[str, tuple[int, int, int, float, float]]
    away: dict[str, tuple[str, str]]


class Saved(_Struct, frozen=True):
    """A snapshot: the channel, the state that the coordinator goes on from, and a tag of both."""

    standing: ChannelStanding
    state: bytes
    tag: bytes = b""


JournalRecord = RunStarted | ExchangeOutcome | Ground | Chapter | Saved

_DECODER: msgspec.msgpack.Decoder[JournalRecord] = msgspec.msgpack.Decoder(prepared(JournalRecord))


def write_record(record: JournalRecord) -> bytes:
    return msgspec.msgpack.encode(record)


def read_record(record: bytes) -> JournalRecord:
    """The inverse of :func:`write_record`."""
    try:
        return _DECODER.decode(record)
    except msgspec.MsgspecError as error:
        raise ProtocolError(
            f"the run's journal cannot be read ({error}); resume the run with the version of Weft "
            "that it began with"
        ) from None


def parts_of(requests: Sequence[Request[Any, Any]]) -> dict[str, Parts]:
    """The phases and messages for every party, in order."""
    parts: dict[str, Parts] = {}
    for request in requests:
        for party, message in request.messages.items():
            parts.setdefault(party, []).append((request.phase.name, pack(fields_of(message))))
    return parts


#: Seconds at least for what is asked once more.
_AGAIN = 1.0
_MISFIT = "its reply does not fit what it was asked"


def ask(
    transport: Transport, envelopes: Mapping[str, bytes], timeout: float
) -> dict[str, Reply | Failure]:
    """Decoded replies; a reply that was damaged in transit is asked for once more."""
    found: dict[str, Reply | Failure] = {}
    waiting, until = dict(envelopes), clock.now() + timeout
    for wait in (timeout, None):
        left = max(_AGAIN, until - clock.now()) if wait is None else wait
        answers = transport.send(waiting, left) if waiting else {}
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
    if isinstance(reply, Failed):
        # Also of a site that tells them: submitters and the record of presence repeat the reason.
        return msgspec.structs.replace(reply, reason=without_paths(reply.reason))
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
