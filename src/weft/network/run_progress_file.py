"""How a run gets on: from its own process to others of the coordinator's machine, by a file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import msgspec

from weft.errors import WeftError
from weft.network.run_progress import Progress, Report
from weft.storage.atomic_files import write_private
from weft.thread_safe_decoding import prepared

#: Folder of these files in a coordinator's.
_FIGURES = "figures"
#: Seconds between two files of a run.
_BETWEEN = 2.0
#: Seconds that the figures of a run are told to whoever watches, and kept, after its end.
TOLD, _KEPT = 3600.0, 30 * 86400.0
#: Points of a curve at most.
_POINTS = 240


#: Seconds that times of gaps are told to: as often as a submitter asks, who can time it as well.
MOMENT = 0.5


class GapPoint(msgspec.Struct, frozen=True, array_like=True):
    """A certified gap: seconds since the run began, in steps of half a one; iteration; gap."""

    seconds: float
    iteration: int
    gap: float


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the coordinator knows of a run, and may tell whoever watches its machine.

    Attributes
    ----------
    report
        What a submitter is told of it, with the last iteration only.
    began
        When its first process began, by the clock of this machine.
    exchanged
        When parties were last asked and answered; 0 before.
    exchanges, unanswered
        Exchanges since the run's process began, and letters in them without an answer.
    resumed
        How often the process has gone on after waiting for a party.
    curve
        Certified gaps over time.
    """

    report: Report
    began: float = 0.0
    exchanged: float = 0.0
    exchanges: int = 0
    unanswered: int = 0
    resumed: int = 0
    curve: list[GapPoint] = []

    @property
    def run(self) -> str:
        return self.report.run

    @property
    def state(self) -> str:
        return self.report.state

    @property
    def last(self) -> dict[str, Any]:
        """The last iteration; nothing before the first."""
        return self.report.records[-1] if self.report.records else {}

    @property
    def waits_text(self) -> str:
        """For whom it waits, as the end of a line."""
        wait = self.report.wait
        return "" if wait is None else f", waits for {', '.join(wait.parties)}"


class GapCurve:
    """Collects certified gaps of a run, as whoever looks at its progress meets them.

    A run that is taken up again repeats iterations: only later ones are news.
    """

    def __init__(self, points: list[GapPoint] | None = None) -> None:
        self.points = points or []
        self._read = 0

    def follow(self, progress: Progress, seconds: float) -> None:
        """Add what is new."""
        if progress.iterations < self._read:
            self._read = 0
        records = progress.since(self._read).records
        self._read += len(records)
        self.extend(records, seconds)

    def extend(self, records: list[dict[str, Any]], seconds: float) -> None:
        """Add iterations that came by now."""
        reached = self.points[-1].iteration if self.points else 0
        for record in records:
            gap, number = record.get("gap"), record.get("iteration", 0)
            if gap is not None and number > reached:
                self.points.append(GapPoint(seconds // MOMENT * MOMENT, number, gap))
        while len(self.points) > _POINTS:
            # Every other one, but never the newest.
            self.points = [*self.points[:-1:2], self.points[-1]]


def figures_of(progress: Progress, began: float, curve: GapCurve) -> RunFigures:
    """The figures now."""
    report, waits = progress.since(progress.iterations - 1), progress.waits
    return RunFigures(
        report=report,
        began=began,
        exchanged=waits.exchanged,
        exchanges=waits.exchanges,
        unanswered=waits.unanswered,
        resumed=progress.resumed,
        curve=curve.points,
    )


def _file(home: Path, run: str) -> Path:
    """Where they lie; the run's name was checked before."""
    return home / _FIGURES / f"{run}.json"


def write_figures(home: Path, figures: RunFigures) -> None:
    """Keep them for others; a full disk is no reason to end a run."""
    path = _file(home, figures.run)
    with suppress(OSError, WeftError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(path, msgspec.json.encode(figures))


def delete_figures(home: Path, run: str) -> None:
    """Nothing is kept of a run that was given up."""
    with suppress(OSError):
        _file(home, run).unlink(missing_ok=True)


def figures_of_run(home: Path, run: str) -> RunFigures | None:
    """Those of one run; None: there are none, or they cannot be read."""
    try:
        return msgspec.json.decode(_file(home, run).read_bytes(), type=prepared(RunFigures))
    except (OSError, msgspec.MsgspecError):
        return None


def read_figures(home: Path, within: float = TOLD) -> Iterator[RunFigures]:
    """Those of runs that go on, or ended within so many seconds; very old ones are deleted."""
    for path in sorted((home / _FIGURES).glob("[!.]*.json")):
        with suppress(OSError):
            age = time.time() - path.stat().st_mtime
            if age > _KEPT:
                path.unlink()
            elif age <= within and (found := figures_of_run(home, path.stem)) is not None:
                yield found


@contextmanager
def figures_written(home: Path, progress: Progress) -> Iterator[None]:
    """Keep a run's figures for other processes while the block lasts, and the last ones."""
    over = Event()
    # A run that is taken up again goes on where its figures ended.
    known = figures_of_run(home, progress.run)
    began = time.time() if known is None else known.began
    curve = GapCurve([] if known is None else known.curve)

    def look() -> None:
        curve.follow(progress, time.time() - began)

    def write() -> None:
        look()
        write_figures(home, figures_of(progress, began, curve))

    def go_on() -> None:
        write()
        written = time.monotonic()
        while not over.wait(MOMENT):
            if time.monotonic() - written >= _BETWEEN:
                write()
                written = time.monotonic()
            else:
                look()

    thread = Thread(target=go_on, name="weft figures", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_BETWEEN)
        write()
