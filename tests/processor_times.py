"""What tests cost: processor seconds of each, and what Numba compiled (``make test-times``).

Processor time is what tests take from a machine whatever else it does, unlike time on the clock.
That of processes that a test started counts, once it has waited for their end. Beside it: how long
tests waited for other processes, for disks, for the clock, and for a busy machine.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from numba.core import event

#: How many lines each table has.
LINES = 60


class _Compilations(event.Listener):
    """Seconds that each function took to compile, less those of the functions that it calls."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._began: list[float] = []
        self._inner = [0.0]

    def on_start(self, event: Any) -> None:
        self._began.append(_spent())
        self._inner.append(0.0)

    def on_end(self, event: Any) -> None:
        seconds = _spent() - self._began.pop()
        function = event.data["dispatcher"].py_func
        name = f"{function.__module__}.{function.__qualname__}{event.data['args']}"
        self.seconds[name] += seconds - self._inner.pop()
        self._inner[-1] += seconds


class ProcessorTimes:
    """Measures in the processes that run tests, and adds up in the one that reports."""

    def __init__(self) -> None:
        self.tests: Counter[str] = Counter()
        self.waited: Counter[str] = Counter()
        self.compiled: Counter[str] = Counter()
        self._compilations = _Compilations()
        event.register("numba:compile", self._compilations)
        self._last = _spent(), monotonic()

    def pytest_collection_finish(self) -> None:
        self._last = _spent(), monotonic()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        outcome: Any = yield
        (spent, clock), self._last = self._last, (_spent(), monotonic())
        # What a report has beyond pytest's own travels with it from worker to reporter.
        report = outcome.get_result()
        report.processor_seconds = self._last[0] - spent
        report.waited_seconds = max(0.0, self._last[1] - clock - report.processor_seconds)
        report.compiled = dict(self._compilations.seconds)
        self._compilations.seconds.clear()

    def pytest_runtest_logreport(self, report: Any) -> None:
        # A worker that crashed in a test could not say.
        self.tests[report.nodeid] += getattr(report, "processor_seconds", 0.0)
        self.waited[report.nodeid] += getattr(report, "waited_seconds", 0.0)
        self.compiled.update(getattr(report, "compiled", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        files: Counter[str] = Counter()
        for name, seconds in self.tests.items():
            files[name.split("::")[0]] += seconds
        everything = (
            ("tests", "processor", self.tests),
            ("files", "processor", files),
            ("waited", "other", self.waited),
            ("compiled", "processor", self.compiled),
        )
        for title, kind, table in everything:
            terminalreporter.section(f"{title}: {sum(table.values()):.0f} {kind} seconds")
            for name, seconds in table.most_common(LINES):
                terminalreporter.line(f"{seconds:8.2f}  {name}")


def _spent() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
