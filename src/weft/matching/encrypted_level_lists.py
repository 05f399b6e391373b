"""Levels of categories, from holder to holder: lists that only holders of the column can open.

A list is locked under a key that follows from the run and from the column's name. The coordinator
carries it without reading it, and no honest party opens one of a column that it does not hold: it
makes keys of its own columns alone. A list that is joined says of which lists, so that every holder
finds its own in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from weft.crypto.authenticated_party_letters import LetterError, lock, unlock
from weft.crypto.secret_bytes import Secret
from weft.errors import ProtocolError
from weft.thread_safe_decoding import prepared

#: Random bytes under every list.
NONCE = 24
#: Lists are filled up to a multiple of so many bytes: their length would tell how many there are.
_UNIT = 512
_DIGEST = 16


class LevelList(msgspec.Struct, frozen=True):
    """Levels of one column.

    Attributes
    ----------
    rare
        Whether there are others, too rare to be named.
    joined
        Digests of the lists that this one was made of; empty: it is one party's.
    """

    names: tuple[str, ...]
    rare: bool
    joined: tuple[bytes, ...] = ()


def list_key(secret: Secret, column: str) -> Secret:
    """Under which holders of a column lock their own lists."""
    return secret.derive("weft levels of a column", column.encode())


def agreed_key(secret: Secret, column: str) -> Secret:
    """Under which one of them locks the list of all: no single list can stand for it."""
    return secret.derive("weft agreed levels of a column", column.encode())


def lock_levels(levels: LevelList, key: Secret, nonce: bytes) -> bytes:
    """A list for whoever has the key; ``nonce`` is `NONCE` fresh random bytes."""
    packed = msgspec.msgpack.encode(levels)
    filled = len(packed).to_bytes(8, "big") + packed
    return lock(key, filled + bytes(-len(filled) % _UNIT), nonce)


def open_levels(box: bytes, key: Secret) -> LevelList:
    """What `lock_levels` locked under this key, and nothing else."""
    try:
        filled = unlock(key, box).reveal()
        packed = filled[8 : 8 + int.from_bytes(filled[:8], "big")]
        return msgspec.msgpack.decode(packed, type=prepared(LevelList))
    except (LetterError, msgspec.MsgspecError):
        raise ProtocolError(
            "a list of levels was not made by a holder of its column in this run; stop this run"
        ) from None


def digests(boxes: Sequence[bytes]) -> tuple[bytes, ...]:
    """By which a list is known again, in an order that tells nothing."""
    found = sorted(blake2b(box, digest_size=_DIGEST).digest() for box in boxes)
    if len(set(found)) < len(found):
        raise ProtocolError("a list of levels came twice; stop this run")
    return tuple(found)
