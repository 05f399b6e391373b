"""One short value that depends on every party's nonce: the root of a hash tree over them.

The coordinator tells each party the few hashes that lead from its own nonce to the root. A root
with a fresh nonce under it is fresh, whatever else the coordinator repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from weft.errors import ProtocolError

HASH = 32


def ways(nonces: Sequence[bytes]) -> list[bytes]:
    """Per party, the hashes on the way from its nonce to the root."""
    found = [b""] * len(nonces)
    level = [_leaf(nonce) for nonce in nonces]
    places = list(range(len(nonces)))
    while len(level) > 1:
        if len(level) % 2:
            level.append(level[-1])
        for party, place in enumerate(places):
            found[party] += level[place ^ 1]
            places[party] = place // 2
        level = [_node(level[i], level[i + 1]) for i in range(0, len(level), 2)]
    return found


def root_of(nonce: bytes, place: int, way: object) -> bytes:
    """The root, from the nonce of the party at that place."""
    if not isinstance(way, bytes) or len(way) % HASH:
        raise ProtocolError("a message is malformed: 'way' holds no hashes")
    value = _leaf(nonce)
    for at in range(0, len(way), HASH):
        other = way[at : at + HASH]
        value = _node(other, value) if place % 2 else _node(value, other)
        place //= 2
    return value


def _leaf(nonce: bytes) -> bytes:
    return blake2b(nonce, digest_size=HASH, person=b"weft leaf").digest()


def _node(left: bytes, right: bytes) -> bytes:
    return blake2b(left + right, digest_size=HASH, person=b"weft node").digest()
