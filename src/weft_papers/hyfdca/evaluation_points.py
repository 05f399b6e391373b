"""After which iterations P is evaluated: often enough to draw, and to average at the ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

#: Evenly spaced, on the way to each end.
ALONG = 30
#: Within the window that the value at an end is averaged over.
_WITHIN = 6


class End(NamedTuple):
    """Where an experiment ends, and over how many iterations the values there are averaged."""

    iterations: int
    window: int


class Points:
    """The iterations of a run that are looked at, for all experiments that it is part of."""

    def __init__(self, ends: Sequence[End]) -> None:
        self._ends = ends
        #: Iterations of the whole run.
        self.length = max(end.iterations for end in ends)

    def after(self, iteration: int) -> int:
        """The next one to look at."""
        following = [_next(iteration, *end) for end in self._ends if end.iterations > iteration]
        return min(following, default=iteration + 1)


def window_of(iterations: int) -> int:
    """ω of the experiments of equal time: a hundredth, and not smoothed below 2."""
    return max(1, round(0.01 * iterations))


def _next(iteration: int, end: int, window: int) -> int:
    """The next on the way to one end."""
    stride = max(1.0, end / ALONG)
    along = math.ceil((math.floor(iteration / stride) + 1) * stride)
    begin = end - window
    if iteration >= begin:
        fine = max(1.0, window / _WITHIN)
        along = begin + math.ceil((math.floor((iteration - begin) / fine) + 1) * fine)
    elif along > begin:
        # The first of the last window.
        along = begin + max(1, round(window / _WITHIN))
    return max(iteration + 1, min(along, end))
