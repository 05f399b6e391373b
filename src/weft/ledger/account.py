"""A run under way in a party's ledger: nothing is sent or used before it is booked.

Sums are booked ahead of their time, some dozens at once, and what was not needed is taken back at
the end. So a run that is killed has at least as much in the ledger as it showed, and the files are
written a few times in a run, not once for every sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from weft.crypto.cipher import Cipher
from weft.errors import ConfigError, ProtocolError
from weft.guards.runs import Change
from weft.ledger.attendance import Attendance
from weft.ledger.book import Book, Cohort, Ints, Kind, Pages, Run
from weft.matching.seat import Seat
from weft.storage import StorageError
from weft.sums.tally import Tally

#: So many sums are booked ahead at least, and this share of what there were so far.
_AHEAD, _SHARE = 64, 4


@dataclass(frozen=True)
class Ledger:
    """Where parties keep their ledgers, and what this federation is called in them."""

    folder: Path
    federation: str = ""

    def book(self, party: str) -> Book:
        """The file of a party."""
        return Book(self.folder, party)


class Account:
    """What one run of one party comes to.

    Parameters
    ----------
    ledger, party
        Whose file it is; it is read at once, so that a damaged one stops a run before it begins.
    strict
        Whether the party stops before another one has got as many sums about a sample, over all
        runs, as it lacks columns.
    """

    def __init__(self, ledger: Ledger, party: str, kind: Kind, *, strict: bool = False) -> None:
        book = self._book = ledger.book(party)
        self._strict = strict
        self._kind, self._federation = kind, ledger.federation
        self._run_id, self._began = uuid4().hex, _now()
        self.solver = ""
        pages = self._pages = book.read()
        self._key = None if pages is None else pages.key
        self._tally: Tally | None = None
        self._attendance: Attendance | None = None
        self._noted = False

    def open(self, seat: Seat, ids: Sequence[NDArray[np.object_]], tally: Tally) -> None:
        """Follow a tally of the rows of a seat, whose ids are given tile by tile."""
        rows = seat.n_shared_rows
        self._ids = _shared_ids(seat, ids)
        self._seat = seat
        cohort = seat.row_cohort[:rows]
        self._foreign = seat.foreign[cohort]
        self._fewest = seat.fewest_foreign[cohort]
        self._tally = tally
        #: Sums that the file already allows for, and what it holds of this run per row.
        self._room_received = self._room_shown = 0
        self._booked = np.zeros((2, rows), np.int64)
        self._shown_before = np.zeros(rows, np.int64)
        if self._pages is not None:
            _, self._shown_before = self._pages.of(self._pages.hashes(self._ids))
        tally.booking = self._keep_ahead

    def attend(self, attendance: Attendance | None) -> None:
        """Who takes part; None: others see no feature sum with any of these samples."""
        self._attendance = attendance

    def change(self, at_least: int) -> Change | None:
        """Whom this run, beside those before it, would show in groups of fewer samples."""
        if self._pages is None or self._attendance is None:
            return None
        return self._pages.change(self._attendance, at_least)

    def note_attendance(self) -> None:
        """Write down who takes part, before the first feature sum is sent."""
        if self._attendance is None or self._noted:
            return
        self._noted = True
        pages = self._open_pages()
        pages.remember(self._attendance, self._began)
        pages.note(self._run(self._booked, None))
        self._book.write(pages)

    def _keep_ahead(self) -> None:
        """Book more where the sums have used up what was booked."""
        tally = self._tally
        assert tally is not None
        if self._strict:
            self._refuse_exposure(tally.shown)
        received, shown = tally.opened.most, tally.most_shown
        if received <= self._room_received and shown <= self._room_shown:
            return
        if received > self._room_received:
            self._room_received = received + max(_AHEAD, received // _SHARE)
        if shown > self._room_shown:
            self._room_shown = shown + max(_AHEAD, shown // _SHARE)
        ahead = (
            tally.received + max(0, self._room_received - received),
            tally.shown + max(0, self._room_shown - shown) * tally.reach,
        )
        self._write(np.stack(ahead), ended=None)

    def _refuse_exposure(self, shown: Ints) -> None:
        """Stop before a sum is sent that would let another party work out columns."""
        known = (self._fewest > 0) & (self._shown_before + shown >= self._fewest)
        if known.any():
            raise ConfigError(
                f"party {self._book.party} refuses to show more sums about {int(known.sum())} of "
                "its samples: another party would have as many as it lacks columns; train with "
                "fewer sums (weft check says how), or set allow_exposure = true in its policy"
            )

    def close(self) -> None:
        """Put the true numbers in the place of what was booked ahead."""
        tally = self._tally
        if tally is None or not (self._room_received or self._room_shown or self._noted):
            return
        tally.booking = None
        self._write(np.stack([tally.received, tally.shown]), ended=_now())
        self._tally = None

    def _write(self, counts: Ints, *, ended: str | None) -> None:
        """Add to the file what has come since it was written last."""
        pages = self._open_pages()
        change = counts - self._booked
        pages.add(pages.hashes(self._ids), change[0], change[1], self._foreign, self._fewest)
        pages.note(self._run(counts, ended))
        self._book.write(pages)
        self._booked = counts

    def _open_pages(self) -> Pages:
        """What the file holds now; it must be the one that this run began with."""
        pages = self._book.read()
        if pages is None:
            if self._key is not None:
                raise StorageError(
                    f"the ledger {self._book.path} has gone in the middle of a run; put it back, "
                    "then start again"
                )
            pages = Pages.new()
        elif self._key is not None and pages.key != self._key:
            raise ProtocolError(
                f"the ledger {self._book.path} was begun by two runs at once; run one after the "
                "other"
            )
        self._key = pages.key
        return pages

    def _run(self, counts: Ints, ended: str | None) -> Run:
        seat = self._seat
        starts, who = seat.shared_rows, self._attendance if self._noted else None
        cohorts = [
            Cohort(
                samples=int(end - begin),
                holders=int(seat.sharers[place]),
                foreign=int(seat.foreign[place]),
                fewest=int(seat.fewest_foreign[place]),
                received=int(counts[0, begin:end].max(initial=0)),
                shown=int(counts[1, begin:end].max(initial=0)),
            )
            for place, (begin, end) in enumerate(pairwise(starts.tolist()))
        ]
        return Run(
            id=self._run_id,
            began=self._began,
            ended=ended,
            kind=self._kind,
            federation=self._federation,
            solver=self.solver,
            cohorts=tuple(cohorts),
            exposed=0 if who is None else int((who.places > 0).sum()),
        )


def count_sums(cipher: Cipher, seat: Seat) -> Tally:
    """Let a party's cipher count the sums over its shared rows."""
    others = seat.computing - seat.labelled > 0
    tally = Tally(others[seat.row_cohort[: seat.n_shared_rows]], whole=cipher.name == "bfv")
    cipher.tally = tally
    return tally


def spent_before(pages: Pages, seat: Seat, ids: Sequence[NDArray[np.object_]]) -> Ints:
    """(2 × shared cohorts of a seat) sums received and shown of one of their samples so far."""
    spent = pages.of(pages.hashes(_shared_ids(seat, ids)))
    starts = seat.shared_rows[:-1]
    if not len(starts):
        return np.zeros((2, 0), np.int64)
    return np.stack([np.maximum.reduceat(counts, starts) for counts in spent])


def _shared_ids(seat: Seat, ids: Sequence[NDArray[np.object_]]) -> NDArray[np.object_]:
    """Ids of the shared rows of a seat, from those of its tiles."""
    names = np.full(seat.n_rows, "", dtype=object)
    for tile, slots in zip(ids, seat.tile_rows, strict=True):
        held = slots >= 0
        names[slots[held]] = tile[held]
    return names[: seat.n_shared_rows]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
