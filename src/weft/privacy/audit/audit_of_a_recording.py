"""The audit of a recording: what each side saw of a run, and what it could read of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from weft.crypto.ciphers.block_format import Block, party_of, read_block
from weft.crypto.ciphers.cipher_arguments_and_results import WHAT
from weft.crypto.party_key_pairs import PublicIdentity
from weft.errors import ProtocolError
from weft.privacy.audit.field_evidence import Seats, Words, field_of, is_masked
from weft.privacy.audit.recording_against_signed_hashes import SignatureAudit, Signed
from weft.protocol.declared_message_fields import Field, Value, checked
from weft.protocol.field_visibility import Form, Meaning
from weft.protocol.metering import size_of_value
from weft.protocol.recording_file import Entry, Head
from weft.solvers.secret_sharing.messages import GRAM, HESSIAN

#: What is checked: the sentence if all is well, and what to call that which is not.
CHECKS = {
    "fields": ("every field is known", "unknown fields"),
    "forms": ("every field has the form that it should have", "fields of another form"),
    "floats": ("no array of floats went up", "arrays of floats that went up"),
    "blocks": ("every block is sound, and under the cipher asked for", "blocks that are not"),
    "labels": ("every block bears a label of its sender", "blocks with a label of another"),
    "once": ("no block was sent twice", "blocks that were sent before"),
    "hidden": ("every value travelled under a cipher", "blocks that can be read"),
    "masked": ("every scalar went up under masks", "scalars that can be read"),
    "slots": ("every slot belongs to the party concerned", "slots of somebody else"),
    "seen": ("no party signed for other messages than these", "hashes signed of other messages"),
    "signed": ("no signature is wrong", "signatures that are not of these parties"),
    "covered": (
        "parties whose keys were given signed all their messages up to the model",
        "messages or parties without a signature by keys that were given",
    ),
}

#: Stands for all phases, of fields that are the same in each.
ANY_PHASE = "in any phase"

_MOST_WORDS = 5
#: What parties make shares of in a phase, for readers of the model.
_MATRICES = {GRAM.name: "gram", HESSIAN.name: "hessian"}

#: What the coordinator may see where the parties agreed to show it weights.
_SHOWN = (Form.CLEAR, Form.WEIGHTS)


@dataclass
class Line:
    """What one side got, of one meaning and in one phase.

    Attributes
    ----------
    fields
        Names of the fields.
    meaning
        None: the fields are unknown.
    messages, bytes
        How many messages had one of the fields, and the bytes in them.
    values
        Numbers in the blocks.
    ciphers
        Ciphers over them.
    readable
        How many of the messages could be read, though they should not.
    """

    phase: str
    fields: list[str]
    meaning: Meaning | None
    messages: int = 0
    bytes: int = 0
    values: int = 0
    ciphers: list[str] = field(default_factory=list)
    readable: int = 0

    @property
    def form(self) -> str:
        """The form in words, for a block with its cipher."""
        if self.meaning is None:
            return "unknown field"
        if self.meaning.form is Form.SCALARS and self.readable:
            return "scalars, some without masks"
        if self.meaning.form is not Form.BLOCK:
            return self.meaning.form.title
        if self.ciphers == ["plain"]:
            return "not encrypted (plain)"
        return f"{self.meaning.form.title} ({', '.join(self.ciphers) or 'no block'})"

    def verdict(self, *, coordinator: bool) -> str:
        """What the receiver can do with it, in a word."""
        if self.meaning is None:
            return "UNKNOWN"
        if coordinator and self.readable:
            return "READABLE"
        if self.meaning.form in _SHOWN:
            return "agreed"
        if self.meaning.form is Form.DEALT and coordinator:
            return "dealer's"
        if self.meaning.form is Form.MASKED and not coordinator:
            return "uniform"
        if not self.meaning.form.hides:
            return "public" if coordinator else "told"
        return "hidden" if coordinator else "opens"

    def to_dict(self, *, coordinator: bool) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "phase": self.phase,
            "fields": self.fields,
            "form": self.form,
            "what": "" if self.meaning is None else self.meaning.what,
            "messages": self.messages,
            "bytes": self.bytes,
            "values": self.values,
            "verdict": self.verdict(coordinator=coordinator),
        }


@dataclass
class PartyView:
    """What one party got.

    Attributes
    ----------
    opened
        How many values it could open, by kind of sum.
    shared_rows, shared_columns
        Samples and features that it shares with others, which all those values are about.
    own_slots
        Whether all of them are.
    """

    name: str
    messages: int = 0
    bytes: int = 0
    opened: dict[str, int] = field(default_factory=dict)
    shared_rows: int = 0
    shared_columns: int = 0
    own_slots: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "opened": {WHAT[kind]: count for kind, count in self.opened.items()},
            "shared_samples": self.shared_rows,
            "shared_features": self.shared_columns,
            "own_slots_only": self.own_slots,
        }


@dataclass
class Finding:
    """What a check found: how often, and the first of it."""

    count: int = 0
    example: str = ""


@dataclass
class Audit:
    """What each side saw of a run.

    Attributes
    ----------
    coordinator, party
        What the coordinator got, and, where one was asked for, what a party got, line by line.
    parties
        What every party got, in sums.
    findings
        By name of the check; checks that found nothing are missing.
    said
        What parties said instead of answering, in words that the coordinator read.
    signed
        Per party that handed out its part of a model, whether it signed the hash of all that it
        saw before, and whether its key is vouched for.
    moments
        Matrices over all columns that parties made shares of, for readers of the model.
    """

    head: Head
    messages: int = 0
    bytes: int = 0
    coordinator: list[Line] = field(default_factory=list)
    party: list[Line] = field(default_factory=list)
    parties: dict[str, PartyView] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)
    said: dict[str, int] = field(default_factory=dict)
    signed: dict[str, Signed] = field(default_factory=dict)
    moments: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether no check found anything."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "name": self.head.name,
            "cipher": self.head.cipher,
            "sound": self.sound,
            "messages": self.messages,
            "bytes": self.bytes,
            "checks": {
                name: {"passed": name not in self.findings, **vars(self._found(name))}
                for name in CHECKS
            },
            "coordinator": [line.to_dict(coordinator=True) for line in self.coordinator],
            "party": [line.to_dict(coordinator=False) for line in self.party],
            "parties": {name: view.to_dict() for name, view in self.parties.items()},
            "said": self.said,
            "signed": self.signed,
            "second_moments": self.moments,
        }

    def _found(self, name: str) -> Finding:
        return self.findings.get(name, Finding())


def audit(
    head: Head,
    entries: Iterable[Entry],
    party: str | None = None,
    identities: Mapping[str, PublicIdentity] | None = None,
) -> Audit:
    """Go through all messages of a run.

    Parameters
    ----------
    head, entries
        Of a `Recording`, or of a channel's transcript.
    party
        A party whose messages shall be shown line by line.
    identities
        Public keys of the parties from elsewhere, by which signatures are checked; every party must
        then have signed all its messages.
    """
    auditor, notary = _Auditor(head, party), SignatureAudit(identities or {})
    for entry in entries:
        auditor.see(entry)
        for check, name in notary.see(entry):
            auditor.find(check, entry, name)
    for name in notary.close(head.parties):
        auditor.note("covered", f"no signature of {name} that covers all its messages")
    auditor.result.signed = notary.states
    return auditor.result


class _Auditor:
    """Sees one message after the other."""

    def __init__(self, head: Head, party: str | None) -> None:
        self.result = Audit(head, parties={name: PartyView(name) for name in head.parties})
        self._chosen = party
        self._lines: dict[tuple[str, str, object], Line] = {}
        self._words: dict[tuple[str, str, str], Words] = {}
        self._seats = Seats()
        self._numbers = {name: number for number, name in enumerate(head.parties)}
        self._labels: set[tuple[int, str, int]] = set()
        self._bodies: set[bytes] = set()

    def see(self, entry: Entry) -> None:
        result = self.result
        size = sum(map(size_of_value, entry.message.values()))
        result.messages += 1
        result.bytes += size
        if entry.direction == "down":
            view = self._view(entry.party)
            view.messages += 1
            view.bytes += size
        if entry.failure and (entry.failure in result.said or len(result.said) < _MOST_WORDS):
            result.said[entry.failure] = result.said.get(entry.failure, 0) + 1
        self._match(entry)
        matrix = _MATRICES.get(entry.phase)
        if matrix is not None and matrix not in result.moments:
            result.moments.append(matrix)
        counted: set[int] = set()
        for name, value in entry.message.items():
            self._field(entry, name, value, counted)

    def _view(self, party: str) -> PartyView:
        return self.result.parties.setdefault(party, PartyView(party))

    def _match(self, entry: Entry) -> None:
        """Learn who holds which slots."""
        if entry.phase == "match.tokens" and entry.direction == "up":
            self._seats.take_tokens(entry.party, entry.message)
        elif entry.phase == "match.view" and entry.direction == "down":
            own = self._seats.take_seat(entry.party, entry.message)
            view = self._view(entry.party)
            view.shared_rows = self._seats.shared(entry.party, "rows")
            view.shared_columns = self._seats.shared(entry.party, "columns")
            if not own:
                self._foreign(entry, "view.tile_row_cohorts.places")

    def _field(self, entry: Entry, name: str, value: Value, counted: set[int]) -> None:
        field = field_of(entry.direction, entry.phase, name)
        meaning = None if field is None else field.meaning
        line = self._line(entry, name, meaning)
        if field is None:
            self.find("fields", entry, name)
        elif not _fits(name, field, value):
            self.find("forms", entry, name)
        if entry.direction == "up" and _are_floats(value) and not self._agreed(meaning):
            self.find("floats", entry, name)
            line.readable += 1
        line.bytes += size_of_value(value)
        line.messages += id(line) not in counted
        counted.add(id(line))
        if meaning is None:
            return
        if meaning.form is Form.BLOCK:
            self._block(entry, name, value, line)
        elif meaning.form is Form.SCALARS and isinstance(value, bytes):
            self._scalars(entry, name, value, line)

    def _agreed(self, meaning: Meaning | None) -> bool:
        """Whether the parties agreed to show the coordinator such numbers."""
        clear = meaning is not None and meaning.form in _SHOWN
        return clear and self.result.head.sees == "weights"

    def _line(self, entry: Entry, name: str, meaning: Meaning | None) -> Line:
        """Where a field is counted: with others of the phase that mean the same."""
        up = entry.direction == "up"
        if not up and entry.party != self._chosen:
            # Not shown; what is found in it is.
            return Line(entry.phase, [], meaning)
        phase = ANY_PHASE if meaning is not None and meaning.common else entry.phase
        key = (entry.direction, phase, meaning or name)
        if key not in self._lines:
            self._lines[key] = Line(phase, [], meaning)
            lines = self.result.coordinator if up else self.result.party
            lines.append(self._lines[key])
        line = self._lines[key]
        if name not in line.fields:
            line.fields.append(name)
        return line

    # ── values ────────────────────────────────────────────────────────────────────────────

    def _block(self, entry: Entry, name: str, value: Value, line: Line) -> None:
        try:
            block = read_block(value, name)
            plain = self._is_plain(entry, name, block)
        except ProtocolError:
            self.find("blocks", entry, name)
            return
        line.values += block.slots * block.width
        if block.cipher not in line.ciphers:
            line.ciphers.append(block.cipher)
        if block.cipher not in self._ciphers(block) or block.kind != name:
            self.find("blocks", entry, name)
        if not self._seats.owns(entry.party, block, entry.message.get(f"{name}_slots")):
            self._foreign(entry, name)
        if plain:
            self.find("hidden", entry, name)
            line.readable += 1
        if entry.direction == "down":
            opened = self._view(entry.party).opened
            opened[block.kind] = opened.get(block.kind, 0) + block.slots * block.width
        else:
            self._once(entry, name, block)

    def _ciphers(self, block: Block) -> tuple[str, ...]:
        """Ciphers that a block may be under."""
        head = self.result.head
        # The papers' protocol shows feature sums.
        shown = head.sees == "papers" and block.kind == "v"
        return (head.cipher, "plain") if shown else (head.cipher,)

    def _is_plain(self, entry: Entry, name: str, block: Block) -> bool:
        if block.cipher == "plain":
            return True
        key = (entry.direction, entry.phase, name)
        words = self._words.setdefault(key, Words())
        return words.readable(block, total=entry.direction == "down")

    def _once(self, entry: Entry, name: str, block: Block) -> None:
        """A contribution has a label and a content of its own."""
        if party_of(block.pad_id) != self._numbers.get(entry.party):
            self.find("labels", entry, name)
        if block.cipher == "plain" or not block.slots:
            return
        label = (block.key, block.kind, block.pad_id)
        content = blake2b(block.body, digest_size=16).digest()
        if label in self._labels or (len(block.body) > 8 and content in self._bodies):
            self.find("once", entry, name)
        self._labels.add(label)
        self._bodies.add(content)

    def _scalars(self, entry: Entry, name: str, value: bytes, line: Line) -> None:
        if not is_masked(value):
            self.find("masked", entry, name)
            line.readable += 1

    # ── findings ──────────────────────────────────────────────────────────────────────────

    def _foreign(self, entry: Entry, name: str) -> None:
        self._view(entry.party).own_slots = False
        self.find("slots", entry, name)

    def find(self, check: str, entry: Entry, name: str) -> None:
        """Note that something is wrong with a field of a message."""
        way = "from" if entry.direction == "up" else "to"
        self.note(
            check, f"message {entry.number}, field '{name}' {way} {entry.party} in {entry.phase}"
        )

    def note(self, check: str, example: str) -> None:
        """Note what a check found, in words."""
        found = self.result.findings.setdefault(check, Finding())
        found.count += 1
        found.example = found.example or example


def _fits(name: str, field: Field, value: Value) -> bool:
    """Whether a value is as declared; what is inside a block is not looked at."""
    try:
        checked(name, field, value)
    except ProtocolError:
        return False
    return True


def _are_floats(value: Value) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"
