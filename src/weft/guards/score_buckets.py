"""Buckets of scores that are never of a few samples: how a party cuts the line for itself.

What is told of held-out scores are counts over intervals of a line that all parties have in common.
Every party cuts it into intervals that each hold none of its samples or ``least`` of them at least,
and puts its counts where these intervals have their places; the places are added up over parties.
So whatever anybody takes off a total, its own counts or those of several parties together, what is
left in a place is of nobody or of ``least`` samples of one party at least. Nobody has to know the
total before buckets are merged.

Of all such cuts a party takes the one that leaves the fewest pairs of its own samples undecided.

Two runs over the same samples are compared edge by edge: counts up to an edge of the one and up to
an edge of the other are of the same samples, or of sets that differ in ``least`` samples at least.
An edge that would break this is not cut at.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints

#: Scores beyond these are in the first and the last leaf.
REACH = 8.0
#: Scores are added up as if none were further out, so that no sum is about one of them.
FARTHEST = 12.0
#: Leaves of the line where there is one model, and where there is one for each of several classes.
LEAVES, LEAVES_PER_CLASS = 512, 128
#: Sums of scores are of multiples of this: what is finer says nothing but who is in them.
GRAIN = 2.0**-12


@dataclass(frozen=True, eq=False)
class Line:
    """The line of scores: equal leaves, and the intervals of leaves that a party may report.

    Attributes
    ----------
    leaves
        How many there are, a power of two.
    start, end
        Of every interval, in leaves. Their lengths are 1, 2, 3, 4, 6, 8, 12, …: twice and three
        times a power of two, and they begin at a multiple of that power. The last is the line.
    """

    leaves: int
    start: Ints
    end: Ints

    @property
    def width(self) -> float:
        """Of a leaf."""
        return 2.0 * REACH / self.leaves

    def leaf_of(self, scores: Floats) -> Ints:
        """The leaf of every score."""
        place = np.floor((scores + REACH) / self.width)
        leaf: Ints = np.clip(place, 0, self.leaves - 1).astype(np.int64)
        return leaf

    def edge(self, leaf: NDArray[np.generic] | int) -> Floats:
        """The score at which a leaf begins; infinite at the ends of the line."""
        at = np.asarray(leaf, np.float64)
        edges: Floats = at * self.width - REACH
        return np.where(at <= 0, -np.inf, np.where(at >= self.leaves, np.inf, edges))

    def nearest_edge(self, score: float) -> int:
        """The leaf whose beginning is nearest to a score."""
        return int(np.clip(round((score + REACH) / self.width), 0, self.leaves))


@cache
def line_of(leaves: int) -> Line:
    """The line with so many leaves."""
    start, end = [np.arange(leaves)], [np.arange(1, leaves + 1)]
    step = 1
    while 2 * step <= leaves:
        for length in (2 * step, 3 * step):
            begin = np.arange(0, leaves - length + 1, step)
            start.append(begin)
            end.append(begin + length)
        step *= 2
    return Line(leaves, np.concatenate(start), np.concatenate(end))


@dataclass(frozen=True, eq=False)
class EarlierCounts:
    """An earlier evaluation, by groups of one column.

    Attributes
    ----------
    bucket
        Of every sample that is judged now, from 1 on; 0: none.
    level
        The group that it was counted in then.
    gone
        (groups × buckets) how many were counted there that are not judged now.
    """

    bucket: Ints
    level: Ints
    gone: Ints


def free_edges(
    line: Line, leaf: Ints, kinds: NDArray[np.bool_], earlier: EarlierCounts, least: int
) -> NDArray[np.bool_]:
    """Per edge of a leaf, whether counts up to it keep apart from all of an earlier evaluation.

    Counts of every group now are held against those of all samples and of every group then: groups
    of another column may be nearly the same samples.

    Parameters
    ----------
    leaf
        Of every sample, now.
    kinds
        (samples × kinds) the groups that are counted each by itself.
    """
    free = np.ones(line.leaves + 1, bool)
    groups, buckets = earlier.gone.shape
    everyone = earlier.gone.sum(axis=0)
    earlier_kinds = [(np.ones(len(leaf), bool), everyone)]
    if groups > 1:
        earlier_kinds += [(earlier.level == g, earlier.gone[g]) for g in range(groups)]
    for member, gone in earlier_kinds:
        # Who was in no bucket then, or in another group, is in none of its counts.
        bucket = np.where(member, earlier.bucket, 0)
        then = np.cumsum(np.bincount(bucket, minlength=buckets)[1:] + gone[1:])
        for kind in kinds.T:
            both = np.zeros((line.leaves + 1, buckets))
            np.add.at(both, (leaf[kind] + 1, bucket[kind]), 1.0)
            upto = np.cumsum(both, axis=0)
            now = upto.sum(axis=1)
            common = np.cumsum(upto[:, 1:], axis=1)
            apart = now[:, None] + then[None, :] - 2.0 * common
            free &= ~((apart > 0) & (apart < least)).any(axis=1)
    return free


def cut(line: Line, counts: Ints, least: int, free: NDArray[np.bool_] | None = None) -> Ints | None:
    """The intervals that a party reports, one after the other from the left.

    Parameters
    ----------
    counts
        (leaves × kinds) how many of its samples of each kind are in a leaf. Of every kind an
        interval holds none, or ``least`` and more. The first kind is all samples.
    free
        Edges at which it may be cut; None: all.

    Returns
    -------
    Ints or None
        Places of intervals that cover the line; None: there are too few samples of some kind.
    """
    below = np.vstack([np.zeros((1, counts.shape[1]), np.int64), np.cumsum(counts, axis=0)])
    inside = below[line.end] - below[line.start]
    fits = ((inside == 0) | (inside >= least)).all(axis=1)
    if free is not None:
        # At its beginning nobody is counted yet.
        fits &= (free[line.start] | (line.start == 0)) & free[line.end]
    if not fits[-1]:
        return None
    cost = inside[:, 0].astype(np.float64) ** 2
    # Among equals those that are shorter where somebody is, so that nothing empty is merged.
    cost += 1e-9 * (line.end - line.start) * (inside[:, 0] > 0)
    best = np.full(line.leaves + 1, np.inf)
    best[0] = 0.0
    by = np.full(line.leaves + 1, -1, np.int64)
    allowed = np.flatnonzero(fits)
    allowed = allowed[np.argsort(line.end[allowed], kind="stable")]
    bounds = np.searchsorted(line.end[allowed], np.arange(line.leaves + 2))
    for leaf in range(1, line.leaves + 1):
        ending = allowed[bounds[leaf] : bounds[leaf + 1]]
        if len(ending):
            found = best[line.start[ending]] + cost[ending]
            which = int(np.argmin(found))
            best[leaf], by[leaf] = found[which], ending[which]
    chosen, leaf = [], line.leaves
    while leaf:
        chosen.append(by[leaf])
        leaf = int(line.start[by[leaf]])
    return np.array(chosen[::-1], np.int64)
