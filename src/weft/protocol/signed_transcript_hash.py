"""A running hash of all that one party was asked and said, which it signs at the end of a run.

Whoever has a recording of the run can compute it anew: it shows that the recording is what this
party saw, message by message, or that it is not.

Over a network a reply can get lost after a party has worked on a request. What it said then is in
no recording; what it was asked is, and the party names the hashes of those requests when it signs.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from weft.protocol.declared_message_fields import Fields
from weft.protocol.message_bytes import pack

#: Bytes of a hash.
TRANSCRIPT_BYTES = 32
#: Says what is signed, so that no signature for another purpose can stand for one of a transcript.
_DOMAIN = b"weft transcript 3\n"
_REQUEST, _REPLY, _CHAIN, _WHOLE = b"weft request", b"weft reply", b"weft transcript", b"weft seen"


class Transcript:
    """The hash of the exchanges of one party so far; one that brought no reply does not count."""

    def __init__(self) -> None:
        #: Hash of all that counts: each time of the last one and what has come since.
        self._chain = bytes(TRANSCRIPT_BYTES)
        #: Hashes of the last requests and replies; None: nobody tells what becomes of replies.
        self._open: list[tuple[bytes, bytes]] | None = None
        #: Hashes of requests, one after the other, to which the reply never came.
        self.unheard = b""

    def add(self, phase: str, request: Fields, reply: Fields) -> None:
        """One more exchange."""
        both = request_hash(phase, request), reply_hash(pack(reply))
        if self._open is None:
            self._count(*both)
        else:
            self._open.append(both)

    def settle(self, replies: Sequence[bytes] | None) -> None:
        """What became of the exchanges since the last call; from now on it must be told.

        Parameters
        ----------
        replies
            Hashes of the replies as they were sent, for a party that was made anew seals the same
            content in other bytes; none: as they are. None: they did not come.
        """
        for place, (request, reply) in enumerate(self._open or ()):
            if replies is None:
                self.unheard += request
            else:
                self._count(request, replies[place] if replies else reply)
        self._open = []

    def digest(self, unheard: bytes | None = None) -> bytes:
        """Of all exchanges up to now, and of requests without a reply: those that it knows of."""
        chain = self._chain
        for both in self._open or ():
            chain = _hash(_CHAIN, chain + b"".join(both))
        lost = self.unheard if unheard is None else unheard
        return _hash(_WHOLE, chain + lost)

    def _count(self, request: bytes, reply: bytes) -> None:
        self._chain = _hash(_CHAIN, self._chain + request + reply)


def request_hash(phase: str, request: Fields) -> bytes:
    """Of what a party was asked."""
    name = phase.encode()
    return _hash(_REQUEST, len(name).to_bytes(8, "little") + name + pack(request))


def reply_hash(packed: bytes) -> bytes:
    """Of what it said, as it was packed."""
    return _hash(_REPLY, packed)


def split_hashes(joined: bytes) -> list[bytes]:
    """Hashes that were written one after the other."""
    ends = range(TRANSCRIPT_BYTES, len(joined) + 1, TRANSCRIPT_BYTES)
    return [joined[end - TRANSCRIPT_BYTES : end] for end in ends]


def signed_bytes(run: bytes, party: str, digest: bytes) -> bytes:
    """What a party signs: its name, the random name of the run, and the hash of what it saw."""
    name = party.encode()
    return _DOMAIN + len(name).to_bytes(2, "little") + name + run + digest


def _hash(purpose: bytes, content: bytes) -> bytes:
    return blake2b(content, digest_size=TRANSCRIPT_BYTES, person=purpose).digest()
