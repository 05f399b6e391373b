"""What commands share when they speak: plain lines, JSON, and a line of progress."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from weft.report.json_safe_and_rounded_values import json_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status
    from rich.table import Table

    from weft.network.run_progress import Report
    from weft.solvers.solver_interfaces_and_results import Record

#: Seconds between two lines about a deployed run where there is no terminal.
_LINES = 10.0


def say(*lines: str | Table) -> None:
    """Print lines to stdout as they are: names may hold brackets that rich would read."""
    # Here and below: quiet commands wait for nothing that only draws.
    from rich.console import Console

    console = Console(highlight=False)
    for line in lines:
        wraps = console.is_terminal or not isinstance(line, str)
        console.print(line, markup=False, soft_wrap=not wraps)


def say_json(value: dict[str, Any]) -> None:
    """Print one JSON object to stdout; numbers that are not finite become null."""
    print(json_text(value), end="")


def _stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


class StatusLine:
    """One line on stderr that changes; silent where stderr is not a terminal.

    Parameters
    ----------
    begin
        What it says first.
    """

    def __init__(self, begin: str, *, quiet: bool = False) -> None:
        self._console = None if quiet else _stderr()
        self._status: Status | None = None
        if self._console is not None and self._console.is_terminal:
            self._status = self._console.status(begin)
        self._next = 0.0

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *failure: object) -> None:
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
        self._matching = f"{title}matching samples …"
        super().__init__(self._matching, quiet=quiet)
        self._title = title

    def tell(self, how_far: str) -> None:
        """How far matching is; nothing once it is over."""
        self.show(lambda: f"{self._matching} {how_far}".rstrip())

    def __call__(self, record: Record) -> None:
        # Commands that only print a line need not wait for what follows a run.
        from weft.report.progress_and_ending_text import progress_text

        self.show(lambda: self._title + progress_text(record))


class RunLine(StatusLine):
    """Follows a deployed run, with lines above for what else happens.

    Where stderr is no terminal there is a new line now and then.

    Parameters
    ----------
    beginning
        What a run does before its first iteration.
    """

    def __init__(self, run: str, beginning: str, *, quiet: bool) -> None:
        super().__init__(f"{run}: starting …", quiet=quiet)
        self._run, self._beginning = run, beginning
        self._next = monotonic() + _LINES
        self._told = "starting"

    def say(self, sentence: str) -> None:
        """A line that stays."""
        if self._console is not None:
            self._console.print(sentence, markup=False, soft_wrap=True)

    def follow(self, report: Report) -> None:
        """The line that changes."""
        from weft.network.run_status_line import report_text

        if report.records:
            self._told = report_text(report)
        elif report.state == "running" and self._told == "starting":
            self._told = self._beginning
        if self._status is not None:
            self._status.update(f"{self._run}: {self._told}")
        elif monotonic() > self._next:
            self._next = monotonic() + _LINES
            self.say(f"{self._run}: {self._told}")
