"""What came of an exchange, as the coordinator's journal keeps it."""

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


class Got(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """A party's replies, as in :class:`weft.network.envelope.Worked`."""

    replies: list[bytes]
    seconds: list[float]
    worked: list[int]


class Lacking(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Why there is no reply.

    Attributes
    ----------
    kind, reason
        As in :class:`weft.protocol.Failure`.
    sent
        Whether the party was asked at all.
    unsure
        Whether it may have worked on it all the same.
    """

    kind: Literal["refused", "failed", "late", "unknown"]
    reason: str
    sent: bool = True
    unsure: bool = False


class Greeted(_Struct, frozen=True):
    """The run began: its plan, and what every party announced, all packed."""

    plan: bytes
    announcements: dict[str, bytes]


class Outcome(_Struct, frozen=True):
    """One exchange: the checksum of each party's envelope, and what came back."""

    number: int
    asked: dict[str, int]
    elapsed: float
    got: dict[str, Got]
    lacking: dict[str, Lacking]


_DECODER: msgspec.msgpack.Decoder[Greeted | Outcome] = msgspec.msgpack.Decoder(Greeted | Outcome)


def write_record(record: Greeted | Outcome) -> bytes:
    return msgspec.msgpack.encode(record)


def read_record(record: bytes) -> Greeted | Outcome:
    """The inverse of :func:`write_record`."""
    try:
        return _DECODER.decode(record)
    except msgspec.MsgspecError as error:
        raise ProtocolError(
            f"the run's journal cannot be read ({error}); resume the run with the version of Weft "
            "that it began with"
        ) from None


def parts_of(requests: Sequence[Request[Any, Any]]) -> dict[str, Parts]:
    """What every party is asked, in its order."""
    parts: dict[str, Parts] = {}
    for request in requests:
        for party, message in request.messages.items():
            parts.setdefault(party, []).append((request.phase.name, pack(fields_of(message))))
    return parts
