"""Figures of a run for metrics: from its own process to that of the server, by a file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from weft.errors import WeftError
from weft.network.run_progress import Progress
from weft.report.json_values import rounded
from weft.storage.atomic_files import write_private

#: Folder of these files in a coordinator's.
_FIGURES = "figures"
#: Seconds that the figures of a run that has ended are told.
_TOLD = 3600.0


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the coordinator knows of a run, and may tell whoever watches its machine.

    Attributes
    ----------
    exchanged
        When parties were last asked and answered, by the clock of this machine; 0 before.
    exchanges, unanswered
        Exchanges since the run's process began, and letters in them without an answer.
    resumed
        How often the process has gone on after waiting for a party.
    waiting, waits_for
        Seconds of the current wait, and for how many parties.
    bytes_down, bytes_up
        To and from parties, as rough as submitters see them: exact ones tell sizes of tables.
    """

    run: str
    state: str
    exchanged: float = 0.0
    exchanges: int = 0
    unanswered: int = 0
    resumed: int = 0
    waiting: int = 0
    waits_for: int = 0
    bytes_down: float = 0.0
    bytes_up: float = 0.0


def figures_of(progress: Progress) -> RunFigures:
    """The figures now."""
    report, waits = progress.since(progress.iterations - 1), progress.waits
    last = report.records[-1] if report.records else {}
    return RunFigures(
        run=report.run,
        state=report.state,
        exchanged=waits.exchanged,
        exchanges=waits.exchanges,
        unanswered=waits.unanswered,
        resumed=progress.resumed,
        waiting=report.wait.seconds if report.wait else 0,
        waits_for=len(report.wait.parties) if report.wait else 0,
        bytes_down=rounded(float(last.get("bytes_down") or 0.0)),
        bytes_up=rounded(float(last.get("bytes_up") or 0.0)),
    )


def write_figures(home: Path, figures: RunFigures) -> None:
    """Keep them for the server's process; a full disk is no reason to end a run."""
    folder = home / _FIGURES
    with suppress(OSError, WeftError):
        folder.mkdir(mode=0o700, exist_ok=True)
        write_private(folder / f"{figures.run}.json", msgspec.json.encode(figures))


def read_figures(home: Path) -> Iterator[RunFigures]:
    """Those of all runs that go on, or ended within the last hour; older ones are deleted."""
    for path in sorted((home / _FIGURES).glob("[!.]*.json")):
        try:
            if time.time() - path.stat().st_mtime > _TOLD:
                path.unlink()
                continue
            yield msgspec.json.decode(path.read_bytes(), type=RunFigures)
        except (OSError, msgspec.MsgspecError):
            # It is written anew within seconds, if its run goes on.
            continue
