"""Sealed training, the coordinator's half: points, guards and certificates from noisy scalars."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from weft.array_types import Floats, Ints
from weft.crypto import Adder
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel
from weft.solvers.base import Checkpointing, Coordinator, Record, Result, Stage
from weft.solvers.sealed.descent import Descent, Trial, factors_of
from weft.solvers.sealed.exchange import SealedExchange
from weft.solvers.sealed.score_guard import ScoreGuard
from weft.solvers.sealed.sine_series import Series
from weft.solvers.settings import Settings
from weft.solvers.stopping import Clock, why_stop
from weft.sums.gap_certificate import Certificate

#: Vectors that a run may have: every new one is multiplied with all others.
MOST_VECTORS = 200
#: Points that are tried before a step is given up, and how often in a run one may be too far out.
_MOST_TRIES, _MOST_ALARMS = 12, 4
#: Iterations without a better bound after which a run ends.
_MOST_IDLE = 12
_BETTER = 0.99


class SealedCoordinator(Coordinator):
    """Trains one λ after the other; classes are problems side by side."""

    def run(
        self,
        channel: Channel,
        holdings: HoldingMap,
        settings: Settings,
        adder: Adder,
        *,
        unit: float,
        label: float,
        classes: int,
        progress: Callable[[Record], None] | None = None,
        checkpointing: Checkpointing | None = None,
        warm: bool = False,
    ) -> Result:
        exchange = SealedExchange(channel, holdings, settings, adder, classes)
        run = _Run(exchange, holdings, settings, classes, channel, progress)
        return run.train()


class _Run:
    """The course of one run."""

    def __init__(
        self,
        exchange: SealedExchange,
        holdings: HoldingMap,
        settings: Settings,
        classes: int,
        channel: Channel,
        progress: Callable[[Record], None] | None,
    ) -> None:
        self._exchange, self._settings, self._progress = exchange, settings, progress
        self._squared = settings.loss == "squared"
        errors = exchange.errors
        self._parties = len(holdings.parties)
        self._guard = ScoreGuard(errors.bounds.rows, self._parties)
        lam = settings.lambdas[0]
        self._problems = [Descent(errors, self._squared, lam) for _ in range(classes)]
        self._vectors = self._iteration = self._alarms = 0
        self.result = Result(notes=exchange.notes)
        self._clock = Clock(channel, self.result)

    def train(self) -> Result:
        """All λ, each until it is certified or a limit is reached."""
        settings, result = self._settings, self.result
        self._begin()
        for number, lam in enumerate(settings.lambdas):
            for problem in self._problems:
                problem.turn(lam)
            over = self._train_one(lam)
            self._exchange.keep(number, np.array([problem.model for problem in self._problems]))
            stage = Stage(number, lam, self._certificate(), self._clock.round_trips)
            result.stages.append(stage)
            left = settings.lambdas[number + 1 :]
            if over and left:
                result.notes.append(
                    f"{result.stopped}: λ = {', '.join(f'{x:g}' for x in left)} not trained"
                )
                break
        chosen = next((s for s in result.stages if s.lam == settings.lam), result.stages[-1])
        result.certificate, result.model_iteration = chosen.certificate, chosen.number
        result.notes.append(self._widths_in_words())
        return result

    def _begin(self) -> None:
        exchange = self._exchange
        exchange.first()
        bits = self._problems[0].noise_bits()
        squares = exchange.vector(bits)
        self._vectors = 1
        for problem, square in zip(self._problems, squares[0].tolist(), strict=True):
            problem.begin(square, bits)

    def _train_one(self, lam: float) -> bool:
        """Iterate for one λ; returns whether a limit of the whole run is reached."""
        settings, begun = self._settings, self._iteration
        best, idle = math.inf, 0
        while True:
            gap = max(problem.gap for problem in self._problems)
            self._record(lam)
            if settings.gap is not None and gap <= settings.gap:
                self.result.stopped = f"certified gap {gap:.2e} ≤ {settings.gap:g}"
                return False
            best, idle = (gap, 0) if gap < _BETTER * best else (best, idle + 1)
            history = self.result.history
            why = why_stop(settings, self._iteration - begun, history[-1]) if history else ""
            over = bool(why) and why != f"{settings.iterations} iterations"
            if idle >= _MOST_IDLE:
                why = "rounding and noise keep the gap from falling below this"
            if self._vectors >= MOST_VECTORS:
                why, over = f"{MOST_VECTORS} gradients", True
            why = why or self._iterate()
            if why:
                self.result.stopped = why
                return over

    def _iterate(self) -> str:
        """One gradient of every problem that is not done; returns why none could be made."""
        active = self._active()
        trials = self._propose(active)
        for _ in range(_MOST_TRIES):
            reach = max(trial.reach for trial in trials)
            period = 0 if self._squared else self._guard.period(reach)
            self._exchange.point(active, factors_of(trials, self._vectors))
            losses, alarms = self._exchange.slopes(self._guard.level, period)
            scores = self._judge(active, trials, losses, alarms, reach, period)
            if scores is not None:
                self._accept(active, losses, scores)
                return ""
            if self._alarms > _MOST_ALARMS:
                return (
                    f"scores leave ±{self._guard.series.reach:g}, the most that sealed training "
                    "can hold; raise lambda, or train with mode = 'sums'"
                )
        return "no step leads to a point that is better by more than rounding"

    def _active(self) -> Ints:
        """Problems to go on with: all of them where their vectors serve for another λ."""
        target = self._settings.gap
        if target is None or len(self._settings.lambdas) > 1:
            return np.arange(len(self._problems))
        gaps = np.array([problem.gap for problem in self._problems])
        return np.flatnonzero(gaps > target)

    def _propose(self, active: Ints) -> list[Trial]:
        target, trials = self._settings.gap or 0.0, []
        for number in active.tolist():
            problem = self._problems[number]
            problem.limit_reach(self._guard.most_reach)
            trials.append(problem.propose() if problem.gap > target else problem.stay())
        return trials

    def _judge(
        self,
        active: Ints,
        trials: list[Trial],
        losses: Floats,
        alarms: Floats,
        reach: float,
        period: int,
    ) -> Floats | None:
        """Bounds of scores if all points are good; None: some are tried again elsewhere."""
        bounds = []
        for trial, alarm in zip(trials, alarms.tolist(), strict=True):
            # Below the reach of the series, a point needs no alarm.
            safe = self._squared or trial.reach <= self._guard.series.reach
            bounds.append(trial.reach if safe else self._guard.bound(alarm, reach, period))
        if None in bounds:
            if self._guard.widen(max(alarms.tolist()), period):
                return None
            self._alarms += 1
        again, series = False, None if self._squared else self._guard.series
        for at, number in enumerate(active.tolist()):
            problem = self._problems[number]
            share = 0.5 if bounds[at] is None else problem.refused(float(losses[at]), series)
            if share:
                trials[at], again = problem.shorten(share), True
        return None if again else np.array([b for b in bounds if b is not None])

    def _accept(self, active: Ints, losses: Floats, scores: Floats) -> None:
        bits: Ints = np.max([self._problems[n].noise_bits() for n in active.tolist()], axis=0)
        rows = self._exchange.vector(bits)
        self._vectors += 1
        self._iteration += 1
        series: Series | None = None if self._squared else self._guard.series
        for at, number in enumerate(active.tolist()):
            self._problems[number].accept(
                rows[:, at], bits, float(losses[at]), series, float(scores[at])
            )

    # ── what is told ──────────────────────────────────────────────────────────────────────

    def _certificate(self) -> Certificate:
        return Certificate(
            self._iteration,
            tuple(problem.proof[0] for problem in self._problems),
            tuple(problem.proof[1] for problem in self._problems),
        )

    def _record(self, lam: float) -> None:
        if not self._iteration:
            return
        record = self._clock.record(self._iteration, self._parties, self._certificate(), lam=lam)
        self.result.history.append(record)
        if self._progress is not None:
            self._progress(record)

    def _widths_in_words(self) -> str:
        widths = self._exchange.errors.widths
        held = "" if self._squared else f", scores up to ±{self._guard.series.reach:g}"
        return (
            f"sealed: slopes in {widths.slope} binary digits, weights in units of 2^-28{held}; "
            f"{self._exchange.dealt_bytes / 1e6:.1f} MB dealt and "
            f"{self._exchange.opened_bytes / 1e6:.1f} MB opened in {self._vectors} gradients"
        )
