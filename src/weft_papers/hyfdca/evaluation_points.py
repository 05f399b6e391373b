"""After which iterations P is evaluated: often enough to draw, and to average at the ends."""

from __future__ import annotations

import math

from weft_papers.hyfdca.cases import Target

#: Evenly spaced, on the way to each end.
ALONG = 30
#: Within the window that the value at an end is averaged over.
_WITHIN = 6


class Points:
    """The iterations of a run that are looked at.

    There are two ends: that of equal iterations, and that of equal time, of which is known how many
    iterations it is as soon as it is known what one takes.
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    def length(self, each: float) -> int:
        """Iterations of the whole run, if one takes so many modelled seconds."""
        return max(self._target.iterations, self.timed(each))

    def timed(self, each: float) -> int:
        """Iterations of the experiment of equal time."""
        return math.floor(self._target.seconds / each)

    def after(self, iteration: int, each: float) -> int:
        """The next one to look at."""
        target = self._target
        ends = [(target.iterations, target.window)]
        if timed := self.timed(each):
            ends.append((timed, window_of(timed)))
        following = [_next(iteration, *end) for end in ends if end[0] > iteration]
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
