"""Figures from counts of scores in buckets, each with how far it may be off for their width.

A sample in a bucket has its score somewhere between its ends. Two samples whose buckets do not
overlap are in a known order; of the others every order is possible, so that a figure has a lowest
and a highest value. It is told as the middle of the two, exact to half of their difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from weft.array_types import Floats
from weft.guards.score_buckets import FARTHEST, Line
from weft.solvers.held_out_score_counts import class_sums_off

#: Of the normal distribution, for intervals that hold the truth in 95 of 100 cases.
Z = 1.959963984540054


@dataclass(frozen=True)
class Figure:
    """A figure, by how much it may be off for the width of buckets, and its 95 % interval."""

    value: float
    exact_to: float = 0.0
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, eq=False)
class Buckets:
    """Counts of held-out scores, of one model.

    Attributes
    ----------
    counts
        (places × 2 classes) how many.
    sums
        (places) of the scores of both classes.
    positive
        The sum of scores of positive samples, and how far it may be off; None: it is not told.
    """

    line: Line
    counts: Floats
    sums: Floats
    positive: tuple[float, float] | None = None

    @cached_property
    def classes(self) -> tuple[float, float]:
        """Negative and positive samples."""
        negative, positive = self.counts.sum(axis=0).tolist()
        return negative, positive

    @property
    def samples(self) -> float:
        return float(self.counts.sum())

    @property
    def usable(self) -> bool:
        """Whether there are samples of both classes."""
        return min(self.classes) > 0

    @cached_property
    def _before(self) -> tuple[Floats, Floats]:
        """(leaves + 1 × classes) samples in buckets that end, or begin, before a leaf."""
        found = []
        for place in (self.line.end, self.line.start):
            by_leaf = np.zeros((self.line.leaves + 2, 2))
            np.add.at(by_leaf, place + (place is self.line.start), self.counts)
            found.append(np.cumsum(by_leaf, axis=0)[:-1])
        return found[0], found[1]

    # ── order ─────────────────────────────────────────────────────────────────────────────

    @cached_property
    def _placements(self) -> tuple[Floats, Floats]:
        """For each place: the share of the other class surely below, and surely above.

        Of positive samples against negatives in the first, of negatives against positives after.
        """
        ends, starts = self._before
        negative, positive = self.classes
        below = ends[self.line.start][:, ::-1]
        above = self.counts.sum(axis=0)[::-1] - starts[self.line.end][:, ::-1]
        other = np.array([positive, negative])
        return below / other, above / other

    @cached_property
    def auc(self) -> Figure:
        """The area under the ROC curve, with DeLong's interval."""
        below, above = self._placements
        positive = self.counts[:, 1]
        low = float(positive @ below[:, 1]) / self.classes[1]
        high = 1.0 - float(positive @ above[:, 1]) / self.classes[1]
        middle, exact_to = (low + high) / 2, (high - low) / 2
        spread = self._spread_of_auc(below, above)
        return _on_logits(middle, spread, exact_to)

    def _spread_of_auc(self, below: Floats, above: Floats) -> float:
        """DeLong's standard error, pairs of unknown order counting half."""
        right = (below + 1.0 - above) / 2.0
        right[:, 0] = 1.0 - right[:, 0]
        variance = 0.0
        for number, samples in enumerate(self.classes):
            weights = self.counts[:, number]
            mean = float(weights @ right[:, number]) / samples
            squares = float(weights @ (right[:, number] - mean) ** 2)
            variance += squares / max(samples - 1.0, 1.0) / samples
        return float(np.sqrt(variance))

    @cached_property
    def rates(self) -> tuple[Floats, Floats]:
        """(edges × classes) share of a class at or above each edge: surely, and at most."""
        ends, starts = self._before
        total = self.counts.sum(axis=0)
        # Surely above an edge: the bucket begins there or after it.
        surely, at_most = (total - starts) / total, (total - ends) / total
        return surely, at_most

    @cached_property
    def roc(self) -> Floats:
        """(edges × 2) false and true positive rates at edges, in the middle of their bounds."""
        surely, at_most = self.rates
        middle: Floats = (surely + at_most) / 2.0
        return middle

    def kolmogorov_smirnov(self) -> Figure:
        """The largest difference between the two rates."""
        surely, at_most = self.rates
        gaps = self.roc[:, 1] - self.roc[:, 0]
        best = int(np.argmax(gaps))
        least = float((surely[:, 1] - at_most[:, 0]).max())
        # Between two edges the one rate may stay where it was while the other falls.
        most = float((at_most[:-1, 1] - surely[1:, 0]).max())
        rates = self.roc[best]
        spread = np.sqrt((rates * (1.0 - rates) / np.array(self.classes)).sum())
        middle, exact_to = (least + most) / 2, (most - least) / 2
        reach = Z * float(spread) + exact_to
        return Figure(middle, exact_to, max(0.0, middle - reach), min(1.0, middle + reach))

    def average_precision(self) -> Figure:
        """The mean of precisions at every positive sample, from the highest score down."""
        low, high = (self._average_precision(best=best) for best in (False, True))
        middle, exact_to = (low + high) / 2, (high - low) / 2
        positive = self.classes[1]
        spread = np.sqrt(max(middle * (1.0 - middle), 1e-12) / positive)
        return _on_logits(middle, float(spread), exact_to)

    def _average_precision(self, *, best: bool) -> float:
        """With positives as high, and negatives as low, as their buckets allow, or the reverse."""
        leaves, line = self.line.leaves, self.line
        high, low = line.end - 1, line.start
        at = (low, high) if best else (high, low)
        by_leaf = np.stack(
            [
                np.bincount(place, weights=self.counts[:, number], minlength=leaves)
                for number, place in enumerate(at)
            ],
            axis=1,
        )[::-1]
        before = np.cumsum(by_leaf, axis=0) - by_leaf
        total = 0.0
        for (negatives, positives), (ahead_0, ahead_1) in zip(by_leaf, before, strict=True):
            if positives:
                found = ahead_1 + np.arange(1.0, positives + 1.0)
                total += float((found / (found + ahead_0 + (0.0 if best else negatives))).sum())
        return total / self.classes[1]

    # ── calibration ───────────────────────────────────────────────────────────────────────

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """Of every place, the lowest and the highest score that is added up."""
        ends = (self.line.edge(self.line.start), self.line.edge(self.line.end))
        return np.maximum(ends[0], -FARTHEST), np.minimum(ends[1], FARTHEST)

    @cached_property
    def spreads(self) -> Floats:
        """The largest variance that scores of a place can have within its ends."""
        low, high = self.ends
        mean = self.means
        spread: Floats = np.maximum((mean - low) * (high - mean), 0.0)
        return spread

    @cached_property
    def means(self) -> Floats:
        """The mean score of every place; in the middle where nobody is."""
        middle = (self.ends[0] + self.ends[1]) / 2.0
        count = self.counts.sum(axis=1)
        known = count > 0
        means: Floats = np.where(known, self.sums / np.where(known, count, 1.0), middle)
        return means

    @property
    def positive_scores(self) -> tuple[float, float]:
        """The sum of scores of positive samples as it is told, or as places leave it open."""
        if self.positive is not None:
            return self.positive
        off = class_sums_off(self.line, np.arange(len(self.counts)), self.counts, self.means)
        return float(self.counts[:, 1] @ self.means), float(off.sum())


def _on_logits(value: float, spread: float, exact_to: float) -> Figure:
    """A share with an interval that stays within 0 and 1, widened by what buckets leave open."""
    inside = min(max(value, 1e-9), 1.0 - 1e-9)
    logit = np.log(inside / (1.0 - inside))
    reach = Z * spread / (inside * (1.0 - inside))
    low, high = (1.0 / (1.0 + np.exp(-(logit + sign * reach))) for sign in (-1.0, 1.0))
    low, high = float(min(low, value)) - exact_to, float(max(high, value)) + exact_to
    return Figure(value, exact_to, max(0.0, low), min(1.0, high))
