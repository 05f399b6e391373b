"""The progress of a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import msgspec

from weft.network.current_wait import Wait, Waits
from weft.network.hide_paths import without_paths
from weft.network.submitter_visible_figures import is_rough, rough
from weft.report.json_safe_and_rounded_values import finite

if TYPE_CHECKING:
    # Reading a report must not load what runs it.
    from weft.protocol import Failure

log = logging.getLogger("weft.coordinator")

#: ``starting`` → ``running`` → ``over``, ``failed`` (a sentence says why) or ``stopped``; one that
#: was abandoned is ``forgotten``.
State = Literal["starting", "running", "over", "failed", "stopped", "forgotten"]
#: Seconds between two lines about iterations in the event log.
_LINES = 5.0


class IterationRecord(Protocol):
    """One iteration of a run of any kind, as a dataclass of plain values."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def line(self) -> str:
        """A summary for the event log."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run when it was asked for.

    Attributes
    ----------
    kind
        The name of its job kind, on which its records depend.
    records
        Iterations from the requested one on.
    parties, away
        All parties, and why some do not answer now; for an abandoned run, why some do not know.
    sentence
        Why the run failed or was stopped.
    kept
        Whether there is something to resume or abandon.
    wait
        What it waits for at the moment.
    versions
        Weft's versions, of ``coordinator`` and of every party that has said hello.
    """

    run: str
    state: State
    kind: str = "linear"
    records: list[dict[str, Any]] = []
    parties: list[str] = []
    away: dict[str, str] = {}
    sentence: str = ""
    kept: bool = True
    wait: Wait | None = None
    versions: dict[str, str] = {}

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        plain: dict[str, Any] = finite(msgspec.to_builtins(self))
        return plain


class Progress:
    """Collects the progress of a run; one thread writes, others read.

    Parameters
    ----------
    run
        Name of the run.

    Attributes
    ----------
    waits
        Is told what the run waits for.
    versions
        As in :class:`Report`.
    resumed
        How often it was taken up from its journal.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self.waits = Waits()
        self.versions: dict[str, str] = {}
        self.resumed = 0
        self._lock = Lock()
        self._state: State = "starting"
        self._sentence = ""
        self._kind, self._exact_bytes = "linear", False
        self._records: list[IterationRecord] = []
        self._parties: tuple[str, ...] = ()
        self._away: dict[str, str] = {}
        self._next_line = 0.0
        #: How many iterations have been told, and who was said to be away, before a resumption too.
        self._told = 0
        self._said_away: set[str] = set()
        #: After how many exchanges it was last resumed.
        self._exchanges = -1
        #: The last iteration, if it is not logged yet.
        self._untold: IterationRecord | None = None

    @property
    def iterations(self) -> int:
        """How many are done."""
        with self._lock:
            return len(self._records)

    def begin(
        self, parties: tuple[str, ...], kind: str = "linear", *, exact_bytes: bool = False
    ) -> None:
        """All parties take part in a run of this kind."""
        with self._lock:
            before, self._state = self._state, "running"
            self._parties, self._kind, self._exact_bytes = parties, kind, exact_bytes
        if before != "running":
            log.info("run %s: all parties are there: %s", self.run, ", ".join(parties))

    def resume(self, exchanges: int) -> None:
        """It is repeated from its journal, and continues after so many exchanges."""
        with self._lock:
            self._records, self._untold = [], None
            self.resumed += 1
            before, self._exchanges = self._exchanges, exchanges
        if before != exchanges:
            log.info("run %s: goes on after %d exchanges", self.run, exchanges)

    def follow(self, how_far: str, *, repeated: bool = False) -> None:
        """How far a long step before the first iteration is; empty: it is over."""
        before, self.waits.how_far = self.waits.how_far, how_far
        # The same words again are no news: there are many more parts than steps that are told.
        if how_far and how_far != before and not repeated:
            log.info("run %s: %s", self.run, how_far)

    def add(
        self, record: IterationRecord, away: Mapping[str, Failure], *, repeated: bool = False
    ) -> None:
        """One more iteration is done, or repeated from the journal: then it is no news."""
        told = {party: failure.reason for party, failure in away.items()}
        with self._lock:
            self._records.append(record)
            self._away = {party: without_paths(reason) for party, reason in told.items()}
            number = len(self._records)
        if repeated or number <= self._told:
            self._told = max(self._told, number)
            return
        self._told = number
        for party in sorted(told.keys() - self._said_away):
            log.info("run %s: %s is away: it %s", self.run, party, told[party])
        self._said_away = set(told)
        self._untold = record
        if time.monotonic() > self._next_line:
            self._next_line = time.monotonic() + _LINES
            self._tell()

    def end(
        self, state: State, sentence: str = "", away: Mapping[str, Failure] | None = None
    ) -> None:
        """The run has ended or stopped; ``away``: parties that could not be told, if it matters."""
        with self._lock:
            self._state, self._sentence = state, without_paths(sentence)
            if away is not None:
                self._away = {p: without_paths(failure.reason) for p, failure in away.items()}
        self._tell()
        log.info("run %s: %s%s", self.run, state, f": {sentence}" if sentence else "")
        for party, failure in (away or {}).items():
            log.info("run %s: %s does not know it: it %s", self.run, party, failure.reason)

    def _tell(self) -> None:
        """Log the last iteration."""
        if self._untold is not None:
            log.info("run %s: %s", self.run, self._untold.line)
            self._untold = None

    def since(self, number: int = 0) -> Report:
        """The state now, with the iterations from that number on."""
        with self._lock:
            return Report(
                run=self.run,
                state=self._state,
                kind=self._kind,
                records=[self._plain(record) for record in self._records[max(0, number) :]],
                parties=list(self._parties),
                away=dict(self._away),
                sentence=self._sentence,
                versions=dict(self.versions),
                wait=self.waits.current() if self._state in ("starting", "running") else None,
            )

    def _plain(self, record: IterationRecord) -> dict[str, Any]:
        return {
            name: rough(value) if is_rough(name, exact_bytes=self._exact_bytes) else value
            for name, value in asdict(record).items()
        }
