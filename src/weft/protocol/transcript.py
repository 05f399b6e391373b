"""A running hash of all that one party was asked and said, which it signs at the end of a run.

Whoever has a recording of the run can compute it anew: it shows that the recording is what this
party saw, message by message, or that it is not.
"""

from __future__ import annotations

from hashlib import blake2b

from weft.protocol.message import Fields
from weft.protocol.message_bytes import pack

#: Bytes of the hash.
TRANSCRIPT_BYTES = 32
#: Says what is signed, so that no signature for another purpose can stand for one of a transcript.
_DOMAIN = b"weft transcript 1\n"


class Transcript:
    """The hash of the exchanges of one party so far; one that brought no reply does not count."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=TRANSCRIPT_BYTES, person=b"weft transcript")

    def add(self, phase: str, request: Fields, reply: Fields) -> None:
        """One more exchange."""
        for part in (phase.encode(), pack(request), pack(reply)):
            self._hash.update(len(part).to_bytes(8, "little"))
            self._hash.update(part)

    def digest(self) -> bytes:
        """Of all exchanges up to now."""
        return self._hash.digest()


def signed_bytes(run: bytes, party: str, digest: bytes) -> bytes:
    """What a party signs: its name, the random name of the run, and the hash of what it saw."""
    name = party.encode()
    return _DOMAIN + len(name).to_bytes(2, "little") + name + run + digest
