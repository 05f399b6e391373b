"""Envelopes and replies as bytes: what travels between the coordinator and a site.

.. code-block:: text

    "WEFT", version (2 bytes), CRC-32 of everything else (4 bytes), content in MessagePack

The first ten bytes are the same in all versions, so that a later one is told from damage. Messages
inside are packed as :mod:`weft.protocol.message_bytes` does it; nothing can name code.
"""

from __future__ import annotations

import struct
from typing import Annotated, Literal, TypeVar
from zlib import crc32

import msgspec

from weft import __version__
from weft.errors import ProtocolError
from weft.network.versions import OtherVersion
from weft.thread_safe_decoding import prepared

_MARK, _VERSION = b"WEFT", 3
_HEAD = struct.Struct("<4sHI")

#: A run's name, which is also the name of its folder.
RunName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
#: A version of Weft.
Version = Annotated[str, msgspec.Meta(max_length=40)]
#: Number of an exchange, from 1 on; 0: none yet.
Number = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class Damaged(ProtocolError):
    """Bytes that changed on their way: asking again may help."""


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Parts of the protocol; the tag is the name of the class."""


# ── to a site ─────────────────────────────────────────────────────────────────────────────


class Hello(_Struct, frozen=True):
    """Take part in a run, which goes by a plan: a packed message. ``weft``: whose version asks."""

    run: RunName
    plan: bytes
    weft: Version

    @classmethod
    def of(cls, run: str, plan: bytes) -> Hello:
        """From this version of Weft."""
        return cls(run, plan, __version__)


class Work(_Struct, frozen=True):
    """One exchange.

    Attributes
    ----------
    number
        Of the exchange in its run.
    answered, last
        How many envelopes of this run the coordinator has had this site's answer to, and the
        number of the last of them.
    parts
        Phases and packed messages, to be worked through in this order.
    """

    run: RunName
    number: Number
    answered: Number
    last: Number
    parts: list[tuple[str, bytes]]


class Ping(_Struct, frozen=True):
    """Is the site there and ready for this run?"""

    run: RunName


class End(_Struct, frozen=True):
    """The run is over, or was given up; ``last`` as in :class:`Work`."""

    run: RunName
    over: bool
    last: Number


# ── from a site ───────────────────────────────────────────────────────────────────────────


class Welcome(_Struct, frozen=True):
    """It takes part; the announcement is a packed message, ``weft`` its version."""

    announcement: bytes
    weft: Version

    @classmethod
    def of(cls, announcement: bytes) -> Welcome:
        """From this version of Weft."""
        return cls(announcement, __version__)


class Worked(_Struct, frozen=True):
    """A reply to every part.

    Attributes
    ----------
    number
        Of the exchange.
    replies, seconds
        Packed messages, and what computing them took, per part.
    worked
        Numbers of the exchanges before this one that it worked on, though the coordinator has
        had no answer.
    """

    number: Number
    replies: list[bytes]
    seconds: list[float]
    worked: list[Number]


class Failed(_Struct, frozen=True):
    """No reply, and why; whatever it was asked for counts as not done."""

    kind: Literal["refused", "failed"]
    reason: str


class Garbled(_Struct, frozen=True):
    """What reached the site was no envelope: asking again may help."""

    reason: str


class Pong(_Struct, frozen=True):
    """It is there; ``ready`` for an envelope, or ``doing`` something first."""

    ready: bool
    doing: str = ""


class Ended(_Struct, frozen=True):
    """The run is over here too; ``worked`` as in :class:`Worked`."""

    worked: list[Number]


Envelope = Hello | Work | Ping | End
Reply = Welcome | Worked | Failed | Garbled | Pong | Ended
_T = TypeVar("_T")

_ENVELOPES: msgspec.msgpack.Decoder[Envelope] = msgspec.msgpack.Decoder(prepared(Envelope))
_REPLIES: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(prepared(Reply))


def encode(content: Envelope | Reply) -> bytes:
    """An envelope or a reply as it travels."""
    body = msgspec.msgpack.encode(content)
    return _HEAD.pack(_MARK, _VERSION, _check(_VERSION, body)) + body


def checksum(packed: bytes) -> int:
    """The CRC-32 that an envelope carries."""
    _, _, check = _HEAD.unpack_from(packed)
    return int(check)


def decode_envelope(packed: bytes) -> Envelope:
    """The inverse of :func:`encode`; anything else is a ProtocolError."""
    return _decode(packed, _ENVELOPES, "an envelope")


def decode_reply(packed: bytes) -> Reply:
    """The inverse of :func:`encode`; anything else is a ProtocolError."""
    return _decode(packed, _REPLIES, "a reply")


def _decode(packed: bytes, decoder: msgspec.msgpack.Decoder[_T], what: str) -> _T:
    if len(packed) < _HEAD.size:
        raise Damaged(f"{what} was cut off on the way")
    mark, version, check = _HEAD.unpack_from(packed)
    body = memoryview(packed)[_HEAD.size :]
    if mark != _MARK or check != _check(version, body):
        raise Damaged(f"{what} was damaged on the way")
    if version != _VERSION:
        raise OtherVersion(
            f"{what} is of version {version} of the protocol, but here is version {_VERSION}; "
            "install the same version of Weft on both sides"
        )
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"{what} cannot be read ({error})") from None


def _check(version: int, body: bytes | memoryview) -> int:
    return crc32(body, crc32(_HEAD.pack(_MARK, version, 0)))
