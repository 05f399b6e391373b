"""What label holders tell of held-out scores together: counts in buckets, and a few exact sums.

A party chooses buckets (`places_of`) and makes its part (`party_part`), and totals over all label
holders are read back (`HeldOutSums.read`). Samples are counted by group: levels of a column, or
sites. All samples are the sum over the levels of any one column, so that no difference of two
tables is of a few samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Floats, Ints
from weft.guards.score_buckets import (
    FARTHEST,
    GRAIN,
    LEAVES,
    LEAVES_PER_CLASS,
    EarlierCounts,
    Line,
    cut,
    free_edges,
    line_of,
)
from weft.losses import Loss
from weft.losses.probabilities_from_scores import WITH_PROBABILITIES, class_probabilities
from weft.solvers.held_out_evaluation_settings import EvaluationSettings

#: Sums over all held-out samples: how many, how many predicted rightly, losses, their squares,
#: squared errors of probabilities (Brier), their squares, and probabilities of the second class.
EXACT = 7
#: Of every place: how many samples of each class, and the sum of the scores of all of them. A sum
#: by class would be the score of one sample, where a place has one of its class.
_PER_PLACE = 3
#: Of every model: the sum of scores of all positive samples, and how far that may be off.
_PER_MODEL = 2
#: The group of samples that have none of the values listed.
OTHER = "other"
#: A group of all samples, where there are no others.
EVERYONE = ("", ("",))


@dataclass(frozen=True)
class HeldOutLayout:
    """Where which number stands.

    Attributes
    ----------
    models
        Scores that a sample has: one, or one for each of several classes.
    variables
        What samples are grouped by, each with names of its groups.
    """

    models: int
    variables: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, settings: EvaluationSettings, models: int, sites: int) -> HeldOutLayout:
        """For a run with so many parties."""
        found = [
            (name, (*(f"{value:g}" for value in values), OTHER))
            for name, values in settings.groups.items()
        ]
        if settings.by_site:
            found.append(("site", tuple(str(number) for number in range(sites))))
        return cls(models, tuple(found) or (EVERYONE,))

    @property
    def line(self) -> Line:
        return line_of(LEAVES if self.models == 1 else LEAVES_PER_CLASS)

    @property
    def levels(self) -> int:
        """Groups of all variables together."""
        return sum(len(names) for _, names in self.variables)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Groups × models × places × what is told of each."""
        return self.levels, self.models, len(self.line.start), _PER_PLACE

    @property
    def size(self) -> int:
        return EXACT + _PER_MODEL * self.models + int(np.prod(self.shape))

    def parts(self, numbers: Floats) -> tuple[Floats, Floats, Floats]:
        """Exact sums, what is told of each model, and what of each place."""
        exact, by_model, places = np.split(numbers, [EXACT, EXACT + _PER_MODEL * self.models])
        return exact, by_model.reshape(self.models, _PER_MODEL), places.reshape(self.shape)


def told_groups(layout: HeldOutLayout, levels: Ints, least: int) -> Ints:
    """Groups as they may be told: of a group with few samples of a party, these are in none.

    Whoever lists the value of a cell that it guesses would else see that a party has it, but not
    ``least`` times. Where few samples of it are in no group, the smallest joins them.
    """
    told = levels.copy()
    for variable, (_, names) in enumerate(layout.variables):
        other = len(names) - 1
        if names[-1] != OTHER:
            continue
        mine = told[:, variable]
        counts = np.bincount(mine, minlength=other + 1)
        mine[counts[mine] < least] = other
        while 0 < (mine == other).sum() < least and (mine != other).any():
            counts = np.bincount(mine[mine != other], minlength=other + 1)
            mine[mine == np.where(counts > 0, counts, len(mine) + 1).argmin()] = other
    return told


def places_of(
    layout: HeldOutLayout,
    scores: Floats,
    levels: Ints,
    least: int,
    earlier: Sequence[EarlierCounts] = (),
) -> Ints:
    """(models × samples) the place in which a party counts each of its samples; −1: in none.

    Parameters
    ----------
    scores
        (samples × models) of its held-out samples.
    levels
        (samples × variables) the group of each.
    least
        Of how many samples, and of how many of each group, a bucket is at least. A party that has
        fewer of some group is in no bucket, and only in the exact sums.
    earlier
        Evaluations from which this one must keep apart.
    """
    line, kinds = layout.line, _kinds(layout, levels)
    found = np.full((layout.models, len(scores)), -1, np.int64)
    for model in range(layout.models):
        leaf = line.leaf_of(scores[:, model])
        free = np.ones(line.leaves + 1, bool)
        for counted in earlier:
            free &= free_edges(line, leaf, kinds, counted, least)
        counts = [np.bincount(leaf[kind], minlength=line.leaves) for kind in kinds.T]
        chosen = cut(line, np.stack(counts, axis=1), least, free)
        if chosen is not None:
            found[model] = chosen[np.searchsorted(line.end[chosen], leaf, side="right")]
    return found


def party_part(
    layout: HeldOutLayout,
    scores: Floats,
    truth: Floats,
    levels: Ints,
    places: Ints,
    loss: Loss,
    least: int,
) -> Floats:
    """What a party adds to the totals; ``truth`` (samples × models) is ±1."""
    told, by_model = np.zeros(layout.shape), np.zeros((layout.models, _PER_MODEL))
    for model, place in enumerate(places):
        if (place >= 0).all() and len(place):
            positive, rough = truth[:, model] > 0, _rounded(scores[:, model])
            _fill(told[:, model], layout, rough, positive, levels, place)
            by_model[model] = _positive_scores(layout.line, rough, positive, place, least)
    return np.concatenate([_exact(scores, truth, loss), by_model.ravel(), told.ravel()])


def _rounded(scores: Floats) -> Floats:
    rough: Floats = np.round(np.clip(scores, -FARTHEST, FARTHEST) / GRAIN) * GRAIN
    return rough


def _positive_scores(
    line: Line, scores: Floats, positive: Flags, place: Ints, least: int
) -> tuple[float, float]:
    """The sum of positive samples' scores, and by how much it may be off.

    Places with one class tell the sum of its scores. So this tells that of positive samples in
    places with both, and of the negative ones there: where either are few, all samples of such a
    place count as having its mean, which is told.
    """
    places, number = np.unique(place, return_inverse=True)
    counts = np.bincount(2 * number + positive, minlength=2 * len(places)).reshape(-1, 2)
    mixed = (counts > 0).all(axis=1)
    inside = counts[mixed].sum(axis=0)
    if not mixed.any() or inside.min() >= least:
        return float(scores[positive].sum()), 0.0
    mean = np.bincount(number, scores) / counts.sum(axis=1)
    off = class_sums_off(line, places, counts.astype(np.float64), mean)
    return float(counts[:, 1] @ mean), float(off.sum())


def class_sums_off(line: Line, places: Ints, counts: Floats, mean: Floats) -> Floats:
    """Per place, how far the sum of one class's scores can be from its number times the mean."""
    low = np.maximum(line.edge(line.start[places]), -FARTHEST)
    high = np.minimum(line.edge(line.end[places]), FARTHEST)
    above, below = high - mean, mean - low
    negative, positive = counts.T
    off: Floats = np.maximum(
        np.minimum(positive * above, negative * below),
        np.minimum(positive * below, negative * above),
    )
    return np.maximum(off, 0.0)


def _kinds(layout: HeldOutLayout, levels: Ints) -> Flags:
    """(samples × kinds) who is counted together: all, every group, and every one within others.

    Two groups of different columns may differ in a few samples, and counts of the one less those of
    the other are of these. All that can be made of counts is made of those who are in the same
    groups of all columns.
    """
    columns = [np.ones(len(levels), bool)]
    for variable, (_, names) in enumerate(layout.variables):
        if len(names) > 1:
            columns += [levels[:, variable] == level for level in range(len(names))]
    if len(layout.variables) > 1:
        together, which = np.unique(levels, axis=0, return_inverse=True)
        columns += [which.ravel() == number for number in range(len(together))]
    return np.stack(columns, axis=1)


def _fill(
    told: Floats,
    layout: HeldOutLayout,
    scores: Floats,
    positive: NDArray[np.bool_],
    levels: Ints,
    place: Ints,
) -> None:
    """Put counts and sums of scores into their places."""
    first = 0
    for variable, (_, names) in enumerate(layout.variables):
        group = first + levels[:, variable]
        for number, of_class in enumerate((~positive, positive)):
            np.add.at(told[:, :, number], (group[of_class], place[of_class]), 1.0)
        np.add.at(told[:, :, 2], (group, place), scores)
        first += len(names)


def _exact(scores: Floats, truth: Floats, loss: Loss) -> Floats:
    """Sums over all samples, whatever their number: they go into totals over label holders."""
    if scores.shape[1] == 1:
        right = (scores[:, 0] >= 0) == (truth[:, 0] > 0)
    else:
        right = scores.argmax(axis=1) == truth.argmax(axis=1)
    second = errors = np.zeros(len(scores))
    if loss.name not in WITH_PROBABILITIES:
        losses = loss.value(scores, truth).sum(axis=1)
    else:
        # Scores of classes are log-odds, those of a softmax too.
        chances = class_probabilities(scores, "logistic")
        if scores.shape[1] == 1:
            losses = loss.value(scores, truth)[:, 0]
            second = chances[:, 1]
            errors = (second - (truth[:, 0] > 0)) ** 2
        else:
            mine = np.take_along_axis(chances, truth.argmax(axis=1)[:, None], axis=1)[:, 0]
            losses = -np.log(mine)
            errors = ((chances - (truth > 0)) ** 2).sum(axis=1)
    sums = (losses, losses**2, errors, errors**2, second)
    return np.array([len(scores), right.sum(), *(one.sum() for one in sums)], np.float64)


@dataclass(frozen=True, eq=False)
class HeldOutSums:
    """Totals over all label holders.

    Attributes
    ----------
    exact
        `EXACT` sums over all held-out samples.
    positive
        (models × 2) the sum of scores of positive samples, and how far it may be off.
    counts
        (groups × models × places × 2 classes) samples in every place.
    sums
        (groups × models × places) the sum of their scores.
    threshold
        Score from which on a sample counts as positive.
    probabilities
        Whether scores are those of probabilities.
    """

    layout: HeldOutLayout
    exact: Floats
    positive: Floats
    counts: Floats
    sums: Floats
    threshold: float
    probabilities: bool

    @classmethod
    def read(
        cls, layout: HeldOutLayout, totals: Floats, settings: EvaluationSettings, loss: Loss
    ) -> HeldOutSums:
        """From the totals as they were added up."""
        exact, positive, told = layout.parts(totals)
        return cls(
            layout,
            exact,
            positive,
            np.round(told[..., :2]),
            told[..., 2],
            settings.cut_off,
            loss.name in WITH_PROBABILITIES,
        )

    @property
    def everyone(self) -> tuple[Floats, Floats]:
        """Counts and sums of all samples: those of the groups of one variable together."""
        levels = len(self.layout.variables[0][1])
        return self.counts[:levels].sum(axis=0), self.sums[:levels].sum(axis=0)

    def groups(self) -> list[tuple[str, str, Floats, Floats]]:
        """Variable, name, counts and sums of every group."""
        named = [(name, level) for name, levels in self.layout.variables for level in levels]
        return [
            (name, level, self.counts[place], self.sums[place])
            for place, (name, level) in enumerate(named)
            if name
        ]
