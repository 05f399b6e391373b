"""The seven metrics by which a run's options are judged: section 7.3 of Overman, Blum and Klabjan.

Four look at where a run goes, three at what an iteration costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np

from weft.protocol.metering import LATENCIES
from weft.solvers.solver_interfaces_and_results import Record

#: Losses at the end that are averaged.
LAST = 5
#: Which part of the way down counts as progress made.
PROGRESS = 0.9


@dataclass(frozen=True)
class Point:
    """The model after some iterations: its loss, and accuracy or R² on samples held out."""

    iteration: int
    loss: float
    score: float | None


@dataclass(frozen=True)
class Metrics:
    """What one run is judged by.

    Attributes
    ----------
    seconds_near, seconds_far, seconds_satellite
        Mean seconds of an iteration at 0, 0.2575 and 0.8 s a round trip: the slowest party's
        computing, and the round trips.
    loss
        Mean of the last five losses that were evaluated, w = 0 aside.
    score
        The best accuracy, or R², of any point on samples held out.
    volatility
        Standard deviation of the differences of consecutive losses.
    progress
        The first iteration by which 90% of the way from the first loss down to the lowest are made.
    """

    seconds_near: float
    seconds_far: float
    seconds_satellite: float
    loss: float
    score: float
    volatility: float
    progress: float

    @property
    def values(self) -> tuple[float, ...]:
        return astuple(self)


NAMES = tuple(field.name for field in fields(Metrics))
LARGER_IS_BETTER = tuple(name == "score" for name in NAMES)


def metrics_of(records: Sequence[Record], points: Sequence[Point]) -> Metrics:
    """Judge a run.

    Parameters
    ----------
    records
        Its iterations, at least two; costs of setting up, before the first one ends, do not count.
    points
        Points on its way, the first at iteration 0, the last at its end.
    """
    losses = np.array([point.loss for point in points])
    scores = [point.score for point in points if point.iteration and point.score is not None]
    near, far, satellite = (pace_of(records, seconds) for seconds in LATENCIES)
    return Metrics(
        seconds_near=near,
        seconds_far=far,
        seconds_satellite=satellite,
        loss=float(losses[1:][-LAST:].mean()),
        score=max(scores),
        volatility=float(np.diff(losses).std()),
        progress=float(_progress(points)),
    )


def pace_of(records: Sequence[Record], latency: float) -> float:
    """Mean seconds of an iteration, from the end of the first one on; nan of fewer than two."""
    if len(records) < 2:
        return math.nan
    first, last = records[0], records[-1]
    seconds = last.modelled_seconds(latency) - first.modelled_seconds(latency)
    return seconds / (last.iteration - first.iteration)


def _progress(points: Sequence[Point]) -> int:
    """When most of the way down is made; a run that makes none never gets there before its end."""
    start, lowest = points[0].loss, min(point.loss for point in points)
    if not lowest < start:
        return points[-1].iteration
    reached = start - PROGRESS * (start - lowest)
    return next(point.iteration for point in points if point.loss <= reached)
