"""Whether a recording is what the parties say that they saw, by the hashes that they signed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from weft.crypto.identities import PublicIdentity
from weft.errors import ProtocolError
from weft.protocol.message import Fields
from weft.protocol.recording import Entry
from weft.protocol.transcript import Transcript, signed_bytes

#: A party's signature: checked by a key from elsewhere; there, but no key is known; of other
#: messages, or wrong; or not there.
Signed = Literal["verified", "not vouched for", "wrong", "nothing"]

#: The phase that opens a run, and the one whose replies bear signatures.
_OPENING, _RELEASE = "announce", "release"


class SignatureAudit:
    """Follows every party's messages, and looks at what it signs.

    Parameters
    ----------
    identities
        Public keys from a roster or a folder of keys, never from the recording itself.

    Attributes
    ----------
    states
        Party to what its last signature is worth.
    """

    def __init__(self, identities: Mapping[str, PublicIdentity]) -> None:
        self._identities = identities
        self._asked: dict[str, Fields] = {}
        self._seen: dict[str, Transcript] = {}
        self._runs: dict[str, bytes] = {}
        self.states: dict[str, Signed] = {}

    def see(self, entry: Entry) -> Iterator[tuple[str, str]]:
        """What is wrong with a message: the check, and the field."""
        party = entry.party
        if entry.direction == "down":
            self._asked[party] = entry.message
            if entry.phase == _OPENING:
                # A run that was resumed is opened anew, by parties that begin anew.
                self._seen[party] = Transcript()
                run = entry.message.get("run")
                self._runs[party] = run if isinstance(run, bytes) else b""
                self.states.pop(party, None)
            return
        if entry.failure:
            return
        seen = self._seen.setdefault(party, Transcript())
        if entry.phase == _RELEASE:
            yield from self._look(entry, seen)
        seen.add(entry.phase, self._asked.get(party, {}), entry.message)

    def _look(self, entry: Entry, seen: Transcript) -> Iterator[tuple[str, str]]:
        party, told = entry.party, entry.message
        digest, signature = told.get("transcript"), told.get("signature")
        self.states[party] = "nothing"
        if not isinstance(digest, bytes) or not isinstance(signature, bytes):
            return
        self.states[party] = "not vouched for"
        if digest != seen.digest():
            self.states[party] = "wrong"
            yield "seen", "transcript"
        known = self._identities.get(party)
        if known is None:
            return
        try:
            known.verify(signed_bytes(self._runs.get(party, b""), party, digest), signature)
        except ProtocolError:
            self.states[party] = "wrong"
            yield "signed", "signature"
        else:
            if self.states[party] != "wrong":
                self.states[party] = "verified"
