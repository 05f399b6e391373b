"""Cohorts along one axis of the table: samples, or features.

A cohort is a maximal set of samples (features) that lie in the same tiles and, along rows, have the
same label holders. Slots are numbered cohort by cohort and fixed for the run. Cohorts with two
holders or more come first: only they take part in sums, so the shared slots are 0 … n_shared − 1,
and at every party the shared local slots come before the private ones.

The order of cohorts follows from their tiles and marks alone, not from tokens, which are others in
every run. Which sample of a cohort has which of its slots is for its holders to say
(:mod:`weft.matching.slots_within_cohort`): here only the numbers count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.fast_small_array_operations import cut


@dataclass(frozen=True)
class Lists:
    """Many short integer lists in two arrays: list i is values[start[i] : start[i + 1]]."""

    start: Ints
    values: Ints

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, i: int) -> Ints:
        return self.values[self.start[i] : self.start[i + 1]]

    @property
    def lengths(self) -> Ints:
        lengths: Ints = self.start[1:] - self.start[:-1]
        return lengths

    @classmethod
    def of_pairs(cls, owner: Ints, value: Ints, owners: int) -> Lists:
        """Group distinct (owner, value) pairs by owner, values ascending."""
        if len(owner):
            width = int(value.max()) + 1
            pairs = np.sort(owner * width + value)
            pairs = pairs[np.concatenate([[True], pairs[1:] != pairs[:-1]])]
            owner, value = pairs // width, pairs % width
        start = np.zeros(owners + 1, np.int64)
        np.cumsum(np.bincount(owner, minlength=owners), out=start[1:])
        return cls(start, value)


@dataclass(frozen=True)
class Axis:
    """Slots, cohorts and holders along one axis.

    Attributes
    ----------
    start
        Cohort c covers the slots start[c] … start[c + 1] − 1.
    n_shared
        Slots below this number have at least two parties as holders.
    holders, tiles, marked
        Per cohort: the parties that hold it, the tiles it lies in, and the parties that
        marked it (along rows: that have its labels).
    cohorts
        Per party: its cohorts, ascending.
    tile_codes
        Per tile: a number for each of its tokens, the same for the same token.
    tile_cohorts
        Per tile: the cohort of each of its tokens, −1 where the sample was left out.
    left_out
        Slots that nobody marked, where marks are required.
    """

    start: Ints
    n_shared: int
    holders: Lists
    tiles: Lists
    marked: Lists
    cohorts: Lists
    tile_codes: tuple[NDArray[np.int32], ...]
    tile_cohorts: tuple[NDArray[np.int32], ...]
    left_out: int

    @property
    def n_slots(self) -> int:
        return int(self.start[-1])

    @cached_property
    def sizes(self) -> Ints:
        return np.diff(self.start)

    @cached_property
    def shared_cohort(self) -> NDArray[np.bool_]:
        return self.holders.lengths > 1

    def party_slots(self, party: int) -> Ints:
        """All slots of a party in its local order."""
        mine = self.cohorts[party]
        return ranges(self.start[mine], self.sizes[mine])

    def local_starts(self, party: int) -> Ints:
        """Local slot at which each cohort of a party begins (and, last, where they end)."""
        sizes = self.sizes[self.cohorts[party]]
        starts: Ints = np.concatenate([[0], np.cumsum(sizes)])
        return starts

    def n_shared_of(self, party: int) -> int:
        """How many of a party's local slots are shared."""
        mine = self.cohorts[party]
        return int(self.sizes[mine][self.shared_cohort[mine]].sum())


def ranges(starts: Ints, sizes: Ints) -> Ints:
    """The concatenation of arange(start, start + size)."""
    total = int(sizes.sum())
    if len(sizes) == 1:
        return np.arange(starts[0], starts[0] + total, dtype=np.int64)
    before = np.cumsum(sizes) - sizes
    joined: Ints = np.arange(total, dtype=np.int64) + np.repeat(starts - before, sizes)
    return joined


def build_axis(
    tokens: Sequence[NDArray[np.uint64]],
    tile_party: Ints,
    marks: Sequence[NDArray[np.bool_]] | None,
    parties: int,
) -> Axis:
    """Find the cohorts of tiles from the tokens of their rows (columns).

    Parameters
    ----------
    tokens
        Per tile, the tokens along this axis.
    tile_party
        Per tile, the number of its party.
    marks
        Per tile, whether the party has a label for the row. Samples that nobody marked are
        left out. None: no marks are needed.
    """
    lengths = np.array([len(t) for t in tokens], np.int64)
    tile = np.repeat(np.arange(len(tokens)), lengths)
    everything = np.concatenate(tokens) if len(tokens) else np.zeros(0, np.uint64)
    code, unique = pd.factorize(everything)
    code = code.astype(np.int64)
    mark = np.concatenate(marks) if marks is not None else np.ones(len(code), bool)

    n = len(unique)
    order = np.argsort(code, kind="stable")
    first_entry = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(code, minlength=n), out=first_entry[1:])
    cohort, signature = _signatures(tile[order] * 2 + mark[order], first_entry)
    kept = np.bitwise_or.reduceat(mark[order], first_entry[:-1]) if n else np.zeros(0, bool)

    # One sample stands for its cohort: its entries are the cohort's tiles and marks.
    cohort[~kept] = -1
    names, representative = np.unique(cohort[kept], return_index=True)
    representative = np.flatnonzero(kept)[representative]
    counts = first_entry[representative + 1] - first_entry[representative]
    entries = order[ranges(first_entry[representative], counts)]
    owner = np.repeat(np.arange(len(names)), counts)
    holders = Lists.of_pairs(owner, tile_party[tile[entries]], len(names))

    # Shared cohorts first, then by their first tile, then by their signature.
    first = tile[order[first_entry[representative]]]
    canonical = np.lexsort((*signature[:, representative], first, holders.lengths < 2))
    rank = np.empty(len(names), np.int64)
    rank[canonical] = np.arange(len(names))
    owner = rank[owner]
    party = tile_party[tile[entries]]
    marked = mark[entries]
    holders = Lists.of_pairs(owner, party, len(names))

    cohort_rank = np.full(n, len(names), np.int64)
    cohort_rank[kept] = rank[np.searchsorted(names, cohort[kept])]
    start = np.zeros(len(names) + 1, np.int64)
    np.cumsum(np.bincount(cohort_rank[kept], minlength=len(names)), out=start[1:])
    cohort_rank[~kept] = -1

    return Axis(
        start=start,
        n_shared=int(np.diff(start)[holders.lengths > 1].sum()),
        holders=holders,
        tiles=Lists.of_pairs(owner, tile[entries], len(names)),
        marked=Lists.of_pairs(owner[marked], party[marked], len(names)),
        cohorts=Lists.of_pairs(party, owner, parties),
        tile_codes=_by_tile(code, lengths),
        tile_cohorts=_by_tile(cohort_rank[code], lengths),
        left_out=int((~kept).sum()),
    )


def _by_tile(numbers: Ints, lengths: Ints) -> tuple[NDArray[np.int32], ...]:
    """A number per token, tile by tile; kept for a whole run, and so in few bytes."""
    narrow = numbers.astype(np.int32)
    return tuple(cut(narrow, lengths))


def _signatures(entry: Ints, first_entry: Ints) -> tuple[Ints, NDArray[np.uint64]]:
    """A number per sample that is equal for equal sets of entries, and two words of hash.

    Sets are compared by the sum of a 128-bit pseudo-random number per member, so that
    millions of sets cost a sort and two reductions; two different sets agree by accident
    with probability 2^-128.
    """
    if len(first_entry) == 1:
        return np.zeros(0, np.int64), np.zeros((2, 0), np.uint64)
    sums = [
        np.add.reduceat(_mixed(entry.astype(np.uint64) + np.uint64(salt)), first_entry[:-1])
        for salt in (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)
    ]
    low, high = (pd.factorize(s)[0].astype(np.int64) for s in sums)
    code = pd.factorize(low * (int(high.max()) + 1) + high)[0]
    return np.asarray(code, np.int64), np.stack(sums)


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
