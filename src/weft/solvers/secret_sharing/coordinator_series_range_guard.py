"""The guard that keeps scores where the series holds: beyond it a gradient is wrong, in silence.

No score can exceed R‖w‖, R the largest norm of a row, nor the last known bound by more than R‖Δw‖.
Where that is not enough, parties tell S = Σ sin⁸(πz/P) with a period P of at least that bound and
the reach τ of the series: a single score beyond τ makes S at least sin⁸(πτ/P).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.errors import ConfigError
from weft.solvers.secret_sharing.digit_widths import (
    MOST_ALARM_RATIO,
    alarm_error,
    alarm_threshold,
)
from weft.solvers.secret_sharing.exponential_fourier_series import AnySeries
from weft.solvers.secret_sharing.sine_series import SERIES

#: By how much a series that is taken again reaches beyond scores.
_ROOM = 1.1


@dataclass
class SeriesChoice:
    """Which series is in use, and what its alarm says.

    Attributes
    ----------
    rows, parties
        On which the alarm's rounding and noise depend.
    ladder
        Series by reach, the shortest first.
    level
        Which is in use.
    """

    rows: int
    parties: int
    ladder: tuple[AnySeries, ...] = SERIES
    level: int = 0

    @property
    def series(self) -> AnySeries:
        return self.ladder[self.level]

    @property
    def most_reach(self) -> float:
        """Bounds of scores up to which an alarm can tell."""
        longest = 2.0 ** math.floor(math.log2(MOST_ALARM_RATIO * self.series.reach))
        return longest - self.series.reach

    def reach(self, scores: float) -> None:
        """Take the first series that holds for scores as large as these."""
        fits = [level for level, series in enumerate(self.ladder) if series.reach >= 1.01 * scores]
        if not fits:
            raise ConfigError(
                "offsets are larger than sealed training can hold; take off what all of them have "
                "in common, or train with mode = 'sums'"
            )
        self.level = max(self.level, fits[0])

    def period(self, reach: float) -> int:
        """The period that an alarm needs where no score exceeds ``reach``; zero: none is needed."""
        tau = self.series.reach
        if reach <= tau:
            return 0
        return int(2 ** math.ceil(math.log2(reach + tau)))

    def bound(self, alarm: float, reach: float, period: int) -> float | None:
        """No score is larger; None: one may be beyond the series."""
        tau = self.series.reach
        if not period:
            return reach
        most = alarm + alarm_error(self.rows, tau, period, self.parties)
        if not 0.0 <= most < alarm_threshold(tau, period):
            return None
        return min(reach, period / math.pi * math.asin(most**0.125))

    def narrow(self, scores: float) -> None:
        """Take the first series again that holds for such scores, with some room."""
        fits = [n for n, series in enumerate(self.ladder) if series.reach >= _ROOM * scores]
        self.level = min([self.level, *fits])

    def reach_model(self, scores: float) -> None:
        """Take the first series that holds for such scores, which some series held for before."""
        fits = [n for n, series in enumerate(self.ladder) if series.reach >= scores]
        self.level = fits[0] if fits else len(self.ladder) - 1

    def widen(self, alarm: float, period: int) -> bool:
        """Take the next series, or the one after it if an alarm says so; false: there is none."""
        if self.level + 1 == len(self.ladder):
            return False
        self.level += 1
        # Many small scores tell as much as a large one: more than one further may be too many.
        last = self.level + 1 == len(self.ladder)
        if not last and alarm >= alarm_threshold(self.series.reach, period):
            self.level += 1
        return True
