"""Sums of a run in a party's ledger: booked ahead of their time, some dozens at once.

What was not needed is taken back at the end. So a run that is killed has at least as much in the
ledger as it showed, and the files are written a few times in a run, not once for every sum. Other
runs may be under way in the same file: each adds what it books and takes back no more than its own,
and counts what the others have booked.

A run that is taken up again after an interruption books nothing that it remembers to have booked.
The file is written before the memory, and taken back from after it: an interruption in between
leaves more in the ledger than there was, never less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from uuid import uuid4

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Ints
from weft.crypto.ciphers.block_format import WHOLE_CIPHERS
from weft.crypto.ciphers.party_cipher import Cipher
from weft.crypto.randomness_kept_for_restart import RandomnessLog
from weft.errors import ConfigError
from weft.guards.min_batch_across_runs import Change
from weft.matching.party_view import PartyView
from weft.privacy.ledger.earlier_samples import Attendance
from weft.privacy.ledger.earlier_sealed_models_and_moments import NumberKind
from weft.privacy.ledger.expected_exposure import sums_too_many
from weft.privacy.ledger.ledger_contents import Cohort, Hashes, Kind, LedgerContents, Question, Run
from weft.privacy.ledger.ledger_file import Book
from weft.solvers.secret_sharing.coalition_knowledge import Told
from weft.storage.atomic_files import StorageError
from weft.sums.count_sums_shown_to_party import SumCounter

#: Objects to a run by what a ledger says of earlier ones, given groups of how few samples count.
Objection = Callable[[Callable[[int], Change | None]], None]

#: So many sums are booked ahead at least, and this share of what there were so far.
_AHEAD, _SHARE = 64, 4


class SumBooking:
    """The sums that one run of one party comes to, in its ledger.

    Parameters
    ----------
    book, federation
        Its file, which is read at once, so that a damaged one stops a run before it begins; and
        what the federation is called in it.
    strict
        Whether the party stops before another one has got as many sums about a sample, over all
        runs, as it lacks columns.
    most_explained
        Before which share of the variance of the columns that it lacks it stops already.
    draws
        Remembers what this run has written; None: remembers it as long as it lives.
    """

    def __init__(
        self,
        book: Book,
        federation: str,
        kind: Kind,
        *,
        strict: bool = False,
        most_explained: float = 1.0,
        draws: RandomnessLog | None = None,
    ) -> None:
        self._book = book
        self._strict, self._exposes = strict or most_explained < 1, not strict
        self._most_explained = most_explained
        self._kind, self._federation = kind, federation
        self._draws = RandomnessLog() if draws is None else draws
        known = self._draws.take("ledger run", lambda: f"{uuid4().hex} {_now()}".encode())
        self._run_id, self._began = known.decode().split()
        self.solver = ""
        pages = self._pages = book.read()
        self._key = None if pages is None else pages.key
        self._tally: SumCounter | None = None
        self._attendance: Attendance | None = None
        self._object: Objection | None = None
        self._begun = self._noted = False
        self._epsilon = self._delta = self._rho = 0.0
        self._moments: tuple[str, ...] = ()
        self._told: dict[NumberKind, Told] = {}
        self._model_out = self._hessian = False
        self._columns_told: tuple[tuple[str, ...], int] = ((), 0)
        self._question: Question | None = None

    def open(
        self, view: PartyView, ids: Sequence[NDArray[np.object_]], sum_counter: SumCounter
    ) -> None:
        """Follow a sum_counter of the rows of a view, whose ids are given tile by tile."""
        rows = view.n_shared_rows
        self._ids = _shared_ids(view, ids)
        self._hashes: Hashes | None = None
        self._view = view
        cohort = view.row_cohort[:rows]
        self._foreign = view.foreign[cohort]
        self._fewest = view.fewest_foreign[cohort]
        self._too_many = sums_too_many(view.fewest_foreign, self._most_explained)[cohort]
        self._tally = sum_counter
        #: Sums that the file already allows for, and what it holds of this run per row.
        self._room_received = self._room_shown = 0
        self._booked = np.zeros((2, rows), np.int64)
        #: What other runs have shown or booked, as it was at the last booking; nothing is shown
        #: before the first one.
        self._shown_elsewhere = np.zeros(rows, np.int64)
        sum_counter.booking = self._keep_ahead

    def _once(self, what: str, work: Callable[[], bytes]) -> bytes:
        """Do something with the file, unless this run did it before it was interrupted.

        What was refused then is refused again, whatever the file holds now.
        """

        def attempt() -> bytes:
            try:
                return b"+" + work()
            except ConfigError as error:
                return b"-" + msgspec.msgpack.encode((str(error), error.told))

        outcome = self._draws.take(f"ledger {what}", attempt)
        if outcome[:1] == b"-":
            reason, told = msgspec.msgpack.decode(outcome[1:], type=tuple[str, str])
            raise ConfigError(reason, told=told)
        return outcome[1:]

    def _keep_ahead(self) -> None:
        """Book more where the sums have used up what was booked."""
        sum_counter = self._tally
        assert sum_counter is not None
        received, shown = sum_counter.opened.most, sum_counter.most_shown
        fits = received <= self._room_received and shown <= self._room_shown
        # Other runs may have taken back since what would be too much with theirs.
        if fits and not (self._strict and self._exposed(sum_counter.shown).any()):
            return
        room_received, room_shown = self._room_received, self._room_shown
        if received > room_received:
            room_received = received + max(_AHEAD, received // _SHARE)
        if shown > room_shown:
            room_shown = shown + max(_AHEAD, shown // _SHARE)
        ahead = (
            sum_counter.received + max(0, room_received - received),
            sum_counter.shown + max(0, room_shown - shown) * sum_counter.reach,
        )
        counts: Ints = np.stack(ahead)
        elsewhere = self._once("booking", lambda: self._write(counts, ended=None))
        self._booked, self._begun = counts, True
        if self._strict:
            self._shown_elsewhere = np.frombuffer(elsewhere, np.int64)
        self._room_received, self._room_shown = room_received, room_shown

    def _exposed(self, shown: Ints) -> NDArray[np.bool_]:
        """Rows of which another party would have too many sums for the columns that it lacks."""
        total: Ints = self._shown_elsewhere + shown
        return (self._fewest > 0) & (total >= self._too_many)

    def foresee(self, sums: int) -> None:
        """Refuse a run that is likely to let another party work out columns, before it begins.

        ``sums`` is what the run is likely to show of every sample. Forecasts err: whatever a run
        comes to, it stops before the sum that would be too many.
        """
        counter = self._tally
        if not self._strict or counter is None:
            return

        def look() -> bytes:
            pages = self._book.read()
            before = counter.shown
            if pages is not None:
                hashes = pages.hashes(self._ids) if self._hashes is None else self._hashes
                before = before + pages.of(hashes)[1] - self._booked[1]
            likely = (self._fewest > 0) & counter.read & (before + sums >= self._too_many)
            self._refuse(likely, "LIKELY REACHED: by the forecast, and with sums of earlier runs,")
            return b""

        self._once("forecast", look)

    def _refuse_exposure(self, shown: Ints) -> None:
        """Stop before a sum is sent that would let another party work out columns."""
        self._refuse(
            self._exposed(shown),
            "with those of earlier runs, and those that runs under way have booked,",
        )

    def _refuse(self, known: NDArray[np.bool_], why: str) -> None:
        if known.any():
            limit, remedy = "as it lacks columns", "agree on allow_exposure = true"
            if self._most_explained < 1:
                limit = (
                    f"as explain more of its columns than most_explained = {self._most_explained}"
                )
                remedy = "raise that"
            sentence = (
                f"party {self._book.party} refuses to show more sums about {{}} of its samples: "
                f"{why} another party would have as many {limit}; train with fewer sums (weft "
                f"check says how), one run after the other, or {remedy}"
            )
            count = str(int(known.sum()))
            raise ConfigError(sentence.format(count), told=sentence.format("some"))

    def close(self) -> None:
        """Put the true numbers in the place of what was booked ahead."""
        sum_counter = self._tally
        if sum_counter is None:
            return
        booked = self._room_received or self._room_shown or self._noted or self._epsilon
        if not (booked or self._rho or self._question):
            return
        sum_counter.booking = None
        if self._draws.finish():
            self._write(np.stack([sum_counter.received, sum_counter.shown]), ended=_now())
        self._tally = None

    def _write(self, counts: Ints, *, ended: str | None) -> bytes:
        """Add to the file what has come since this run wrote to it last.

        Returns what other runs have shown or booked.
        """
        with self._book.locked():
            pages = self._open_pages()
            hashes = pages.hashes(self._ids) if self._hashes is None else self._hashes
            if self._strict and ended is None and self._tally is not None:
                self._shown_elsewhere = pages.of(hashes)[1] - self._booked[1]
                self._refuse_exposure(self._tally.shown)
            change = counts - self._booked
            pages.add(hashes, change[0], change[1], self._foreign, self._fewest)
            self._put(pages, self._run(counts, ended, self._attendance if self._noted else None))
            # Not before: what was not written has another key the next time.
            self._hashes = hashes
        return self._shown_elsewhere.tobytes() if self._strict else b""

    def _put(self, pages: LedgerContents, run: Run) -> None:
        pages.note(run)
        self._book.write(pages)
        self._key = pages.key

    def _open_pages(self) -> LedgerContents:
        """What the file holds now, with what other runs have added to it."""
        pages = self._book.read()
        if pages is None:
            if self._key is not None or self._begun:
                raise StorageError(
                    f"the ledger {self._book.path} has gone in the middle of a run; put it back, "
                    "then start again"
                )
            return LedgerContents.new()
        # What this run has booked must be there to be taken back.
        mine = not self._begun or any(run.id == self._run_id for run in pages.runs)
        if not mine or self._key not in (None, pages.key):
            raise StorageError(
                f"another ledger was put in the place of {self._book.path} in the middle of a "
                "run; put the right one back, then start again"
            )
        return pages

    def _run(self, counts: Ints, ended: str | None, who: Attendance | None) -> Run:
        view = self._view
        starts = view.shared_rows
        cohorts = [
            Cohort(
                samples=int(end - begin),
                holders=int(view.sharers[place]),
                foreign=int(view.foreign[place]),
                fewest=int(view.fewest_foreign[place]),
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
            epsilon=self._epsilon,
            delta=self._delta,
            rho=self._rho,
            moments=self._moments,
            numbers=self._most_told("moments") if self._moments else 0,
            weights=self._most_told("models") if self._model_out else 0,
            told=self._columns_told[0],
            told_samples=self._columns_told[1],
            question=self._question,
        )

    def _most_told(self, kind: NumberKind) -> int:
        told = self._told.get(kind)
        return 0 if told is None else int(told.by_row.max(initial=0))


def count_sums(cipher: Cipher, view: PartyView, read: Flags | None = None) -> SumCounter:
    """Let a party's cipher count the sums over its shared rows.

    ``read`` says which of these rows others read sums of; None: those of which another computes
    the dual step.
    """
    if read is None:
        others = view.computing - view.labelled > 0
        read = others[view.row_cohort[: view.n_shared_rows]]
    sum_counter = SumCounter(read, whole=cipher.name in WHOLE_CIPHERS)
    cipher.sum_counter = sum_counter
    return sum_counter


def spent_before(
    pages: LedgerContents, view: PartyView, ids: Sequence[NDArray[np.object_]]
) -> Ints:
    """(2 × shared cohorts of a view) sums received and shown of one of their samples so far."""
    spent = pages.of(pages.hashes(_shared_ids(view, ids)))
    starts = view.shared_rows[:-1]
    if not len(starts):
        return np.zeros((2, 0), np.int64)
    return np.stack([np.maximum.reduceat(counts, starts) for counts in spent])


def _shared_ids(view: PartyView, ids: Sequence[NDArray[np.object_]]) -> NDArray[np.object_]:
    """Ids of the shared rows of a view, from those of its tiles."""
    names = np.full(view.n_rows, "", dtype=object)
    for tile, slots in zip(ids, view.tile_rows, strict=True):
        held = slots >= 0
        names[slots[held]] = tile[held]
    return names[: view.n_shared_rows]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
