"""The loop of every run that goes on without some parties, whatever the algorithm.

An algorithm says what it sets up, what one iteration does and how it ends. Resuming, the history,
progress, stopping, guards that stall a run, checkpoints, questions that ride along, and the wait
for the last certificate are the same for all.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from weft.crypto import Adder
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Reading, Replies, Request
from weft.solvers.checkpoints import load_checkpoint, save_checkpoint
from weft.solvers.coordinator_attendance_and_certificate import MOST_SILENT, RunState
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Checkpointing, Coordinator, Record, Result
from weft.sums.gap_certificate import Certificate

#: A gap that is smaller by this share is better.
_BETTER = 0.99
#: Rounds without training in which the last certificate waits for parties to come by.
CLOSING_ROUNDS = 10_000
#: Seconds between two questions to parties none of which answers: first and longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
#: How many names a note has at most.
_MOST_NAMES = 5

S = TypeVar("S", bound=RunState)


@dataclass(frozen=True)
class Turn:
    """What one iteration did: how many took part, and what it estimates."""

    present: int
    loss_estimate: float | None = None
    gap_estimate: float | None = None


@dataclass
class _Standing(Generic[S]):
    """All that a run goes on from, between two iterations.

    Attributes
    ----------
    algorithm
        May keep something of its own.
    certified, held
        The newest certificate that a stall was watched at, and what guards had held back then.
    """

    algorithm: IteratedCoordinator[S]
    run: S
    result: Result
    clock: Clock
    stall: GuardStall
    certified: Certificate | None
    held: int


class IteratedCoordinator(Coordinator, Generic[S]):
    """Runs an algorithm iteration by iteration.

    Attributes
    ----------
    most_idle
        Certificates without better bounds, while guards hold something back, after which a run
        stops.
    """

    most_idle: ClassVar[int] = 20

    # ── what an algorithm says ────────────────────────────────────────────────────────────

    @abstractmethod
    def new_run(
        self,
        channel: Channel,
        holdings: HoldingMap,
        settings: Settings,
        adder: Adder,
        classes: int,
    ) -> S:
        """The state of a run that has not begun."""

    @abstractmethod
    def set_up(self, run: S, unit: float) -> None:
        """Find out, and tell the parties, what the first iteration needs."""

    @abstractmethod
    def iterate(self, run: S) -> Turn:
        """One iteration."""

    @abstractmethod
    def close(self, run: S, result: Result) -> None:
        """Name the certificate and the model that the run ends with."""

    def why_stop(self, run: S, record: Record) -> str:
        """Which limit is reached, in words; empty: none."""
        if run.reached_gap and run.certificate is not None:
            return f"certified gap {run.certificate.gap:.2e} ≤ {run.settings.gap:g}"
        return why_stop(run.settings, run.iteration, record)

    def settled(self, run: S) -> bool:
        """Whether a checkpoint would keep all that parties are still owed."""
        return True

    # ── the run ───────────────────────────────────────────────────────────────────────────

    def run(
        self,
        channel: Channel,
        holdings: HoldingMap,
        settings: Settings,
        adder: Adder,
        *,
        unit: float,
        label: float,
        offset: float = 0.0,
        weight: float = 1.0,
        classes: int,
        progress: Callable[[Record], None] | None = None,
        checkpointing: Checkpointing | None = None,
        warm: bool = False,
    ) -> Result:
        run = self.new_run(channel, holdings, settings, adder, classes)
        result = Result(notes=run.notes)
        if checkpointing is not None and checkpointing.resume:
            clock = Clock(channel, result, load_checkpoint(run, result, checkpointing.folder))
            result.stopped = self.why_stop(run, result.history[-1])
        else:
            clock = Clock(channel, result)
            self.set_up(run, unit)
        self.train(run, result, clock, progress, checkpointing, rests=checkpointing is None)
        return result

    def train(
        self,
        run: S,
        result: Result,
        clock: Clock,
        progress: Callable[[Record], None] | None = None,
        checkpointing: Checkpointing | None = None,
        recalled: Callable[[], bool] = lambda: False,
        *,
        rests: bool = False,
    ) -> None:
        """Iterate until a stopping rule holds, then close.

        ``recalled`` says after every iteration whether another solver goes on from here: then the
        run ends where it is, without a reason. ``rests``: all that the coordinator goes on from is
        here, so that a journal may save it between two iterations.
        """
        stall = GuardStall(run.holdings.terms.min_batch, self.most_idle)
        stand = _Standing(self, run, result, clock, stall, run.certificate, 0)
        while not result.stopped:
            if rests:
                run.channel.at_rest(stand, result.history, Record, progress)
            record = _record(run, clock, self.iterate(run))
            result.history.append(record)
            if progress is not None:
                progress(record)
            if recalled():
                return
            result.stopped = self.why_stop(run, record)
            if run.certificate is not None and run.certificate is not stand.certified:
                why = stall.watch(run.iteration, run.held - stand.held, run.certificate.gap)
                result.stopped = result.stopped or why
                stand.certified, stand.held = run.certificate, run.held
            due = checkpointing is not None and run.iteration % checkpointing.every == 0
            if checkpointing is not None and due and self.settled(run):
                save_checkpoint(run, result, checkpointing.folder, clock.spent())
        self.close(run, result)
        if run.held > stand.held:
            stall.watch(run.iteration, run.held - stand.held, math.inf)
        last = result.history[-1]
        turn = Turn(last.present, last.loss_estimate, last.gap_estimate)
        # Closing may have brought a certificate, and has cost something.
        result.history[-1] = _record(run, clock, turn)
        if note := stall.note(None if result.certificate is None else result.certificate.gap):
            run.note(note)
        result.weights = None if run.weights is None else run.weights.values


def _record(run: RunState, clock: Clock, turn: Turn) -> Record:
    return clock.record(
        run.iteration,
        turn.present,
        run.certificate,
        loss_estimate=turn.loss_estimate,
        gap_estimate=turn.gap_estimate,
    )


# ── when it stops ─────────────────────────────────────────────────────────────────────────


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


# ── questions about a frozen model ────────────────────────────────────────────────────────


class Frozen(Protocol):
    """A model that is being certified: everyone must answer for it, each when it is present."""

    @property
    def waiting(self) -> Collection[str]: ...

    @property
    def certificate(self) -> Certificate | None: ...


def wait_for_certificate(
    run: RunState,
    frozen: Frozen,
    request: Callable[[Sequence[str]], Request[Any, Any]],
    take: Callable[[Replies[Any]], None],
) -> bool:
    """Go on asking whoever is present about a frozen model, without training.

    Returns whether everyone has answered; a note names those who did not. Where nobody answers, it
    waits for as long as the settings' ``patience``.

    Parameters
    ----------
    request
        What to ask those who are present.
    take
        Adds what they answered.
    """
    silent, began, pause = 0, run.channel.elapsed, _FIRST_PAUSE
    for extra in range(1, CLOSING_ROUNDS + 1):
        asked = request(run.participation.present(run.iteration + extra))
        if asked.messages:
            run.acknowledge(asked)
            replies = run.channel.ask(asked.phase, asked.messages)
            replies.stop_on_refusal()
            run.note_missing(replies.missing)
            take(replies)
            if replies.answered:
                silent = 0
            elif run.channel.elapsed - began < run.settings.patience:
                # All that is left to do is to wait: who is away costs no time to ask.
                run.channel.pause(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                silent += 1
        if frozen.certificate is not None:
            return True
        if silent > MOST_SILENT:
            break
    names = sorted(frozen.waiting)
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    run.note(
        f"no certificate for the last iterate: {', '.join(names[:_MOST_NAMES])}{more} did not "
        "answer"
    )
    return False
