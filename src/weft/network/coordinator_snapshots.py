"""Snapshots of the coordinator in its journal, so that resuming a run takes as long as ever.

.. code-block:: text

    RunStarted, outcomes of the set-up, Ground, outcomes …, Chapter, Saved, outcomes …

A resumed run repeats its set-up from the outcomes before the ground. There the newest snapshot is
put in the place of all iterations that came before it. What only grows, the history of iterations
and who was there, is in chapters, which all stay; outcomes before the newest snapshot are left out
when they are most of the file.

The coordinator holds no secret of the parties: a snapshot has totals that it cannot open, and is
bound to its run by a tag under the run's random name. A coordinator that goes on from an older
journal asks what parties have answered since, and they refuse
(`weft.network.journaled_party_of_run.SiteRun`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from hmac import compare_digest
from time import perf_counter
from typing import Any

import msgspec

from weft import __version__
from weft.network.exchange_outcomes_and_journal_records import (
    Chapter,
    ExchangeOutcome,
    Ground,
    RunStarted,
    Saved,
    read_record,
    write_record,
)
from weft.storage.atomic_files import DamagedFile, StorageError
from weft.storage.journal import Journal
from weft.storage.object_graph import Opaque
from weft.storage.object_state import ObjectState, Unlike

log = logging.getLogger("weft.coordinator")

#: A snapshot is due after so many exchanges, but takes this share of the time at most.
_EXCHANGES, _SHARE = 256, 0.1
#: What is worth a new file: so many bytes, and so many times those that stay.
_FEW, _WORTH = 1 << 16, 1.0


class CoordinatorSnapshots:
    """The snapshots in one journal.

    Parameters
    ----------
    journal
        Of the run.
    secret
        The run's random name, which snapshots are bound to.

    Attributes
    ----------
    last_exchange
        Number of the last exchange in the journal.
    """

    def __init__(self, journal: Journal, secret: bytes) -> None:
        self._journal, self._secret = journal, secret
        self._state: ObjectState | None = None
        self._ground: int | None = None
        self._newest: int | None = None
        self._chapters: list[int] = []
        self.last_exchange = 0
        for place, record in enumerate(map(read_record, journal)):
            match record:
                case Ground():
                    self._ground = place
                case Chapter():
                    self._chapters.append(place)
                case Saved():
                    self._newest, self.last_exchange = place, record.standing.number
                case ExchangeOutcome():
                    self.last_exchange = record.number
        #: Number of the exchange before the last snapshot, when that was, and what it took.
        self._saved_at, self._since, self._cost = 0, perf_counter(), 0.0
        self._able = True

    def past(self) -> Iterator[RunStarted | ExchangeOutcome | Ground]:
        """What a resumed run repeats: all, or the set-up and what comes after the snapshot."""
        for place, packed in enumerate(self._journal):
            if (
                self._ground is None
                or self._newest is None
                or not (self._ground < place <= self._newest)
            ):
                record = read_record(packed)
                if not isinstance(record, Chapter | Saved):
                    yield record

    # ── going on ──────────────────────────────────────────────────────────────────────────

    def lay_ground(self, root: object, outside: Mapping[str, object]) -> None:
        """The set-up is over: from here on, what is reached from ``root`` is saved."""
        began = perf_counter()
        try:
            self._state = ObjectState(root, outside)
        except Opaque as opaque:
            self._give_up(opaque)
        self._cost = perf_counter() - began
        if self._ground is None:
            self._journal.append(write_record(Ground()))
            self._ground = len(self._journal) - 1

    def restore(self) -> tuple[Saved, list[Chapter]] | None:
        """Put the newest snapshot in the place of what is there; None: there is none."""
        if self._newest is None:
            return None
        saved = read_record(self._journal[self._newest])
        if not isinstance(saved, Saved) or not compare_digest(saved.tag, self._tag(saved)):
            raise self._unusable("it is of another run, or changed")
        if self._state is None:
            raise self._unusable("this version of Weft cannot use it")
        try:
            self._state.restore(saved.state)
        except Unlike as unlike:
            raise self._unusable(str(unlike)) from None
        self._saved_at = saved.standing.number
        # One that comes after it was written in vain.
        places = [place for place in self._chapters if place < self._newest]
        chapters = [read_record(self._journal[place]) for place in places]
        return saved, [found for found in chapters if isinstance(found, Chapter)]

    def due(self, number: int) -> bool:
        """Whether a snapshot should be taken after this exchange."""
        return (
            self._able
            and self._state is not None
            and number - self._saved_at >= _EXCHANGES
            and (perf_counter() - self._since) * _SHARE >= self._cost
        )

    def save(self, number: int, make: Callable[[bytes], tuple[Chapter, Saved]]) -> bool:
        """Write down where the coordinator stands after an exchange; whether it could be done.

        ``make`` is given the state of what is saved, and returns records without a tag.
        """
        assert self._state is not None
        began = perf_counter()
        try:
            chapter, saved = make(self._state.save())
            saved = msgspec.structs.replace(saved, tag=self._tag(saved))
            # First: a snapshot without its chapter would lack history.
            self._journal.append(write_record(chapter))
            self._chapters.append(len(self._journal) - 1)
            self._journal.append(write_record(saved))
            self._newest = len(self._journal) - 1
            self._shorten()
        except Opaque as opaque:
            self._give_up(opaque)
            return False
        except StorageError as error:
            log.warning("its journal was not made shorter (%s)", error)
            return False
        finally:
            self._saved_at, self._since = number, perf_counter()
            self._cost = self._since - began
        return True

    def _shorten(self) -> None:
        """Leave out what lies between the ground and the newest snapshot, but for chapters."""
        assert self._ground is not None
        assert self._newest is not None
        begin, end = self._ground + 1, self._newest
        kept = [place for place in self._chapters if begin <= place < end]
        left = sum(self._journal.size(place, place + 1) for place in kept)
        lost = self._journal.size(begin, end) - left
        stays = self._journal.size(0, len(self._journal)) - lost
        if lost < max(_FEW, _WORTH * stays):
            return
        parts = [range(begin), *(range(place, place + 1) for place in kept)]
        self._journal.keep([*parts, range(end, len(self._journal))])
        self._chapters = list(range(begin, begin + len(kept)))
        self._newest = begin + len(kept)

    def _give_up(self, opaque: Opaque) -> None:
        self._able = False
        log.info("the coordinator of this run cannot be saved (%s): resuming repeats it", opaque)

    def _tag(self, saved: Saved) -> bytes:
        content = msgspec.msgpack.encode([__version__, saved.standing, saved.state])
        return blake2b(content, key=self._secret, person=b"weft snapshot", digest_size=32).digest()

    def _unusable(self, why: str) -> DamagedFile:
        return DamagedFile(
            f"{self._journal.path}: its snapshot cannot be used ({why}); resume the run with the "
            "version of Weft that it began with, or start a new run",
            told="the coordinator's journal of the run cannot be used; start a new run",
        )


def has_snapshot(journal: Journal) -> bool:
    """Whether a resumed run goes on from a snapshot, and so does not repeat all messages."""
    return any(isinstance(read_record(record), Saved) for record in journal)


def chapters_joined(chapters: list[Chapter], kind: type[Any]) -> tuple[list[Any], list[Any]]:
    """The whole history, and who was missing when, of all chapters."""
    history: list[Any] = []
    moments: list[Any] = []
    for chapter in chapters:
        del history[chapter.history_from :], moments[chapter.moments_from :]
        history += [kind(*row) for row in chapter.history]
        moments += chapter.moments
    return history, moments
