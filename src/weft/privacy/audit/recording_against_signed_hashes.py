"""Whether a recording is what the parties say that they saw, by the hashes that they signed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import numpy as np

from weft.crypto.party_key_pairs import PublicIdentity
from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import Fields
from weft.protocol.recording_file import Entry
from weft.protocol.shared_fields import Boxes
from weft.protocol.signed_transcript_hash import (
    TRANSCRIPT_BYTES,
    Transcript,
    request_hash,
    signed_bytes,
)

#: A party's signature: checked by a key from elsewhere; there, but no key is known; there, but
#: other messages of the party lie before or behind what it is of; of other messages, or wrong; or
#: not there.
Signed = Literal["verified", "not vouched for", "in part", "wrong", "nothing"]

#: The phase that opens a run, the one whose replies bear signatures, and the one that brings the
#: parts of the model to those who get it, after they have signed.
_OPENING, _RELEASE, _DELIVERY = "announce", "release", "release.model"


class SignatureAudit:
    """Follows every party's messages, and looks at what it signs.

    Where keys are given, messages that no signature covers are findings: those before the run is
    opened (again), those after the last release, and those that are no request with its reply. What
    brings a party the model after that must hold the very parts that the writers sealed to it.

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
        self._pending: dict[str, Entry] = {}
        self._seen: dict[str, Transcript] = {}
        #: Hashes of requests without a reply; parties say which of them they worked on.
        self._lacking: dict[str, list[bytes]] = {}
        self._runs: dict[str, bytes] = {}
        self._parted: set[str] = set()
        #: Writer and reader to the part of the model that the one sealed to the other last.
        self._sealed: dict[tuple[str, str], bytes] = {}
        self.states: dict[str, Signed] = {}

    def see(self, entry: Entry) -> Iterator[tuple[str, str]]:
        """What is wrong with a message: the check, and the field."""
        if entry.direction == "down":
            yield from self._request(entry)
        else:
            yield from self._reply(entry)

    def close(self, parties: Iterable[str]) -> list[str]:
        """At the end, where keys are given: parties that signed nothing, or not all to the end."""
        open_ended = list(self._pending)
        for party in open_ended:
            list(self._part(party, ""))
        if not self._identities:
            return []
        lacking = ("nothing", "not vouched for")
        unsigned = [
            party
            for party in (*parties, *self._seen)
            if self.states.get(party, "nothing") in lacking
        ]
        return list(dict.fromkeys([*unsigned, *open_ended]))

    def _request(self, entry: Entry) -> Iterator[tuple[str, str]]:
        party = entry.party
        if party in self._pending:
            # The hash is of requests with replies: one in between would be in none.
            yield from self._part(party, entry.phase)
        self._pending[party] = entry
        if entry.phase == _OPENING:
            if party in self._seen:
                # A run that was resumed is opened anew, by parties that begin anew.
                yield from self._part(party, "run")
            self._seen[party], self._lacking[party] = Transcript(), []
            run = entry.message.get("run")
            self._runs[party] = run if isinstance(run, bytes) else b""
            self.states.pop(party, None)

    def _reply(self, entry: Entry) -> Iterator[tuple[str, str]]:
        party = entry.party
        asked = self._pending.pop(party, None)
        if asked is None or asked.phase != entry.phase or (entry.failure and entry.message):
            yield from self._part(party, entry.phase)
        if entry.failure:
            if asked is not None:
                lost = request_hash(asked.phase, asked.message)
                self._lacking.setdefault(party, []).append(lost)
            return
        seen = self._seen.setdefault(party, Transcript())
        if entry.phase == _RELEASE:
            yield from self._look(entry, seen)
            boxes = _boxes(entry.message, "readers")
            self._sealed |= {(party, reader): box for reader, box in boxes.items()}
        elif party in self.states and not (asked is not None and self._delivers(asked)):
            # Signed already; only a release may follow, when others have gone meanwhile, and the
            # model.
            yield from self._part(party, entry.phase)
        seen.add(entry.phase, {} if asked is None else asked.message, entry.message)

    def _asked(self, party: str, unheard: bytes) -> bool:
        """Whether all requests of these hashes were made, in this order, and got no reply."""
        lacking = iter(self._lacking.get(party, ()))
        starts = range(0, len(unheard), TRANSCRIPT_BYTES)
        # Asking an iterator goes on from where the last one was found.
        return all(unheard[at : at + TRANSCRIPT_BYTES] in lacking for at in starts)

    def _delivers(self, asked: Entry) -> bool:
        """Whether a request brings a party the model, as it was sealed to it."""
        boxes = _boxes(asked.message, "writers")
        as_sealed = all(
            self._sealed.get((writer, asked.party)) == box for writer, box in boxes.items()
        )
        return asked.phase == _DELIVERY and bool(boxes) and as_sealed

    def _part(self, party: str, name: str) -> Iterator[tuple[str, str]]:
        """Messages that the party's signature does not cover."""
        self._parted.add(party)
        if self.states.get(party) in ("verified", "not vouched for"):
            self.states[party] = "in part"
        if self._identities:
            yield "covered", name

    def _look(self, entry: Entry, seen: Transcript) -> Iterator[tuple[str, str]]:
        party, told = entry.party, entry.message
        digest, signature = told.get("transcript"), told.get("signature")
        self.states[party] = "nothing"
        if not isinstance(digest, bytes) or not isinstance(signature, bytes):
            return
        unheard = told.get("unheard", b"")
        if not isinstance(unheard, bytes) or not self._asked(party, unheard):
            self.states[party] = "wrong"
            yield "seen", "unheard"
        elif digest != seen.digest(unheard):
            self.states[party] = "wrong"
            yield "seen", "transcript"
        known = self._identities.get(party)
        if known is not None:
            try:
                known.verify(signed_bytes(self._runs.get(party, b""), party, digest), signature)
            except ProtocolError:
                self.states[party] = "wrong"
                yield "signed", "signature"
        if self.states[party] != "wrong":
            whole: Signed = "not vouched for" if known is None else "verified"
            self.states[party] = "in part" if party in self._parted else whole


def _boxes(message: Fields, names: str) -> dict[str, bytes]:
    """Sealed boxes by the names of their readers or writers; none, if they do not fit."""
    who, content = message.get(names), message.get("boxes.content")
    lengths = message.get("boxes.lengths")
    if not isinstance(who, np.ndarray) or not isinstance(lengths, np.ndarray):
        return {}
    if not isinstance(content, bytes) or len(who) != len(lengths):
        return {}
    try:
        boxes = Boxes(content=content, lengths=lengths).cut()
    except ProtocolError:
        return {}
    return dict(zip(who.tolist(), boxes, strict=True))
