"""A party's column as it may be described: no count, sum or edge that follows is about a few cells.

Everything that is told of a column is computed from the cells that `described_column` gives, which
follow from the party's own cells and its own ``least`` alone. So two descriptions of the same
samples are of the same cells, whatever others hold and whoever asks.

- A few blank cells count as the party's median, and a few known ones as blank.
- Where fewer than ``least`` cells differ from the median, none does; all are blank if fewer than
  ``least`` have it, since a median is a cell.
- Cells far out count as less far, so that no sum is about one of them.
- Of a column with few different values, those that fewer than ``least`` cells have count as a
  neighbouring value: mean and spread would tell how many they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.guards.score_buckets import Line, cut, line_of

#: Cells further from the median than so many times what ``least`` cells reach count as that far.
FARTHEST = 8.0
#: Cells are multiples of this part of it: what is finer says nothing but whose cells these are.
GRAIN = 2.0**-16
#: Mean and spread are two equations for counts of rare values: so many more unknowns hide them.
_UNKNOWNS = 10
#: Leaves of a column's line, which is four times as long as the distance from the mean that this
#: share of a party's cells reach, or ``least`` of them: tails must not make it coarse.
LEAVES, TAIL = 256, 0.05
_UNITS = 4


@dataclass(frozen=True, eq=False)
class DescribedColumn:
    """What may be described: cells in ascending order, and how many are blank."""

    cells: Floats
    blank: int


def described_column(values: Floats, least: int) -> DescribedColumn:
    """A party's cells as they may be described; NaN is a blank one."""
    known = np.sort(values[~np.isnan(values)])
    blank = len(values) - len(known)
    if len(known) < least:
        return DescribedColumn(np.zeros(0), len(values) if len(values) >= least else 0)
    middle = known[(len(known) - 1) // 2]
    alike = int((known == middle).sum())
    if 0 < blank < least:
        known, blank = np.sort(np.append(known, np.full(blank, middle))), 0
    reach = reached_by(np.abs(known - middle), least)
    if reach == 0.0 and alike < least:
        # All would count as the median, which may be the cell of one sample.
        return DescribedColumn(np.zeros(0), len(values))
    if reach == 0.0:
        return DescribedColumn(np.full(len(known), middle), blank)
    unit = power_above(reach)
    inside = np.clip(known - middle, -FARTHEST * unit, FARTHEST * unit) + middle
    grain = unit * GRAIN
    return DescribedColumn(_without_rare_values(np.round(inside / grain) * grain, least), blank)


def reached_by(sizes: Floats, least: int) -> float:
    """The size that ``least`` of all reach; zero: there are not so many."""
    if len(sizes) < least:
        return 0.0
    return float(np.partition(sizes, len(sizes) - least)[len(sizes) - least])


def power_above(size: float) -> float:
    """The power of two above a number."""
    return float(np.ldexp(1.0, int(np.frexp(size)[1])))


def _without_rare_values(cells: Floats, least: int) -> Floats:
    values, counts = np.unique(cells, return_counts=True)
    group = np.zeros(len(values), np.int64)
    number = held = 0
    for place, count in enumerate(counts.tolist()):
        group[place] = number
        held += count
        if held >= least:
            number, held = number + 1, 0
    if held and number:
        group[group == number] = number - 1
    hidden = len(values) - len(np.unique(group))
    if not 0 < hidden < _UNKNOWNS:
        return cells
    order = np.lexsort((-counts, group))
    _, first = np.unique(group[order], return_index=True)
    return np.repeat(values[order[first]][group], counts)


def described_levels(flags: Floats, least: int) -> Floats:
    """(rows × levels) which level a row has, without levels that a few rows have; NaN: blank.

    Rows of rare levels have none; and where only a few have none, neither have those of the rarest
    level that is left. A few blank rows have the most frequent level.
    """
    told = np.array(flags, np.float64)
    if not told.size:
        return told
    blank = np.isnan(told).any(axis=1)
    told[blank] = 0.0
    counts = told.sum(axis=0)
    if 0 < blank.sum() < least:
        told[blank, int(np.argmax(counts))] = 1.0
        blank = np.zeros(len(told), bool)
        counts = told.sum(axis=0)
    told[:, counts < least] = 0.0
    while 0 < (~blank & ~told.any(axis=1)).sum() < least and told.any():
        counts = told.sum(axis=0)
        told[:, int(np.argmin(np.where(counts > 0, counts, np.inf)))] = 0.0
    told[blank] = np.nan
    return told


def described_counts(counts: Ints, least: int) -> Ints:
    """How many have which of several levels, then how many are left unsaid, as some are few."""
    told = np.where(counts < least, 0, counts)
    while 0 < counts.sum() - told.sum() < least and told.any():
        told[int(np.argmin(np.where(told > 0, told, counts.sum() + 1)))] = 0
    return np.append(told, counts.sum() - told.sum())


@dataclass(frozen=True)
class ColumnLine:
    """The line on which cells of a column are counted: leaves of ``width`` from ``start`` on."""

    start: float
    width: float

    @classmethod
    def around(cls, centre: float, unit: float) -> ColumnLine:
        """For cells that are ``unit``, a power of two, from a centre.

        Edges are multiples of a power of two, so that they stay where they are as long as can be.
        """
        start = float(np.round(centre / unit)) * unit - 0.5 * _UNITS * unit
        return cls(start, _UNITS * unit / LEAVES)

    @property
    def line(self) -> Line:
        return line_of(LEAVES)

    def leaf_of(self, cells: Floats) -> Ints:
        """The leaf of every cell; the first and the last one have no end."""
        place: Ints = np.floor((cells - self.start) / self.width).clip(0, LEAVES - 1)
        return place.astype(np.int64)

    def edge(self, leaf: NDArray[np.generic] | int) -> Floats:
        """Where a leaf begins."""
        edges: Floats = self.start + np.asarray(leaf, np.float64) * self.width
        return edges

    def places(self, cells: Floats, least: int, earlier: Floats) -> Ints:
        """The intervals in which cells, ascending, are counted: none has fewer than ``least``.

        ``earlier`` are edges that were cut at before: between one of them and a new one there are
        no cells, or ``least`` of them.
        """
        if not len(cells):
            return np.zeros(0, np.int64)
        upto = np.searchsorted(cells, self.edge(np.arange(LEAVES + 1)))
        before = np.searchsorted(cells, earlier)
        apart = np.abs(upto[:, None] - before[None, :])
        free = ((apart == 0) | (apart >= least)).all(axis=1)
        free[[0, LEAVES]] = True
        counts = np.bincount(self.leaf_of(cells), minlength=LEAVES)[:, None]
        chosen = cut(self.line, counts, least, free)
        assert chosen is not None
        return chosen

    def edges_of(self, places: Ints) -> Floats:
        """The edges between intervals."""
        return self.edge(self.line.start[places[1:]])

    def between(self, edges: Floats) -> Ints:
        """The intervals that edges, ascending, cut the line into."""
        leaf = np.round((edges - self.start) / self.width).astype(np.int64)
        bounds = [0, *leaf.tolist(), LEAVES]
        return np.array([_place_of()[pair] for pair in pairwise(bounds)], np.int64)


@cache
def _place_of() -> dict[tuple[int, int], int]:
    """The number of every interval, by its first leaf and the one after its last."""
    line = line_of(LEAVES)
    ends = zip(line.start.tolist(), line.end.tolist(), strict=True)
    return {pair: place for place, pair in enumerate(ends)}
