"""Which slots changed when."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Changes:
    """Which slots changed when: a stamp per slot, and a log of the newest changes.

    A party that was away a short while finds what it missed in the log, in time that follows
    the changes; one that was away for long, or holds few slots, looks at its stamps.
    """

    def __init__(self, slots: int) -> None:
        self.stamp = np.zeros(slots, np.int32)
        self._log: list[tuple[int, NDArray[np.int64]]] = []
        self._logged = 0
        #: The log knows every change after this iteration.
        self._complete_after = 0

    def mark(self, slots: NDArray[np.int64], iteration: int) -> None:
        self.stamp[slots] = iteration
        self._log.append((iteration, slots))
        self._logged += len(slots)
        # A log longer than the stamps would cost more than they do.
        while self._logged > len(self.stamp):
            self._complete_after, dropped = self._log.pop(0)
            self._logged -= len(dropped)

    def among(self, mine: NDArray[np.int64], iteration: int) -> NDArray[np.int64]:
        """Positions in ``mine`` (ascending) of the slots that changed after ``iteration``."""
        if iteration >= self._complete_after:
            recent = [slots for when, slots in self._log if when > iteration]
            if not recent:
                return np.zeros(0, np.int64)
            if 8 * sum(len(slots) for slots in recent) < len(mine):
                changed = np.unique(np.concatenate(recent))
                at = np.searchsorted(mine, changed)
                at = at[at < len(mine)]
                held: NDArray[np.int64] = at[mine[at] == changed[: len(at)]]
                return held
        return np.flatnonzero(self.stamp[mine] > iteration)

    def copy(self) -> Changes:
        other = Changes(0)
        other.restore(self.stamp.copy(), self._complete_after)
        other._log = list(self._log)
        other._logged = self._logged
        return other

    def restore(self, stamp: NDArray[np.int32], iteration: int) -> None:
        """Stamps as they were at an iteration; the log begins anew."""
        self.stamp = stamp
        self._log, self._logged, self._complete_after = [], 0, iteration
