"""Snapshots of a party in the journal of its run, so that bringing it back takes as long as ever.

.. code-block:: text

    hello, envelopes of the set-up, GROUND, envelopes, SNAPSHOT, envelopes, SNAPSHOT, envelopes

A snapshot is one more record: a process that is killed while it is written has the journal as it
was before. From time to time the records between the ground and the last snapshot but one are left
out, in a new file that takes the place of the old one. The last but one stays for the case that the
last is damaged on the disk.

An older journal in the place of the newest would let a party answer other questions under pads that
it has used. Before a snapshot is written, the run's memory notes after how many envelopes it comes:
a journal that knows of fewer is refused. Where both files are older than the run, the coordinator's
count of answers says so (`weft.network.journaled_party_of_run.SiteRun`).

What was drawn between the ground and the last snapshot but one is left out of the memory too, since
nobody hears those messages again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Protocol

import msgspec

from weft.network.journal_of_random_draws import RandomnessStore
from weft.storage.atomic_files import DamagedFile, StorageError
from weft.storage.journal import Journal
from weft.storage.object_graph import Opaque
from weft.thread_safe_decoding import prepared

log = logging.getLogger("weft.site")

GROUND, SNAPSHOT = b"ground", b"snapshot"
#: What the memory of a run calls its newest snapshot, and where training began.
_WITNESS, _BEGAN = "snapshot", "ground"
#: A snapshot is due after so many envelopes, or seconds of work, but takes this share of the time
#: at most.
_ENVELOPES, _SECONDS, _SHARE = 256, 5.0, 0.1
#: What is worth a new file: so many bytes, and so many times those that stay.
_FEW, _WORTH = 1 << 16, 1.0


class Snapshots(Protocol):
    """Saves a party, as :class:`weft.federation.party_snapshots.PartySnapshots` does."""

    def lay_ground(self) -> None: ...

    def save(self, place: bytes) -> bytes: ...

    def restore(self, place: bytes, sealed: bytes) -> None: ...


class Standing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Where a party stands: after which envelope of which run.

    Attributes
    ----------
    dropped, numbers
        How many envelopes came before those whose numbers are listed.
    work, reply, said
        The last one, the reply to it, and hashes of what that says.
    """

    run: str
    dropped: int
    numbers: list[int]
    work: bytes
    reply: bytes
    said: list[bytes]

    @property
    def count(self) -> int:
        return self.dropped + len(self.numbers)


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    standing: bytes
    sealed: bytes


class _Witness(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Of the newest snapshot: envelopes before it, and bytes of its record."""

    count: int
    size: int


_STANDINGS: msgspec.msgpack.Decoder[Standing] = msgspec.msgpack.Decoder(prepared(Standing))
_RECORDS: msgspec.msgpack.Decoder[_Record] = msgspec.msgpack.Decoder(prepared(_Record))
_WITNESSES: msgspec.msgpack.Decoder[_Witness] = msgspec.msgpack.Decoder(prepared(_Witness))


class SiteSnapshots:
    """The snapshots in one journal.

    Parameters
    ----------
    run
        Name of the run.
    journal
        Of the party.
    memory
        Keeps what the journal must not fall behind.
    """

    def __init__(self, run: str, journal: Journal, memory: RandomnessStore) -> None:
        self._run, self._journal, self._memory = run, journal, memory
        #: Places of the ground and of all snapshots.
        self.ground: int | None = None
        self._places: list[int] = []
        #: Records of the memory before each of them; None: it was taken by another process.
        self._drawn: list[int | None] = []
        #: Envelopes and seconds of work since the last one, and how long one takes.
        self._since, self._worked, self._cost = 0, 0.0, 0.0
        self._able = True

    @property
    def newest(self) -> int | None:
        """Place of the newest snapshot."""
        return self._places[-1] if self._places else None

    # ── reading ───────────────────────────────────────────────────────────────────────────

    def found_ground(self, place: int) -> None:
        """The ground was read."""
        self.ground, self._since = place, 0

    def found(self, place: int, record: bytes) -> Standing:
        """A snapshot was read."""
        self._places.append(place)
        self._drawn.append(None)
        self._since = 0
        return self._standing(self._read(record))

    def found_envelope(self) -> None:
        """An envelope was read, which is worked on once more after this snapshot."""
        self._since += 1

    def check(self, damaged: list[tuple[int, int]], count: int) -> None:
        """Refuse a journal that lacks something it must have.

        Parameters
        ----------
        damaged
            Places of damaged records, and how many envelopes came before each.
        count
            Envelopes that it knows of.
        """
        packed = self._memory.get(_WITNESS)
        witness = None if packed is None else _WITNESSES.decode(packed)
        for place, before in damaged:
            if self.ground is None or place <= self.ground:
                raise self._journal.damaged()
            # What lies before the newest snapshot is not needed any more.
            if self.newest is not None and place < self.newest:
                continue
            # Without the snapshot itself, there is the last one and all that came after it.
            size = self._journal.size(place, place + 1)
            if witness is None or (witness.count, witness.size) != (before, size):
                raise self._journal.damaged()
        if witness is not None and count < witness.count:
            raise DamagedFile(
                f"{self._journal.path} is an older copy: it has {count} envelopes of at least "
                f"{witness.count} that were answered; going on from it would use pads twice: give "
                "the run up with --forget and start a new one",
                told=f"its journal of run {self._run} is an older copy; start a new run",
            )

    def needed(self) -> Iterator[bytes]:
        """Records that a new party is taken through."""
        ground, newest = self.ground, self.newest
        for place, record in enumerate(self._journal):
            covered = ground is not None and newest is not None and ground < place < newest
            if record and not covered:
                yield record

    def lay_again(self, snapshots: Snapshots | None) -> None:
        """A party that was made anew stands on its ground."""
        if snapshots is None:
            raise self._journal.damaged()
        began = perf_counter()
        try:
            snapshots.lay_ground()
        except Opaque as opaque:
            self._give_up(opaque)
        self._cost = perf_counter() - began

    def repeated(self, seconds: float) -> None:
        """What came after the newest snapshot took so long, and will again."""
        self._worked += seconds

    def restore(self, snapshots: Snapshots | None, record: bytes) -> Standing:
        """Bring a party to a snapshot."""
        if snapshots is None:
            raise self._journal.damaged()
        read = self._read(record)
        snapshots.restore(read.standing, read.sealed)
        return self._standing(read)

    def _read(self, record: bytes) -> _Record:
        try:
            return _RECORDS.decode(record[len(SNAPSHOT) :])
        except msgspec.MsgspecError:
            raise self._journal.damaged() from None

    def _standing(self, record: _Record) -> Standing:
        try:
            standing = _STANDINGS.decode(record.standing)
        except msgspec.MsgspecError:
            raise self._journal.damaged() from None
        if standing.run != self._run:
            raise self._journal.damaged()
        return standing

    # ── writing ───────────────────────────────────────────────────────────────────────────

    def advance(
        self, snapshots: Snapshots | None, seconds: float, standing: Callable[[], Standing]
    ) -> None:
        """One more envelope is answered, after so many seconds: save the party if it is due.

        Whatever keeps it from being saved, the run goes on with the journal that it has.
        """
        if snapshots is None or not self._able:
            return
        try:
            if self.ground is None:
                self._lay_ground(snapshots)
                return
            self._since += 1
            self._worked += seconds
            if self._due:
                self._save(snapshots, standing())
        except Opaque as opaque:
            self._give_up(opaque)
        except StorageError as error:
            self._since, self._worked = 0, 0.0
            log.warning("run %s: its journal was not made shorter (%s)", self._run, error)

    def _give_up(self, opaque: Opaque) -> None:
        self._able = False
        log.info(
            "run %s: this party cannot be saved (%s); a restart repeats all of the run",
            self._run, opaque,
        )  # fmt: skip

    @property
    def _due(self) -> bool:
        long = self._since >= _ENVELOPES or self._worked >= _SECONDS
        return long and self._worked * _SHARE >= self._cost

    def _lay_ground(self, snapshots: Snapshots) -> None:
        began = perf_counter()
        snapshots.lay_ground()
        # First: what is drawn before it is needed for ever.
        self._memory[_BEGAN] = b""
        self._journal.append(GROUND, durable=False)
        self.ground = len(self._journal) - 1
        self._cost = perf_counter() - began

    def _save(self, snapshots: Snapshots, standing: Standing) -> None:
        began = perf_counter()
        place = msgspec.msgpack.encode(standing)
        record = SNAPSHOT + msgspec.msgpack.encode(_Record(place, snapshots.save(place)))
        before, drawn = len(self._journal), self._memory.count
        # First: a journal without this snapshot has all of its envelopes, and one that was put in
        # its place would not have them.
        self._memory[_WITNESS] = msgspec.msgpack.encode(
            _Witness(standing.count, self._journal.framed_size(record))
        )
        self._journal.append(record)
        self._places.append(before)
        self._drawn.append(drawn)
        self._since, self._worked, self._cost = 0, 0.0, perf_counter() - began
        self._shorten()

    def _shorten(self) -> None:
        """Leave out what lies between the ground and the last snapshot but one."""
        if len(self._places) < 2 or self.ground is None:
            return
        begin, end = self.ground + 1, self._places[-2]
        lost, all_ = self._journal.size(begin, end), self._journal.size(0, len(self._journal))
        if _is_worth(lost, all_):
            self._journal.keep([range(begin), range(end, len(self._journal))])
            self._places = [place - (end - begin) for place in self._places[-2:]]
            self._drawn = self._drawn[-2:]
        self._forget()

    def _forget(self) -> None:
        """Leave out what was drawn in that time, of which no message is heard again."""
        began, end = self._memory.place_of(_BEGAN), self._drawn[-2]
        if began is None or end is None or end <= began:
            return
        lost, all_ = self._memory.size(began + 1, end), self._memory.size(0, self._memory.count)
        if _is_worth(lost, all_):
            gone = self._memory.forget(began + 1, end)
            self._drawn = [None if drawn is None else drawn - gone for drawn in self._drawn]


def _is_worth(lost: int, all_: int) -> bool:
    """Whether a new file is, that lacks so many bytes of all."""
    return lost >= max(_FEW, _WORTH * (all_ - lost))
