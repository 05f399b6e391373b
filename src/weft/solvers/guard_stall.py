"""What guards cost a run: the gap below which it cannot come."""

from __future__ import annotations

import math

#: A gap that is smaller by this share is better.
_BETTER = 0.99


class GuardStall:
    """Counts what ``min_batch`` holds back or spreads, and notices when nothing else goes on.

    Parameters
    ----------
    min_batch
        As the parties agreed on.
    most_idle
        Bounds that are no better, while something is held back, after which a run stops.
    """

    def __init__(self, min_batch: int, most_idle: int = 20) -> None:
        self._min_batch = min_batch
        self._most_idle = most_idle
        self._held = self._iterations = 0
        self._first: int | None = None
        self._best = math.inf
        self._idle = 0

    def watch(self, iteration: int, held: int, gap: float) -> str:
        """Take note of an iteration; returns why to stop, empty where there is no reason."""
        if held:
            self._held += held
            self._iterations += 1
            self._first = iteration if self._first is None else self._first
        if gap < _BETTER * self._best:
            self._best, self._idle = gap, 0
        elif held:
            self._idle += 1
        if self._idle < self._most_idle:
            return ""
        return f"min_batch = {self._min_batch} keeps the gap from falling below this"

    def renew(self) -> None:
        """Another problem: its bounds begin anew."""
        self._best, self._idle = math.inf, 0

    def note(self, gap: float | None) -> str:
        """What was held back in all, empty if nothing was."""
        if self._first is None:
            return ""
        reached = "" if gap is None else f"; the run came to a certified gap of {gap:.1e}"
        return (
            f"min_batch = {self._min_batch} held back or spread {self._held} changes of groups of "
            f"samples, in {self._iterations} iteration(s) from {self._first} on{reached}"
        )
