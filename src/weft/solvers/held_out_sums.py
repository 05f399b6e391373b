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
from weft.losses.probabilities import WITH_PROBABILITIES, class_probabilities
from weft.solvers.evaluation_settings import EvaluationSettings

#: Sums over all held-out samples: how many, how many predicted rightly, losses, their squares,
#: squared errors of probabilities (Brier), their squares, and probabilities of the second class.
EXACT = 7
#: Of every place, by class: how many samples, and the sum of their scores.
_PER_PLACE = 4
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
            (name, (*(f"{value:g}" for value in values), "other"))
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
        return EXACT + int(np.prod(self.shape))


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
    layout: HeldOutLayout, scores: Floats, truth: Floats, levels: Ints, places: Ints, loss: Loss
) -> Floats:
    """What a party adds to the totals; ``truth`` (samples × models) is ±1."""
    told = np.zeros(layout.shape)
    for model, place in enumerate(places):
        if (place >= 0).all():
            _fill(told[:, model], layout, scores[:, model], truth[:, model] > 0, levels, place)
    return np.concatenate([_exact(scores, truth, loss), told.ravel()])


def _kinds(layout: HeldOutLayout, levels: Ints) -> Flags:
    """(samples × kinds) who is counted together: all, then each group where there are several."""
    columns = [np.ones(len(levels), bool)]
    for variable, (_, names) in enumerate(layout.variables):
        if len(names) > 1:
            columns += [levels[:, variable] == level for level in range(len(names))]
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
    rough = np.round(np.clip(scores, -FARTHEST, FARTHEST) / GRAIN) * GRAIN
    first = 0
    for variable, (_, names) in enumerate(layout.variables):
        group = first + levels[:, variable]
        for number, of_class in enumerate((~positive, positive)):
            np.add.at(told[:, :, number], (group[of_class], place[of_class]), 1.0)
            np.add.at(told[:, :, 2 + number], (group[of_class], place[of_class]), rough[of_class])
        first += len(names)


def _exact(scores: Floats, truth: Floats, loss: Loss) -> Floats:
    """Sums over all samples, whatever their number: they go into totals over label holders."""
    if scores.shape[1] == 1:
        right = (scores[:, 0] >= 0) == (truth[:, 0] > 0)
    else:
        right = scores.argmax(axis=1) == truth.argmax(axis=1)
    losses, errors = loss.value(scores, truth).sum(axis=1), np.zeros(len(scores))
    second = np.zeros(len(scores))
    if loss.name in WITH_PROBABILITIES:
        chances = class_probabilities(scores)
        if scores.shape[1] == 1:
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
    counts, sums
        (groups × models × places × 2 classes) samples in every place, and the sum of their scores.
    threshold
        Score from which on a sample counts as positive.
    probabilities
        Whether scores are those of probabilities.
    """

    layout: HeldOutLayout
    exact: Floats
    counts: Floats
    sums: Floats
    threshold: float
    probabilities: bool

    @classmethod
    def read(
        cls, layout: HeldOutLayout, totals: Floats, settings: EvaluationSettings, loss: Loss
    ) -> HeldOutSums:
        """From the totals as they were added up."""
        told = totals[EXACT:].reshape(layout.shape)
        return cls(
            layout,
            totals[:EXACT],
            np.round(told[..., :2]),
            told[..., 2:],
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
