"""When a run stops: what it has cost so far, and what guards keep it from reaching."""

from __future__ import annotations

import math

from weft.protocol import Channel, Reading
from weft.solvers.base import Record, Result
from weft.solvers.settings import Settings
from weft.sums.gap_certificate import Certificate


class Clock:
    """Costs of a run from its first message on, also across a checkpoint.

    Parameters
    ----------
    before
        What had been spent before, as a checkpoint tells it.
    """

    def __init__(self, channel: Channel, result: Result, before: Reading | None = None) -> None:
        self._channel = channel
        # What had been spent counts; matching the parties again does not count twice.
        self._before = Reading() if before is None else before - _spent(channel)
        # Neither does the time for it.
        self._wall = result.history[-1].wall_seconds - channel.elapsed if result.history else 0.0

    def spent(self) -> Reading:
        return self._before + _spent(self._channel)

    @property
    def round_trips(self) -> int:
        return self.spent().round_trips

    def record(
        self,
        iteration: int,
        present: int,
        certificate: Certificate | None,
        *,
        loss_estimate: float | None = None,
        gap_estimate: float | None = None,
        lam: float | None = None,
    ) -> Record:
        """The history's row for where the run stands now."""
        cost = self.spent()
        return Record(
            iteration=iteration,
            present=present,
            round_trips=cost.round_trips,
            bytes_down=cost.bytes_down,
            bytes_up=cost.bytes_up,
            compute_seconds=cost.slowest,
            wall_seconds=self._wall + self._channel.elapsed,
            primal=sum(certificate.primal) if certificate else None,
            dual=sum(certificate.dual) if certificate else None,
            gap=certificate.gap if certificate else None,
            certified_at=certificate.iteration if certificate else None,
            loss_estimate=loss_estimate,
            gap_estimate=gap_estimate,
            lam=lam,
        )


def why_stop(settings: Settings, iterations: int, record: Record) -> str:
    """Which limit is reached, in words; empty: none."""
    if settings.iterations is not None and iterations >= settings.iterations:
        return f"{settings.iterations} iterations"
    if settings.round_trips is not None and record.round_trips >= settings.round_trips:
        return f"{settings.round_trips} round trips"
    if settings.seconds is not None and _seconds(settings, record) >= settings.seconds:
        return f"{settings.seconds:g} {'modelled ' * (settings.latency is not None)}seconds"
    return ""


def ends_whole_run(settings: Settings, iterations: int, why: str) -> bool:
    """Whether a reached limit is one of all λ together: iterations are counted for each."""
    return bool(why) and (settings.iterations is None or iterations < settings.iterations)


def _seconds(settings: Settings, record: Record) -> float:
    """By the clock, or as the settings model them."""
    if settings.latency is None:
        return record.wall_seconds
    return record.modelled_seconds(settings.latency)


def _spent(channel: Channel) -> Reading:
    """What a channel carried, checkpoints aside: a history must not depend on saving."""
    return channel.meter.read(without="checkpoint")


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
