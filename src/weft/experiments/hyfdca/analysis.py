"""What the runs say: relative loss, smoothed curves, the axes of the figures, and who is ahead.

Section 7.4 of the paper: P_R = (P − P*)/P*; a moving average over ω iterations; t_R = t/(t_max − ω)
(15); T_R = T/max(T₁, T₂, T₃) (14), where the T_i are the whole times of the algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from weft.experiments.hyfdca.archive import Archive
from weft.experiments.hyfdca.cases import Case, Method, Plan
from weft.experiments.hyfdca.costs import Costs
from weft.experiments.hyfdca.paper import BASELINES, Baseline, data_sets
from weft.experiments.hyfdca.running import Curve

Floats = NDArray[np.float64]
Mode = Literal["iterations", "time"]
Measure = Literal["loss", "accuracy"]
MODES: tuple[Mode, ...] = ("iterations", "time")
MEASURES: tuple[Measure, ...] = ("loss", "accuracy")
#: Our methods that are held against the paper's two others.
SERIES: tuple[Method, ...] = ("hyfdca", "unit", "safe")


@dataclass(frozen=True)
class Line:
    """One run as a figure shows it.

    Attributes
    ----------
    iterations, seconds
        After which it is looked at, and when that is, as modelled.
    relative_loss, accuracy
        Smoothed.
    """

    case: Case
    iterations: Floats
    seconds: Floats
    relative_loss: Floats
    accuracy: Floats
    diverged: str

    @property
    def end(self) -> dict[Measure, float]:
        """The last values; a run that diverged is as bad as can be."""
        if self.diverged or not len(self.iterations):
            return {"loss": math.inf, "accuracy": 0.0}
        known = self.accuracy[~np.isnan(self.accuracy)]
        return {
            "loss": float(self.relative_loss[-1]),
            "accuracy": float(known[-1]) if len(known) else math.nan,
        }


@dataclass(frozen=True)
class Comparison:
    """One of our methods against one of the two others, in one respect.

    Attributes
    ----------
    ours, theirs
        P_R, or accuracy on samples held out, at the end.
    """

    case: Case
    against: Baseline
    mode: Mode
    measure: Measure
    ours: float
    theirs: float

    @property
    def ahead(self) -> bool:
        """Whether our method is strictly better."""
        if math.isnan(self.ours):
            return False
        return self.ours < self.theirs if self.measure == "loss" else self.ours > self.theirs


class Findings:
    """All that a reproduction found, as far as it has been run.

    Parameters
    ----------
    plan
        What is looked at: its scale cuts longer runs off.
    """

    def __init__(self, plan: Plan, archive: Archive) -> None:
        self.plan, self._archive = plan, archive
        # Read once: figures and tables ask for them over and over.
        self._curve, self._optimum = cache(archive.curve), cache(self.optimum)

    def central(self, data: str) -> dict[str, Any]:
        return self._archive.central(data) or {}

    def optimum(self, data: str) -> float:
        """P*: liblinear's, or the lowest P that any run came to, should it be lower."""
        found = [float(self.central(data).get("loss", math.inf))]
        for case in self.plan.cases():
            curve = self._curve(case) if case.data == data else None
            found += [loss for loss in (curve.losses if curve else ()) if loss is not None]
        return min(found)

    def costs(self, case: Case) -> Costs | None:
        return self._archive.costs(case)

    def line(self, case: Case, mode: Mode) -> Line | None:
        """A run as far as the experiment goes; None: not run."""
        curve, costs = self._curve(self.stand_in(case)), self.costs(self.stand_in(case))
        if curve is None or costs is None:
            return None
        each = costs.seconds()
        target = self.plan.target(case)
        last = target.iterations if mode == "iterations" else math.floor(target.seconds / each)
        window = self.plan.window(case) if mode == "iterations" else _hundredth(curve, last)
        t, loss, accuracy = _until(curve, last)
        best = self._optimum(case.data)
        relative = (loss - best) / best
        gone = curve.diverged if curve.length < last else ""
        return Line(
            case,
            t,
            t * each,
            smoothed(t, relative, window),
            smoothed(t, accuracy, window),
            gone,
        )

    def stand_in(self, case: Case) -> Case:
        """Rows of norm 1 need not be divided by anything: the case is that of HyFDCA."""
        if case.method == "unit" and case not in self.plan.cases():
            return Case(case.data, case.number, "hyfdca", case.seed)
        return case

    def case(self, data: str, number: int, method: Method) -> Case:
        return Case(data, number, method, self.plan.seed)

    def comparisons(self, method: Method) -> Iterator[Comparison]:
        """At most 72: three data sets, three settings, two others, two respects, twice."""
        for data in self.plan.data:
            paper = data_sets()[data]
            for setting in paper.compared:
                number = paper.settings.index(setting)
                yield from self._compare(data, number, method)

    def _compare(self, data: str, number: int, method: Method) -> Iterator[Comparison]:
        case = self.case(data, number, method)
        for mode in MODES:
            ours = self.line(case, mode)
            for against in BASELINES:
                theirs = self.line(self.case(data, number, against), mode)
                if ours is None or theirs is None:
                    continue
                for measure in MEASURES:
                    pair = ours.end[measure], theirs.end[measure]
                    yield Comparison(case, against, mode, measure, *pair)


def count(comparisons: Sequence[Comparison], mode: Mode) -> tuple[int, int]:
    """In how many of them ours is ahead, and how many there are."""
    some = [comparison for comparison in comparisons if comparison.mode == mode]
    return sum(comparison.ahead for comparison in some), len(some)


def smoothed(t: Floats, values: Floats, window: int) -> Floats:
    """Means over the last ``window`` iterations, of the points that were evaluated there."""
    if window < 2 or not len(t):
        return values
    first = np.searchsorted(t, t - window, side="right")
    known = np.where(np.isnan(values), 0.0, values)
    sums = np.concatenate([[0.0], np.cumsum(known)])
    counts = np.concatenate([[0], np.cumsum(~np.isnan(values))])
    last = np.arange(1, len(t) + 1)
    number = counts[last] - counts[first]
    with np.errstate(invalid="ignore", divide="ignore"):
        means: Floats = np.where(number > 0, (sums[last] - sums[first]) / number, np.nan)
    return means


def relative_iterations(t: Floats, most: int, window: int) -> Floats:
    """(15): the share of the iterations that are done."""
    share: Floats = t / max(1, most - window)
    return share


def relative_times(lines: Sequence[Line]) -> list[Floats]:
    """(14): times as a share of the longest whole time."""
    longest = max((float(line.seconds[-1]) for line in lines if len(line.seconds)), default=1.0)
    return [line.seconds / longest for line in lines]


def _until(curve: Curve, last: int) -> tuple[Floats, Floats, Floats]:
    """The points of a curve up to an iteration."""
    t = np.array(curve.iterations, np.float64)
    keep = t <= last
    losses = np.array([math.inf if loss is None else loss for loss in curve.losses])
    scores = np.array([math.nan if score is None else score for score in curve.accuracies])
    return t[keep], losses[keep], scores[keep]


def _hundredth(curve: Curve, last: int) -> int:
    """ω of the experiments of equal time."""
    return round(0.01 * min(curve.length, last))
