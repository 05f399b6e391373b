"""How predicted probabilities agree with what came: a curve, and its slope and intercept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.array_types import Floats, Ints
from weft.report.bucketed_scores import Buckets, Figure, Z
from weft.report.score_interval import wilson_interval

#: Points of a curve at most.
_POINTS = 10
#: The largest |σ''|.
_BEND = 1.0 / (6.0 * np.sqrt(3.0))
_STEPS = 50
#: A slope that buckets leave open by more than this is not told.
_WIDEST = 1.0


@dataclass(frozen=True)
class Point:
    """Samples of about the same score: mean probability, its inexactness, and what came."""

    predicted: float
    exact_to: float
    observed: float
    low: float
    high: float
    share: float


@dataclass(frozen=True)
class Calibration:
    """The curve, mean probability and share, and the line through logits.

    ``intercept`` is how much must be added to all scores for the means to agree (calibration in the
    large); ``slope`` is that of the logistic regression of the outcome on the score: below one,
    predictions are too extreme. None: buckets are too few and too wide to tell it.
    """

    curve: list[Point]
    predicted: Figure
    observed: Figure
    intercept: Figure
    slope: Figure | None


def calibration_of(buckets: Buckets) -> Calibration:
    """From counts of scores that are logits."""
    cells = _Cells.of(buckets, np.arange(len(buckets.counts)))
    negative, positive = buckets.classes
    samples = negative + positive
    mean, exact_to = cells.mean_probability()
    share = positive / samples
    low, high = wilson_interval(share, int(samples))
    return Calibration(
        curve=_curve(buckets),
        predicted=Figure(mean, exact_to),
        observed=Figure(share, 0.0, low, high),
        intercept=cells.intercept(),
        slope=cells.slope(),
    )


def sigmoid(scores: Floats) -> Floats:
    chances: Floats = 1.0 / (1.0 + np.exp(-np.clip(scores, -700.0, 700.0)))
    return chances


@dataclass(frozen=True, eq=False)
class _Cells:
    """Samples of one place each: how many, mean score, ends, the largest variance, positive ones.

    ``positive_scores`` is the sum of these over all places, and how far it may be off.
    """

    count: Floats
    mean: Floats
    low: Floats
    high: Floats
    spread: Floats
    positive: Floats
    positive_scores: tuple[float, float]

    @classmethod
    def of(cls, buckets: Buckets, places: Ints) -> _Cells:
        there = places[buckets.counts[places].sum(axis=1) > 0]
        low, high = buckets.ends
        return cls(
            buckets.counts[there].sum(axis=1),
            buckets.means[there],
            low[there],
            high[there],
            buckets.spreads[there],
            buckets.counts[there, 1],
            buckets.positive_scores,
        )

    def mean_probability(self, shift: float = 0.0) -> tuple[float, float]:
        """Over all samples, of scores that are shifted; and how far that may be off."""
        curved = 0.5 * _BEND * self.spread
        wide = sigmoid(self.high + shift) - sigmoid(self.low + shift)
        total = self.count.sum()
        chances = float(self.count @ sigmoid(self.mean + shift)) / total
        return chances, float(self.count @ np.minimum(curved, wide)) / total

    # ── the line through logits ───────────────────────────────────────────────────────────

    def intercept(self) -> Figure:
        share = float(self.positive.sum() / self.count.sum())
        ends = []
        for side in (-1.0, 0.0, 1.0):
            low, high = -40.0, 40.0
            for _ in range(_STEPS):
                middle = (low + high) / 2
                chances, off = self.mean_probability(middle)
                low, high = (middle, high) if chances + side * off < share else (low, middle)
            ends.append((low + high) / 2)
        exact_to = max(abs(ends[0] - ends[1]), abs(ends[2] - ends[1]))
        at = sigmoid(self.mean + ends[1])
        reach = Z / np.sqrt(max(float(self.count @ (at * (1.0 - at))), 1e-12)) + exact_to
        return Figure(ends[1], exact_to, ends[1] - float(reach), ends[1] + float(reach))

    def slope(self) -> Figure | None:
        """By Newton's method; what buckets leave open to first order, doubled."""
        a, b = 0.0, 1.0
        design = np.stack([np.ones_like(self.mean), self.mean])
        came = np.array([self.positive.sum(), self.positive_scores[0]])
        hessian = np.eye(2)
        for _ in range(_STEPS):
            chances = sigmoid(a + b * self.mean)
            weights = self.count * chances * (1.0 - chances)
            hessian = (design * weights) @ design.T + 1e-9 * np.eye(2)
            step = np.linalg.solve(hessian, came - design @ (self.count * chances))
            step *= min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-12))
            a, b = a + float(step[0]), b + float(step[1])
            if np.abs(step).max() < 1e-12:
                break
        inverse = np.abs(np.linalg.inv(hessian))
        exact_to = 2.0 * float(inverse[1] @ self._open(a, b))
        if not exact_to <= _WIDEST:
            return None
        reach = Z * float(np.sqrt(inverse[1, 1])) + exact_to
        return Figure(b, exact_to, b - reach, b + reach)

    def _open(self, a: float, b: float) -> Floats:
        """How far the two sums of the score equations may be off.

        A cell's sum of f(z) is off its count times f(mean) by half its variance times the largest
        |f''| between its ends, found on a grid; the sum of positive scores is by what it may be.
        """
        share = np.linspace(0.0, 1.0, 9)[:, None]
        z = self.low + share * (self.high - self.low)
        chances = sigmoid(a + b * z)
        slope = chances * (1.0 - chances)
        bend = slope * (1.0 - 2.0 * chances)
        first = np.abs(b * b * bend).max(axis=0)
        second = np.abs(2.0 * b * slope + b * b * z * bend).max(axis=0)
        half = 0.5 * self.count * self.spread
        return np.array([half @ first, half @ second + self.positive_scores[1]])


def _curve(buckets: Buckets) -> list[Point]:
    """Places in the order of their mean scores, in groups of about as many samples."""
    count = buckets.counts.sum(axis=1)
    there = np.flatnonzero(count)
    mean = buckets.sums[there] / count[there]
    order = there[np.argsort(mean, kind="stable")]
    share = (np.cumsum(count[order]) - count[order] / 2) / count.sum()
    group = np.minimum((share * _POINTS).astype(np.int64), _POINTS - 1)
    points = []
    for number in np.unique(group).tolist():
        places = order[group == number]
        negative, positive = buckets.counts[places].sum(axis=0).tolist()
        samples = int(negative + positive)
        predicted, exact_to = _Cells.of(buckets, places).mean_probability()
        low, high = wilson_interval(positive / samples, samples)
        whole = samples / float(count.sum())
        points.append(Point(predicted, exact_to, positive / samples, low, high, whole))
    return points
