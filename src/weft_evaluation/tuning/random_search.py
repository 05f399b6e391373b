"""A random search: runs under options drawn at random, until time or trials are used up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import msgspec
import numpy as np

from weft.errors import ConfigError
from weft.solvers.algorithm_choice import ALGORITHMS, check_cut, settled
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Record
from weft_evaluation.algorithm_comparison import Arena, Outcome
from weft_evaluation.choose_compared_algorithms import Entry, settings_for
from weft_evaluation.tuning.convergence_and_cost_metrics import Metrics, Point, metrics_of, pace_of
from weft_evaluation.tuning.loss_along_run import Eye, Follow, Watch, from_outside, stride
from weft_evaluation.tuning.search_space import Bound, draws

#: Iterations of the run that finds out how long one takes.
_PILOT = 6
#: Iterations of a run at least, so that there is something to average.
FEWEST_ITERATIONS = 10


@dataclass(frozen=True)
class Trial:
    """One run of a search.

    Attributes
    ----------
    number
        1 for the config's own options, then in the order of the draws.
    told
        The options that were searched; None where the algorithm chooses a value itself.
    settings
        All that the run was told.
    metrics
        What it is judged by; None where it does not count.
    failure
        Why it does not count, in words; empty: it does.
    refused
        Whether it was refused, rather than diverged.
    seconds
        Mean seconds of an iteration without any latency; nan where it did not come to a second one.
    points
        Where it was on its way.
    """

    number: int
    told: dict[str, Any]
    settings: Settings
    metrics: Metrics | None
    seconds: float
    points: tuple[Point, ...]
    failure: str = ""
    refused: bool = False


@dataclass(frozen=True)
class Limits:
    """When a search ends: after so many trials, or when none may begin any more."""

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise ConfigError(f"--trials is {self.trials}; give at least 1")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise ConfigError(f"--seconds is {self.seconds:g}; give a time above 0")


@dataclass(frozen=True)
class Found:
    """What a search of one algorithm has seen.

    Attributes
    ----------
    every
        Iterations between two looks at a run.
    looking
        Which part of the runs' time the looks took.
    """

    algorithm: str
    space: tuple[Bound, ...]
    trials: list[Trial]
    every: int
    iterations: int
    start: float
    looking: float
    seconds: float = field(compare=False)


#: Hears of every iteration: number of the trial, and seconds left where they are limited.
Tell = Callable[[int, float | None, Record], None]


class Search:
    """Runs of one algorithm on the tables of an arena, one after the other.

    Parameters
    ----------
    settings
        Of the config, for this algorithm; limits are those of the search.
    space
        What is drawn.
    every
        Iterations between two looks at a run; None: as many as looking may take.
    follow
        How to find out what model a run stands for.
    """

    def __init__(
        self,
        eye: Eye,
        settings: Settings,
        space: Sequence[Bound],
        *,
        iterations: int,
        every: int | None = None,
        follow: Follow = from_outside,
    ) -> None:
        if iterations < FEWEST_ITERATIONS:
            raise ConfigError(
                f"--iterations is {iterations}; a run is judged by at least {FEWEST_ITERATIONS}"
            )
        if every is not None and not 1 <= every <= iterations // 2:
            raise ConfigError(
                f"--every is {every}; look at a run at least every {iterations // 2} iterations"
            )
        self._eye, self._every, self._follow = eye, every, follow
        self._settings, self._iterations = settings, iterations
        self.name = settings.solver
        self.space = tuple(space)
        self._check()

    def _check(self) -> None:
        """Refuse options that the algorithm would refuse in mid-search."""
        for place in (0.0, 1.0):
            self._told({bound.name: bound.at(place) for bound in self.space})
        check_cut(self._settings, self._arena.holdings)

    @property
    def _arena(self) -> Arena:
        return self._eye.arena

    def run(self, limits: Limits, seed: int, tell: Tell | None = None) -> Found:
        """Try the config's own options, then others until the limits are reached."""
        began = monotonic()
        if self._every is None:
            self._every = self._find_stride()
        trials: list[Trial] = []
        looking = spent = 0.0
        options = draws(self.space, seed, self.name)

        def left() -> float | None:
            return None if limits.seconds is None else limits.seconds - (monotonic() - began)

        while (limits.trials is None or len(trials) < limits.trials) and (
            not trials or limits.seconds is None or (left() or 0.0) > 0
        ):
            number = len(trials) + 1
            settings = self._settings if number == 1 else self._told(next(options))
            watch = Watch(self._eye, self._every, self._iterations, self._follow)
            if tell is not None:
                watch.then = lambda record, number=number: tell(number, left(), record)
            at = monotonic()
            trials.append(self._try(number, settings, watch))
            spent, looking = spent + monotonic() - at, looking + watch.seconds
        return Found(
            self.name,
            self.space,
            trials,
            self._every,
            self._iterations,
            self._eye.start,
            looking / spent if spent else 0.0,
            monotonic() - began,
        )

    def _told(self, drawn: dict[str, Any]) -> Settings:
        told, _ = settled(settings_for(self._settings.solver, self._settings, drawn))
        return told

    def _short(self, settings: Settings, iterations: int) -> Settings:
        """The same run with a search's own limits: every one goes equally far."""
        return msgspec.structs.replace(
            settings,
            iterations=iterations,
            gap=None,
            round_trips=None,
            seconds=None,
        )

    def _find_stride(self) -> int:
        """From what an iteration takes under the config's own options, and what a look takes."""
        settings = self._short(self._settings, _PILOT)
        outcome = self._arena.run(Entry(settings.solver, settings))
        walls = [record.wall_seconds for record in outcome.history]
        if len(walls) < 3:
            return 1
        return stride(self._eye.seconds(), float(np.median(np.diff(walls))), self._iterations)

    def _try(self, number: int, settings: Settings, watch: Watch) -> Trial:
        entry = Entry(settings.solver, self._short(settings, self._iterations))
        outcome = self._arena.run(entry, watch, opened=watch.open, warm_up=number == 1)
        told = {bound.name: _value(settings, bound.name) for bound in self.space}
        failure, refused = self._failure(outcome, watch)
        if refused and number == 1:
            raise ConfigError(failure)
        points, metrics = tuple(watch.points), None
        if not failure:
            end = Point(self._iterations, outcome.primal or 0.0, _score(outcome))
            points = (*points, end)
            metrics = metrics_of(watch.records, points)
        pace = pace_of(watch.records, 0.0)
        return Trial(number, told, settings, metrics, pace, points, failure, refused)

    def _failure(self, outcome: Outcome, watch: Watch) -> tuple[str, bool]:
        """Why a run does not count (empty: it does), and whether somebody refused it."""
        if outcome.failure:
            grew = "grow without end" in outcome.failure or "diverged" in outcome.failure
            return ("the weights grow without end", False) if grew else (outcome.failure, True)
        if not all(math.isfinite(point.loss) for point in watch.points):
            return "a loss is not finite", False
        if outcome.primal is None or outcome.primal > self._eye.start:
            return "the loss at the end is above that of the start", False
        return "", False


def _score(outcome: Outcome) -> float:
    """Accuracy or R² of the model, on samples held out where there are any."""
    scores = outcome.test or outcome.train
    return scores.get("accuracy", scores.get("r2", math.nan))


def _value(settings: Settings, name: str) -> Any:
    """An option's value; None where the algorithm chooses it itself."""
    options = settings.read_options(ALGORITHMS[settings.solver].options)
    found = getattr(options if hasattr(options, name) else settings, name)
    return found if isinstance(found, int | float) else None
