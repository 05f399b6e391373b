"""The outcome of an exchange, as the coordinator's journal keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from weft.errors import ProtocolError
from weft.protocol import Request, fields_of, pack

#: Phases and packed messages for one party.
Parts = list[tuple[str, bytes]]


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class Answered(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """A party's replies, as in :class:`weft.network.envelope.Worked`."""

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
    """The run began: its plan and every party's announcement, packed."""

    plan: bytes
    announcements: dict[str, bytes]


class ExchangeOutcome(_Struct, frozen=True):
    """One exchange: the checksum of each party's envelope, and what came back."""

    number: int
    asked: dict[str, int]
    elapsed: float
    got: dict[str, Answered]
    lacking: dict[str, NoAnswer]


_DECODER: msgspec.msgpack.Decoder[RunStarted | ExchangeOutcome] = msgspec.msgpack.Decoder(
    RunStarted | ExchangeOutcome
)


def write_record(record: RunStarted | ExchangeOutcome) -> bytes:
    return msgspec.msgpack.encode(record)


def read_record(record: bytes) -> RunStarted | ExchangeOutcome:
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
