"""The shared slots of an axis: where each party's slots lie among them, and who holds which."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.crypto.ciphers.chunk_layout import chunks_of
from weft.crypto.pads.pad_ids_in_totals import Holders
from weft.fast_small_array_operations import cut
from weft.matching.cohorts import Axis

_EVERY = np.zeros(0, bool)


class Layout:
    """Slots and cohorts of all parties along one axis.

    Parties with the same slots (all holders of one cohort, say) share one entry, so that what
    is the same for them is gathered once.
    """

    def __init__(self, axis: Axis, parties: Sequence[str]) -> None:
        self.parties = tuple(parties)
        self.index = {party: number for number, party in enumerate(parties)}
        self.n_shared = axis.n_shared
        count = int(axis.shared_cohort.sum())
        #: First slot of each shared cohort, and the number of shared slots.
        self.start: Ints = axis.start[: count + 1].copy()
        held = axis.holders
        self.holders = Holders.of(
            held.lengths[:count], held.values[: held.start[count]], len(parties)
        )
        self._chunks: dict[tuple[int, int], Ints] = {}
        self._chunk_holders: dict[int, Holders] = {}
        self.group: dict[str, int] = {}
        #: The shared slots of each party, in its local order.
        self.own: dict[str, Ints]
        self.slots: list[Ints] = []
        self.cohorts: list[Ints] = []
        known: dict[bytes, int] = {}
        for number, party in enumerate(parties):
            cohorts = axis.cohorts[number]
            cohorts = cohorts[axis.shared_cohort[cohorts]]
            key = cohorts.tobytes()
            if key not in known:
                known[key] = len(self.slots)
                self.slots.append(axis.party_slots(number)[: axis.n_shared_of(number)])
                self.cohorts.append(cohorts)
            self.group[party] = known[key]
        lengths = np.array([len(s) for s in self.slots], np.int64)
        self.end = np.cumsum(lengths)
        self.begin = self.end - lengths
        self.flat = np.concatenate(self.slots) if self.slots else np.zeros(0, np.int64)
        # Of large tables it is millions of slots: they are in memory once.
        self.slots = cut(self.flat, lengths)
        self.own = {party: self.slots[group] for party, group in self.group.items()}

    @cached_property
    def sizes(self) -> Ints:
        return np.diff(self.start)

    @cached_property
    def cohort_of(self) -> NDArray[np.int32]:
        """Per shared slot, its cohort."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes).astype(np.int32)

    @cached_property
    def local_start(self) -> Ints:
        """Per pair (cohort, holder), the local slot at which the cohort begins there."""
        order = self.holders.order
        sizes = self.sizes[self.holders.unit[order]]
        before = np.cumsum(sizes) - sizes
        bounds = np.array(self.holders.bounds)
        first = np.zeros(len(self.parties), np.int64)
        some = bounds[1:] > bounds[:-1]
        first[some] = before[bounds[:-1][some]]
        out = np.empty(len(order), np.int64)
        out[order] = before - first[self.holders.party[order]]
        return out

    def chunks(self, group: int, width: int) -> Ints:
        """The chunks in which a group of parties has values, for ciphers of whole chunks."""
        if (group, width) not in self._chunks:
            self._chunks[group, width] = chunks_of(self.slots[group], width)
        return self._chunks[group, width]

    def chunk_holders(self, width: int) -> Holders:
        """Who has values in which chunk."""
        if width not in self._chunk_holders:
            mine = [self.chunks(self.group[party], width) for party in self.parties]
            number = np.repeat(np.arange(len(mine)), [len(chunks) for chunks in mine])
            unit = np.concatenate(mine) if mine else np.zeros(0, np.int64)
            order = np.lexsort((number, unit))
            lengths = np.bincount(unit, minlength=int(unit.max(initial=-1)) + 1)
            self._chunk_holders[width] = Holders.of(lengths, number[order], len(mine))
        return self._chunk_holders[width]
