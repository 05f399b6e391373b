"""What a run waits for now: whom, in which phase, since when, and when that ends.

A run that stands still without saying why is taken for one that hangs. Everything in the
coordinator's process that waits for parties says so here, and ``weft status`` reads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

import msgspec

from weft.network import clock

#: What a run does in the place of a phase, before the first and after the last.
GREETING, CLOSING = "hello", "end"


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A wait that is not over, as it is told.

    Attributes
    ----------
    phase
        What parties are asked for.
    parties
        Who has not answered.
    seconds, limit
        For how long it has lasted and may last at most, in whole seconds: exact times would tell
        how large tables are.
    why
        What stands in the way, if it is more than work, or how far a long step is; one clause.
    """

    phase: str
    parties: list[str]
    seconds: int
    limit: int
    why: str = ""


@dataclass(frozen=True)
class _Open:
    phase: str
    parties: tuple[str, ...]
    since: float
    limit: float
    why: str = ""


class Waits:
    """The waits of one run; one thread waits, others look.

    A run that needs a party which is away tries again and again. That is one wait: it lasts until
    all who are asked answer, and what is asked meanwhile is part of it.

    Attributes
    ----------
    patience
        Seconds that the run waits for parties that are away.
    how_far
        How far a long step is, in a clause; empty: there is none.
    exchanges, unanswered
        Exchanges that were not repeated from the journal, and letters in them without an answer.
    exchanged
        When the last of them ended, by the clock of this machine; 0 before the first.
    """

    def __init__(self) -> None:
        self.patience = 0.0
        self.how_far = ""
        self.exchanges = self.unanswered = 0
        self.exchanged = 0.0
        self._lock = Lock()
        self._asked: _Open | None = None
        self._lacking: _Open | None = None
        self._unanswered: Callable[[], Iterable[str]] = tuple
        #: Whether nothing goes on until those who are lacking answer.
        self._stands = False

    @contextmanager
    def asking(
        self,
        phase: str,
        parties: Iterable[str],
        limit: float,
        unanswered: Callable[[], Iterable[str]],
    ) -> Iterator[None]:
        """Parties are asked; ``unanswered`` says at any moment who has not answered yet."""
        with self._lock:
            self._asked = _Open(phase, tuple(parties), clock.now(), limit, self.how_far)
            self._unanswered = unanswered
        try:
            yield
        finally:
            with self._lock:
                self._asked = None

    def answered(self, phase: str, lacking: Mapping[str, str]) -> None:
        """An exchange is over; those who are lacking, and why."""
        with self._lock:
            self.exchanges += 1
            self.unanswered += len(lacking)
            self.exchanged = time.time()
            before, self._lacking = self._lacking, None
            if not lacking:
                self._stands = False
                return
            same = before is not None and before.parties == tuple(lacking)
            since = before.since if before is not None and same else clock.now()
            why = "; ".join(dict.fromkeys(lacking.values()))
            self._lacking = _Open(phase, tuple(lacking), since, self.patience, why)

    def stand(self) -> None:
        """The run cannot go on without those who were lacking."""
        with self._lock:
            self._stands = True

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """A pause before parties are asked again."""
        with self._lock:
            before, self._stands = self._stands, True
        try:
            yield
        finally:
            with self._lock:
                self._stands = before

    def current(self) -> Wait | None:
        """What the run waits for now; None: for nobody."""
        with self._lock:
            asked, lacking = self._asked, self._lacking if self._stands else None
            if lacking is not None:
                return _told(lacking, lacking.parties)
            if asked is None:
                return None
            still = set(self._unanswered())
            return _told(asked, tuple(party for party in asked.parties if party in still))


def _told(wait: _Open, parties: tuple[str, ...]) -> Wait | None:
    if not parties:
        return None
    seconds = int(clock.now() - wait.since)
    return Wait(
        phase=wait.phase,
        parties=list(parties),
        seconds=seconds,
        limit=int(wait.limit),
        why=wait.why,
    )
