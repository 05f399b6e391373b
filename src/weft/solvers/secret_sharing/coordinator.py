"""Sealed training, the coordinator's half: points, guards and certificates from noisy scalars."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from weft.array_types import Floats, Ints
from weft.crypto import Adder
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel
from weft.solvers.run_loop import Clock, ends_whole_run, why_stop
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.coordinator_held_out_losses import HeldOut, starting_losses
from weft.solvers.secret_sharing.coordinator_lbfgs import Descent, Trial, factors_of
from weft.solvers.secret_sharing.coordinator_primal_and_dual_bounds import ReleasedPoint
from weft.solvers.secret_sharing.coordinator_series_range_guard import SeriesChoice
from weft.solvers.secret_sharing.exponential_fourier_series import AnySeries, ExponentialSeries
from weft.solvers.secret_sharing.gamma_as_poisson import GAMMA
from weft.solvers.secret_sharing.gram_matrix_with_error_bounds import VectorProducts
from weft.solvers.secret_sharing.point_and_vector_limit import MOST_GRADIENTS, spare_points
from weft.solvers.secret_sharing.scalars_opened_in_total import Told
from weft.solvers.secret_sharing.second_moment_round_trips import MomentExchange
from weft.solvers.secret_sharing.supported_losses import EXPONENTIAL_LOSSES
from weft.solvers.solver_interfaces_and_results import (
    Checkpointing,
    Coordinator,
    Record,
    Result,
    Stage,
)
from weft.solvers.subspace.class_fold_problems import Problems
from weft.solvers.subspace.coordinator_of_lambda_path import chosen_stage
from weft.sums.gap_certificate import Certificate

#: Points that are tried before a step is given up, and how often in a run one may be too far out.
_MOST_TRIES, _MOST_ALARMS = 12, 4
_NO_STEP = "no step leads to a point that is better by more than rounding"
#: From here on models of counts and amounts may end so, far from their optimum.
_LARGE_LAMBDA = 100.0
_LITTLE_LEFT = (
    "; of counts and amounts such a lambda leaves little but the intercept: take one below 100, or "
    "train with mode = 'sums'"
)
#: Iterations without a better bound after which a run ends.
_MOST_IDLE = 12
#: The same where standard errors are wanted, of which a certified gap says little for a tiny λ, and
#: gradients can be told from noise.
_MOST_IDLE_FOR_ERRORS = 40
_BETTER = 0.99
#: Shares of a step above which it may be made shorter.
_LONG = 0.2
#: By what share P must fall, where the bound does not get better, for an iteration not to be idle.
_FALL = 1e-4


class SealedCoordinator(Coordinator):
    """Trains one λ after the other; classes, also without each fold, are problems side by side."""

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
        problems = Problems(classes, settings.folds)
        exchange = MomentExchange(channel, holdings, settings, adder, problems, weight, label)
        run = _Run(exchange, holdings, settings, problems, channel, offset, progress)
        return run.train()


class _Run:
    """The course of one run."""

    def __init__(
        self,
        exchange: MomentExchange,
        holdings: HoldingMap,
        settings: Settings,
        problems: Problems,
        channel: Channel,
        offset: float,
        progress: Callable[[Record], None] | None,
    ) -> None:
        self._exchange, self._settings, self._progress = exchange, settings, progress
        self._squared = settings.loss == "squared"
        self._exponential = settings.loss in EXPONENTIAL_LOSSES
        errors = exchange.errors
        #: Of a squared loss, offsets are taken off the labels.
        self._offset = 0.0 if self._squared else offset
        if settings.loss == GAMMA:
            # Scores have both.
            self._offset += errors.bounds.response_reach
        first = exchange.ladder[0]
        centre = first.centre if isinstance(first, ExponentialSeries) else 0.0
        if centre:
            centre /= exchange.intercept_length
        #: Whether losses at w = 0 differ, so that this point is measured as any other.
        self._measures_start = not self._squared and (
            self._offset > 0 or errors.bounds.weighing is not None or self._exponential
        )
        self._parties = len(holdings.parties)
        self._guard = SeriesChoice(errors.bounds.rows, self._parties, exchange.ladder)
        lam, self._layout = settings.lambdas[0], problems
        starts = starting_losses(errors.bounds, exchange.folds, self._squared)
        self._problems, self._held = [], list[HeldOut]()
        for share, start, left_out in zip(*(each.tolist() for each in starts), strict=True):
            products = VectorProducts(exchange.intercept_length)
            problem = Descent(
                errors,
                self._squared,
                lam * share,
                share,
                start,
                products,
                self._offset,
                self._exponential,
                centre,
            )
            self._problems.append(problem)
            self._held.append(HeldOut(problem, self._squared, left_out))
        self._vectors = self._iteration = self._alarms = 0
        #: Points that may still be tried: parties answer no more, see `PointAndVectorLimit`.
        self._spare = spare_points(settings)
        self.result = Result(notes=exchange.notes)
        self._clock = Clock(channel, self.result)

    def train(self) -> Result:
        """All λ, each until it is certified or a limit is reached."""
        settings, result = self._settings, self.result
        self._begin()
        points: dict[int, list[ReleasedPoint]] = {}
        for number, lam in enumerate(settings.lambdas):
            for problem in self._problems:
                problem.turn(lam)
            over = self._train_one(lam)
            models = [problem.model for problem in self._problems[: self._layout.classes]]
            self._exchange.keep(number, np.array(models))
            points[number] = [each.released for each in self._problems[: self._layout.classes]]
            scores = self._held_scores()
            self._note_folds(lam)
            stage = Stage(number, lam, self._certificate(), self._clock.round_trips, scores)
            result.stages.append(stage)
            left = settings.lambdas[number + 1 :]
            if over and left:
                result.notes.append(
                    f"{result.stopped}: λ = {', '.join(f'{x:g}' for x in left)} not trained"
                )
                break
        chosen = chosen_stage(result.stages, settings)
        result.certificate, result.model_iteration = chosen.certificate, chosen.number
        released = points[chosen.number]
        if self._exponential:
            # The series in use may have become shorter since.
            self._guard.reach_model(max(point.scores for point in released))
        level = 0 if self._squared else self._guard.level
        self._exchange.moments(settings, chosen.number, released, level)
        result.notes.append(self._widths_in_words())
        self._note_end(chosen.certificate.gap)
        return result

    def _begin(self) -> None:
        exchange = self._exchange
        exchange.first()
        bits = self._problems[0].noise_bits()
        rows = exchange.vector(bits)
        self._vectors = len(rows)
        for at, problem in enumerate(self._problems):
            if self._measures_start:
                problem.take_aside(rows[:, at], bits)
            else:
                problem.begin(rows[:, at], bits)
        if self._layout.folds:
            exchange.held()
            self._take_aside(exchange.vector)
        if self._measures_start:
            self._begin_measured()

    def _begin_measured(self) -> None:
        """The gradient at w = 0, where scores are the offsets: of every problem."""
        self._guard.reach(self._offset)
        for problem in self._problems:
            problem.limit_reach(self._guard.most_reach)
        active = np.arange(len(self._problems))
        trials = [problem.at_centre() for problem in self._problems]
        self._spare -= 1
        self._exchange.point(active, factors_of(trials, self._vectors))
        told = self._exchange.slopes(self._guard.level, 0)
        self._accept(active, told, np.array([trial.reach for trial in trials]))

    def _take_aside(self, make: Callable[[Ints], Floats]) -> None:
        """A vector that is no gradient, of every problem."""
        bits = self._problems[0].most_noise_bits()
        rows = make(bits)
        self._vectors += 1
        for at, problem in enumerate(self._problems):
            problem.take_aside(rows[:, at], bits)

    def _held_scores(self) -> list[list[float]] | None:
        """Samples left out, their losses, and squared errors, of all folds: see `Stage.scores`.

        Parties know who is in which fold: told fold by fold to one of them, that submitted the
        run, losses would be equations about single samples.
        """
        layout, bounds = self._layout, self._exchange.errors.bounds
        if not layout.folds:
            return None
        if self._squared:
            trials = [problem.at_model() for problem in self._problems]
            self._exchange.point(np.arange(layout.width), factors_of(trials, self._vectors))
            self._exchange.slopes(self._guard.level, 0, held=True)
            self._take_aside(self._exchange.vector)
        losses = bounds.samples * np.array([held.loss() for held in self._held])
        count = float(self._exchange.folds.samples[layout.classes :: layout.classes].sum())
        loss = float(losses[layout.classes :].sum())
        # The squared loss is half of the squared error; nobody knows how many are right.
        return [[count, loss, 2 * loss if self._squared else math.nan]]

    def _train_one(self, lam: float) -> bool:
        """Iterate for one λ; returns whether a limit of the whole run is reached."""
        settings, begun = self._settings, self._iteration
        best, lowest, idle = math.inf, math.inf, 0
        while True:
            gap = max(problem.gap for problem in self._problems)
            if self._iteration:
                self._record(lam)
            if settings.gap is not None and gap <= settings.gap:
                if not self._iteration:
                    # Weights of zero are a model, too: what it has cost is told.
                    self._record(lam)
                self.result.stopped = f"certified gap {gap:.2e} ≤ {settings.gap:g}"
                return False
            primal = sum(problem.primal for problem in self._problems)
            better = gap < _BETTER * best or primal < (1 - _FALL) * lowest
            best, lowest = min(best, gap), min(lowest, primal)
            idle = 0 if better else idle + 1
            history = self.result.history
            done = self._iteration - begun
            why = why_stop(settings, done, history[-1]) if history else ""
            over = ends_whole_run(settings, done, why)
            seen = not all(problem.hidden for problem in self._problems)
            patient = settings.inference != "none" and seen
            if idle >= (_MOST_IDLE_FOR_ERRORS if patient else _MOST_IDLE):
                why = "rounding and noise keep the gap from falling below this"
            if self._iteration >= MOST_GRADIENTS:
                why, over = f"{MOST_GRADIENTS} gradients", True
            why = why or self._iterate()
            if why == _NO_STEP and self._exponential and lam >= _LARGE_LAMBDA:
                why += _LITTLE_LEFT
            if why:
                self.result.stopped = why
                return over

    def _iterate(self) -> str:
        """One gradient of every problem that is not done; returns why none could be made."""
        active = self._active()
        trials = self._propose(active)
        for _ in range(min(_MOST_TRIES, self._spare)):
            self._spare -= 1
            reach = max(trial.reach for trial in trials)
            period = 0 if self._squared else self._guard.period(reach)
            self._exchange.point(active, factors_of(trials, self._vectors))
            told = self._exchange.slopes(self._guard.level, period)
            scores = self._judge(active, trials, told, reach, period)
            if scores is not None:
                self._accept(active, told, scores)
                return ""
            if self._alarms > _MOST_ALARMS:
                return (
                    f"scores leave ±{self._guard.series.reach:g}, the most that sealed training "
                    "can hold; raise lambda, or train with mode = 'sums'"
                )
        return _NO_STEP

    def _active(self) -> Ints:
        """Problems to go on with: all of them where their vectors serve for another λ."""
        target = self._settings.gap
        if target is None or len(self._settings.lambdas) > 1 or self._layout.folds:
            return np.arange(len(self._problems))
        gaps = np.array([problem.gap for problem in self._problems])
        return np.flatnonzero(gaps > target)

    def _propose(self, active: Ints) -> list[Trial]:
        target, trials = self._settings.gap or 0.0, []
        for number in active.tolist():
            problem = self._problems[number]
            problem.limit_reach(self._guard.most_reach)
            trials.append(problem.propose(target) if problem.gap > target else problem.stay())
        return trials

    def _judge(
        self,
        active: Ints,
        trials: list[Trial],
        told: Told,
        reach: float,
        period: int,
    ) -> Floats | None:
        """Bounds of scores if all points are good; None: some are tried again elsewhere."""
        bounds, losses, alarms = [], told.losses, told.alarms
        for trial, alarm in zip(trials, alarms.tolist(), strict=True):
            # Below the reach of the series, a point needs no alarm.
            safe = self._squared or trial.reach <= self._guard.series.reach
            bounds.append(trial.reach if safe else self._guard.bound(alarm, reach, period))
        if None in bounds and not self._may_shorten(trials, bounds):
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

    def _may_shorten(self, trials: list[Trial], bounds: list[float | None]) -> bool:
        """Whether steps that went too far are made shorter before a longer series is taken.

        So it is where the series for scores that are twice as large is many times less exact.
        """
        far = [t for t, bound in zip(trials, bounds, strict=True) if bound is None]
        return self._exponential and all(trial.step > _LONG for trial in far)

    def _accept(self, active: Ints, told: Told, scores: Floats) -> None:
        bits: Ints = np.max([self._problems[n].noise_bits() for n in active.tolist()], axis=0)
        rows = self._exchange.vector(bits)
        self._vectors += 1
        self._iteration += 1
        self._spare += 2
        series: AnySeries | None = None if self._squared else self._guard.series
        for at, number in enumerate(active.tolist()):
            self._problems[number].accept(
                rows[:, at], bits, float(told.losses[at]), series, float(scores[at])
            )
            self._held[number].note(float(told.held[at]))
        if self._exponential:
            self._guard.narrow(max(problem.scores for problem in self._problems))

    # ── what is told ──────────────────────────────────────────────────────────────────────

    def _certificate(self) -> Certificate:
        problems = self._problems[: self._layout.classes]
        return Certificate(
            self._iteration,
            tuple(problem.proof[0] for problem in problems),
            tuple(problem.proof[1] for problem in problems),
            tuple(problem.measured for problem in problems),
        )

    def _record(self, lam: float) -> None:
        record = self._clock.record(self._iteration, self._parties, self._certificate(), lam=lam)
        self.result.history.append(record)
        if self._progress is not None:
            self._progress(record)

    def _note_folds(self, lam: float) -> None:
        """Say where models without a fold are not what was asked for: no certificate is of them."""
        target, folds = self._settings.gap, self._problems[self._layout.classes :]
        worst = max((problem.gap for problem in folds), default=0.0)
        if target is not None and worst > target:
            self.result.notes.append(
                f"sealed: λ = {lam:g}, models without a fold are within {worst:.1e} of their "
                f"optimum, {target:g} was asked for: losses of what is left out are of these"
            )

    def _note_end(self, gap: float) -> None:
        """Say why a run with standard errors ended before it was certified as it was asked to be.

        Of several λ the last one's reason is not that of the chosen one.
        """
        settings = self._settings
        if settings.inference == "none" or len(settings.lambdas) > 1 or settings.gap is None:
            return
        if gap > settings.gap:
            self.result.notes.append(
                f"sealed: ended with a certified gap of {gap:.1e}, {settings.gap:g} was asked for: "
                f"{self.result.stopped}"
            )

    def _widths_in_words(self) -> str:
        widths = self._exchange.errors.widths
        held = "" if self._squared else f", scores up to ±{self._guard.series.reach:g}"
        return (
            f"sealed: slopes in {widths.slope} binary digits, weights in units of 2^-28{held}; "
            f"{self._exchange.dealt_bytes / 1e6:.1f} MB dealt and "
            f"{self._exchange.opened_bytes / 1e6:.1f} MB opened in {self._vectors} gradients"
        )
