"""What commands share when they speak: plain lines, JSON, and a line of progress."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.status import Status

from weft.report.json_values import json_text
from weft.solvers.base import Record


def say(*lines: str) -> None:
    """Print lines to stdout as they are: names may hold brackets that rich would read."""
    console = Console(highlight=False)
    for line in lines:
        console.print(line, markup=False, soft_wrap=not console.is_terminal)


def say_json(value: dict[str, Any]) -> None:
    """Print one JSON object to stdout; numbers that are not finite become null."""
    print(json_text(value), end="")


class StatusLine:
    """One line on stderr that changes; silent where stderr is not a terminal.

    Parameters
    ----------
    begin
        What it says first.
    """

    def __init__(self, begin: str, *, quiet: bool = False) -> None:
        console = Console(stderr=True, highlight=False)
        self._status: Status | None = None
        if console.is_terminal and not quiet:
            self._status = console.status(begin)
        self._next = 0.0

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, words: Callable[[], str]) -> None:
        """Change it, unless it has just been changed: a terminal need not hear of everything."""
        if self._status is None or monotonic() < self._next:
            return
        self._next = monotonic() + 0.1
        self._status.update(words())


class ProgressLine(StatusLine):
    """Follows a run, iteration by iteration.

    Parameters
    ----------
    title
        What the line begins with, where there are several runs.
    """

    def __init__(self, *, quiet: bool = False, title: str = "") -> None:
        super().__init__(f"{title}matching samples …", quiet=quiet)
        self._title = title

    def __call__(self, record: Record) -> None:
        self.show(lambda: self._title + progress_text(record))


def progress_text(record: Record) -> str:
    """Where a run stands: what is certified, else what is estimated."""
    if record.certified_at is not None:
        known = (
            f"loss {record.primal:.6g} · gap {record.gap:.2e} certified at iteration "
            f"{record.certified_at}"
        )
    elif record.loss_estimate is not None:
        known = f"loss about {record.loss_estimate:.6g} (estimate)"
    else:
        known = "no certificate yet"
    lam = "" if record.lam is None else f"λ = {record.lam:g} · "
    return f"{lam}iteration {record.iteration} · {known} · {record.round_trips} round trips"


def tell_run(
    folder: Path,
    summary: dict[str, Any],
    remarks: list[str],
    *,
    json: bool,
    holds: str,
    **more: str,
) -> None:
    """Say how a run ended, and what is in its results folder.

    Parameters
    ----------
    holds
        What the folder has, as the beginning of a sentence.
    more
        What the JSON object has besides the summary.
    """
    from weft.report.summary import certificate_sentence, shortfall

    if json:
        say_json({"folder": str(folder), **more, **summary})
        return
    cost = summary["cost"]
    say(
        f"{summary['name']}: {certificate_sentence(summary)}.",
        *([] if summary["choice"] is None else [f"{summary['choice']}; see path.png."]),
        f"{summary['iterations']} iterations, {cost['round_trips']} round trips, "
        f"{cost['bytes_down'] + cost['bytes_up']:,} bytes, {cost['wall_seconds']:.1f} s; "
        f"stopped by: {summary['stopped']}.",
        *(f"- {note}" for note in [shortfall(summary), *summary["notes"], *remarks] if note),
        f"{holds} are in {folder}.",
    )
