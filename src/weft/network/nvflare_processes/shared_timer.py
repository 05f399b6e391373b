"""Many calls at later times, by one thread."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Condition, Thread
from time import monotonic


@dataclass(order=True)
class LaterCall:
    """One of them; `cancel` keeps it from being made."""

    due: float
    #: Calls that are due at the same time are made in the order they came in.
    number: int
    work: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        self.work = None


class SharedTimer:
    """Makes calls when they are due, one after the other: they must be short.

    Parameters
    ----------
    name
        Of its thread, which begins with the first call and lasts as long as the process.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: list[LaterCall] = []
        self._number = 0
        self._change = Condition()
        self._thread: Thread | None = None

    def call_later(self, seconds: float, work: Callable[[], None]) -> LaterCall:
        with self._change:
            self._number += 1
            call = LaterCall(monotonic() + seconds, self._number, work)
            heapq.heappush(self._calls, call)
            if self._thread is None:
                self._thread = Thread(target=self._go_on, name=self._name, daemon=True)
                self._thread.start()
            self._change.notify()
        return call

    def _go_on(self) -> None:
        while True:
            work = self._next().work
            if work is None:
                continue
            try:
                work()
            except Exception:
                # The calls after it must not be lost with it.
                logging.getLogger(__name__).exception("a later call failed")

    def _next(self) -> LaterCall:
        """Wait for the next call that is due."""
        with self._change:
            while not self._calls or self._calls[0].due > monotonic():
                left = self._calls[0].due - monotonic() if self._calls else None
                self._change.wait(left)
            return heapq.heappop(self._calls)
