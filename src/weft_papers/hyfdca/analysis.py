"""What the runs say: relative loss, smoothed curves, the axes of the figures, and who is ahead.

Section 7.4 of the paper: P_R = (P − P*)/P*; a moving average over ω iterations; t_R = t/(t_max − ω)
(15); T_R = T/max(T₁, T₂, T₃) (14), where the T_i are the whole times of the algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeGuard

import numpy as np

from weft.array_types import Floats
from weft_papers.hyfdca.cases import Case, Method, Plan
from weft_papers.hyfdca.equal_time_rules import RULES, seconds_each, timed_end
from weft_papers.hyfdca.evaluation_points import ALONG
from weft_papers.hyfdca.measure_iteration_cost import Costs
from weft_papers.hyfdca.paper import BASELINES, Baseline, data_sets
from weft_papers.hyfdca.results_folder import ResultsFolder
from weft_papers.hyfdca.run_case import Curve

Mode = Literal["iterations", "paper", "computing", "time"]
Measure = Literal["loss", "accuracy"]
#: What is equal: iterations, or time by one of three rules.
MODES: tuple[Mode, ...] = ("iterations", *RULES)
MEASURES: tuple[Measure, ...] = ("loss", "accuracy")
#: Share of an end that a run must have come to, to be judged by where it is.
_NEAR = 0.98
#: Less of the paper's time than this says nothing about it.
_LEAST_SHARE = 0.01
#: Our methods that are held against the paper's two others.
SERIES: tuple[Method, ...] = ("hyfdca", "unit", "safe")


@dataclass(frozen=True)
class Line:
    """One run as a figure shows it.

    Attributes
    ----------
    iterations, seconds
        After which it is looked at, and when that is, by the rule; of equal iterations: nan.
    window
        Iterations that it is smoothed over.
    relative_loss, accuracy
        Smoothed; but for the ends, where there are several points within the window, over as many
        iterations as hold three of them.
    end
        The values that are compared: means over the window at the end. None: it does not go there.
    diverged
        How, in words; empty: it did not.
    """

    case: Case
    iterations: Floats
    seconds: Floats
    window: int
    relative_loss: Floats
    accuracy: Floats
    end: dict[Measure, float] | None
    diverged: str


@dataclass(frozen=True)
class Comparison:
    """One of our methods against one of the two others, in one respect.

    Attributes
    ----------
    ours, theirs
        P_R, or accuracy on samples held out, at the end; None: diverged.
    share
        How much of the paper's time both runs go to; of equal iterations: all.
    """

    case: Case
    against: Baseline
    mode: Mode
    measure: Measure
    ours: float | None
    theirs: float | None
    share: float = 1.0

    @property
    def ahead(self) -> bool:
        """Whether our method is strictly better; a run that diverged is behind any other."""
        if self.ours is None or self.theirs is None:
            return self.ours is not None
        return self.ours < self.theirs if self.measure == "loss" else self.ours > self.theirs


class Findings:
    """All that a reproduction found, as far as it has been run.

    Parameters
    ----------
    plan
        The cases to compare; runs longer than its scale are cut off.
    """

    def __init__(self, plan: Plan, results: ResultsFolder) -> None:
        self.plan, self._results = plan, results
        # Read once: figures and tables ask for them over and over.
        self._curve, self._optimum = cache(results.curve), cache(self.optimum)
        self._line, self._compared = cache(self._line_of), cache(self._all_of)

    def central(self, data: str) -> dict[str, Any]:
        return self._results.central(data, self.plan.seed) or {}

    def candidates(self, data: str) -> dict[str, dict[str, Any]]:
        """Optima of other readings of the problem."""
        return self._results.candidates(data)

    def optimum(self, data: str) -> float:
        """P*: liblinear's, or the lowest P that any run came to, should it be lower."""
        found = [float(self.central(data).get("loss", math.inf))]
        for case in self.plan.cases():
            curve = self._curve(case) if case.data == data else None
            found += [loss for loss in (curve.losses if curve else ()) if loss is not None]
        return min(found)

    def costs(self, case: Case) -> Costs | None:
        return self._results.costs(case)

    @property
    def note(self) -> str:
        """How far runs are to go, and how many of those that are compared go as far."""
        compared = [case for case in self.plan.cases() if self.plan.compared(case)]
        lines = [self.line(case, "iterations") for case in compared]
        there = sum(_comparable(line) for line in lines)
        if there == len(compared):
            return self.plan.note
        wanted = self.plan.note.replace("Length:", "Wanted:", 1)
        return f"{wanted} Of {len(compared)} runs to compare, {there} are there to the end."

    def length(self, case: Case) -> int | None:
        """Iterations that were run; None: none."""
        curve = self._curve(self.stand_in(case))
        return None if curve is None else curve.length

    def versions(self) -> set[str]:
        """Of Weft, by which the runs were made."""
        curves = [self._curve(case) for case in self.plan.cases()]
        return {curve.weft for curve in curves if curve is not None}

    def line(self, case: Case, mode: Mode, share: float = 1.0) -> Line | None:
        """A run as far as the experiment goes; None: not run, or not in that experiment.

        ``share`` is how much of the seconds of equal time is looked at.
        """
        return self._line(case, mode, share)

    def _line_of(self, case: Case, mode: Mode, share: float) -> Line | None:
        target = self.plan.target(case)
        target = target._replace(seconds=share * target.seconds)
        if mode != "iterations" and not target.seconds:
            return None
        same = self.stand_in(case)
        curve, costs = self._curve(same), self.costs(same)
        if curve is None:
            return None
        each, (last, window) = math.nan, (target.iterations, target.window)
        if mode != "iterations":
            known, end = seconds_each(same, mode, costs), timed_end(same, target, mode, costs)
            if known is None or end is None:
                return None
            each, (last, window) = known, end
        t, losses, scores = _values(curve)
        best = self._optimum(case.data)
        relative = (losses - best) / best
        gone = curve.diverged if curve.length < last else ""
        early = curve.ended and not curve.diverged
        values: dict[Measure, Floats] = {"loss": relative, "accuracy": scores}
        at_end = None if gone else ends(t, values, last, window, early=early)
        shown = t <= last
        # Certified points are no noisy ones.
        wide = 1 if case.method == "auto" else max(window, round(3 * last / ALONG))
        return Line(
            case,
            t[shown],
            t[shown] * each,
            window,
            smoothed(t[shown], relative[shown], wide),
            smoothed(t[shown], scores[shown], wide),
            at_end,
            gone,
        )

    def stand_in(self, case: Case) -> Case:
        """Rows of norm 1 need not be divided by anything: the case is that of HyFDCA."""
        if case.method == "unit" and case not in self.plan.cases():
            return Case(case.data, case.number, "hyfdca", case.seed)
        return case

    def case(self, data: str, number: int, method: Method) -> Case:
        return Case(data, number, method, self.plan.seed)

    def comparisons(self, method: Method) -> Sequence[Comparison]:
        """36 of each mode, at most: three data sets and settings, two others, two respects."""
        return self._compared(method)

    def _all_of(self, method: Method) -> Sequence[Comparison]:
        return [
            comparison
            for data in self.plan.data
            for setting in data_sets()[data].compared
            for comparison in self._compare(data, data_sets()[data].settings.index(setting), method)
        ]

    def _compare(self, data: str, number: int, method: Method) -> Iterator[Comparison]:
        case = self.case(data, number, method)
        for mode in MODES:
            for against in BASELINES:
                other = self.case(data, number, against)
                share = min(self._reach(case, mode), self._reach(other, mode))
                if share < _LEAST_SHARE:
                    continue
                ours, theirs = (self.line(each, mode, share) for each in (case, other))
                if not _comparable(ours) or not _comparable(theirs):
                    continue
                for measure in MEASURES:
                    one, two = (
                        None if line.end is None else line.end[measure] for line in (ours, theirs)
                    )
                    yield Comparison(case, against, mode, measure, one, two, share)

    def _reach(self, case: Case, mode: Mode) -> float:
        """The share of equal time that a run goes to, at most all; its end may have come early."""
        same, target = self.stand_in(case), self.plan.target(case)
        curve = self._curve(same)
        if mode == "iterations" or curve is None or curve.ended:
            return 1.0
        each = seconds_each(same, mode, self.costs(same))
        if each is None or not target.seconds:
            return 0.0
        # Rounded down to an iteration of each: a share that is all is all.
        return min(1.0, (curve.length + 1) * each / target.seconds)


def count(comparisons: Sequence[Comparison], mode: Mode) -> tuple[int, int]:
    """In how many of them ours is ahead, and how many there are."""
    some = [comparison for comparison in comparisons if comparison.mode == mode]
    return sum(comparison.ahead for comparison in some), len(some)


def ends(
    t: Floats, values: Mapping[Measure, Floats], last: int, window: int, *, early: bool = False
) -> dict[Measure, float] | None:
    """Means over the last ``window`` iterations before ``last``, of what was evaluated there.

    Where nothing was, the value lies between those of the neighbours. None: the run does not go as
    far, unless it came ``early`` where it should: then its last values count.
    """
    if not len(t) or (t[-1] < _NEAR * last and not early) or t[0] > last:
        return None
    found: dict[Measure, float] = {}
    within = (t > last - window) & (t <= last)
    for measure, all_ in values.items():
        known = within & ~np.isnan(all_)
        if known.any():
            found[measure] = float(all_[known].mean())
        else:
            some = ~np.isnan(all_)
            found[measure] = float(np.interp(last, t[some], all_[some]))
    return found


def smoothed(t: Floats, values: Floats, window: int) -> Floats:
    """Means over the last ``window`` iterations, of the points that were evaluated there."""
    first = np.searchsorted(t, t - window, side="right")
    known = ~np.isnan(values)
    # Sums from the first place of each window up to itself; reduceat ends before the second place.
    ends = np.column_stack([first, np.arange(1, len(values) + 1)]).ravel()
    sums = np.add.reduceat(np.append(np.where(known, values, 0.0), 0.0), ends)[::2]
    counts = np.add.reduceat(np.append(known, False).astype(np.int64), ends)[::2]
    with np.errstate(invalid="ignore"):
        return np.where(counts > 0, sums / counts, math.nan)


def relative_iterations(t: Floats, most: int, window: int) -> Floats:
    """(15): the share of the iterations that are done; a mean stands where its window begins."""
    share: Floats = np.maximum(t - window, 0.0) / max(1, most - window)
    return share


def relative_times(lines: Sequence[Line]) -> list[Floats]:
    """(14): times as a share of the longest whole time of the paper's three methods."""
    three = [line for line in lines if line.case.method in ("hyfdca", *BASELINES)]
    longest = max((float(line.seconds[-1]) for line in three if len(line.seconds)), default=1.0)
    return [line.seconds / longest for line in lines]


def _comparable(line: Line | None) -> TypeGuard[Line]:
    """Whether a run says something about who is ahead."""
    return line is not None and (line.end is not None or bool(line.diverged))


def _values(curve: Curve) -> tuple[Floats, Floats, Floats]:
    """Iterations, P and accuracies."""
    t = np.array(curve.iterations, np.float64)
    losses = np.array([math.inf if loss is None else loss for loss in curve.losses], np.float64)
    scores = [math.nan if score is None else score for score in curve.accuracies]
    return t, losses, np.array(scores, np.float64)
