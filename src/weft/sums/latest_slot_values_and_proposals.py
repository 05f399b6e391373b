"""The latest value of each slot, posted in the place of the one before; sums of one request."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Ints, Slots
from weft.crypto.ciphers.block_format import NOTHING, Carried
from weft.crypto.coordinator_adder import Adder, slots_of
from weft.crypto.pads.pad_ids_in_totals import runs_of
from weft.protocol.declared_message_fields import Message
from weft.protocol.shared_fields import PadIds
from weft.sums.coordinator_pad_bookkeeping import PadBookkeeping
from weft.sums.coordinator_totals import Totals, timed
from weft.sums.shared_slots_by_party import Layout

#: To look at a slot's flag takes so many times less than to look a slot up among many.
_FEWER = 8


class Changes:
    """Which slots changed when: a stamp per slot, and a log of the newest changes.

    A party that was away a short while finds what it missed in the log, in time that follows
    the changes; one that was away for long, or holds few slots, looks at its stamps.
    """

    def __init__(self, slots: int) -> None:
        self.stamp = np.zeros(slots, np.int32)
        self._log: deque[tuple[int, NDArray[np.int64]]] = deque()
        self._logged = 0
        #: The log knows every change after this iteration.
        self._complete_after = 0

    def mark(self, slots: NDArray[np.int64], iteration: int) -> None:
        self.stamp[slots] = iteration
        self._log.append((iteration, slots))
        self._logged += len(slots)
        # A log longer than the stamps would cost more than they do.
        while self._logged > len(self.stamp):
            self._complete_after, dropped = self._log.popleft()
            self._logged -= len(dropped)

    def among(self, mine: NDArray[np.int64], iteration: int) -> NDArray[np.int64]:
        """Positions in ``mine`` (ascending) of the slots that changed after ``iteration``."""
        if iteration >= self._complete_after:
            # Newest first: a log of tens of thousands of iterations is not read to its begin.
            newer = takewhile(lambda entry: entry[0] > iteration, reversed(self._log))
            recent = [slots for _, slots in newer]
            if not recent:
                return np.zeros(0, np.int64)
            if _FEWER * sum(len(slots) for slots in recent) < len(mine):
                changed = np.unique(np.concatenate(recent))
                at = np.searchsorted(mine, changed)
                at = at[at < len(mine)]
                held: NDArray[np.int64] = at[mine[at] == changed[: len(at)]]
                return held
        return np.flatnonzero(self.stamp[mine] > iteration)

    def copy(self) -> Changes:
        other = Changes(0)
        other.restore(self.stamp.copy(), self._complete_after)
        other._log = self._log.copy()
        other._logged = self._logged
        return other

    def restore(self, stamp: NDArray[np.int32], iteration: int) -> None:
        """Stamps as they were at an iteration; the log begins anew."""
        self.stamp = stamp
        self._log, self._logged, self._complete_after = deque(), 0, iteration


class LatestValues(Totals):
    """The newest value of every slot, as some holder posted it.

    A cipher of whole chunks cannot replace single slots: there, posts are increments.
    """

    def __init__(self, kind: str, layout: Layout, width: int, adder: Adder) -> None:
        super().__init__(kind, layout, width, adder)
        self._marks: PadIds = np.zeros(layout.n_shared, np.uint64)
        #: Who speaks for some shared cohort, by the number of the request.
        self._speakers: dict[int, frozenset[str]] = {}
        self.changed = Changes(layout.n_shared)
        if adder.whole:
            self._bookkeeping = PadBookkeeping(kind, layout, width, adder)

    @timed
    def invite(self, messages: Mapping[str, Message], chosen: Mapping[str, Flags]) -> None:
        """Prepare a request in which parties post what ``chosen`` says of their cohorts.

        Whoever speaks for a shared cohort answers with a block, if need be an empty one: a post
        that got lost on its way would leave absent holders with an older value.
        """
        self._speakers[self._adder.round] = frozenset(
            party
            for party in messages
            if np.count_nonzero(chosen[party][: len(self.layout.cohorts[self.layout.group[party]])])
        )
        if self._bookkeeping is not None:
            self._bookkeeping.invite(messages, chosen)

    @timed
    def post(self, replies: Mapping[str, Message], iteration: int, round_: int) -> None:
        """Let what the parties posted take the place of what was there."""
        speakers = self._speakers.pop(round_)
        parts = self._read(replies, iteration, speakers, round_)
        if self._bookkeeping is not None:
            self._bookkeeping.record(parts)
            if parts:
                self._store(parts, iteration)
                self.changed.mark(self._named(parts, replies, iteration), iteration)
            return
        if not parts:
            return
        self._store(parts, iteration, put=True)
        slots = slots_of(parts)
        self._marks[slots] = self._pad_ids_of(parts, round_)
        self.changed.mark(slots, iteration)

    def _carried(self, slots: Ints, ends: Sequence[int]) -> list[Carried]:
        if not self._adder.linked:
            return [NOTHING] * len(ends)
        return [Carried(n, None, m) for n, m in runs_of(self._marks[slots], ends)]

    def changes(self, since: Mapping[str, int]) -> dict[str, tuple[Slots, bytes]]:
        """For each party, its slots that changed after the given iteration, with their totals."""
        found: dict[tuple[int, int], Slots] = {}
        wanted: dict[str, Slots] = {}
        for party, iteration in since.items():
            key = (self.layout.group[party], iteration)
            if key not in found:
                mine = self.layout.slots[key[0]]
                found[key] = self.changed.among(mine, iteration).astype(np.int32)
            if len(found[key]):
                wanted[party] = found[key]
        return {p: (wanted[p], block) for p, block in self.pieces(wanted).items()}

    def copy(self) -> LatestValues:
        """This board as it is now, to be kept while the original moves on."""
        other = LatestValues(self.kind, self.layout, self.width, self._adder)
        other._take_copy(self)
        other._marks = self._marks.copy()
        other.changed = self.changed.copy()
        return other

    def state(self) -> dict[str, NDArray[Any]]:
        return {**super().state(), "marks": self._marks, "stamp": self.changed.stamp}

    def restore(self, state: Mapping[str, NDArray[Any]], iteration: int) -> None:
        """The inverse of :meth:`state`, at an iteration."""
        self._take_state(state)
        self._marks = state["marks"]
        self.changed.restore(state["stamp"], iteration)


class Proposals(Totals):
    """Sums over whoever proposes something for a slot, in one request."""

    def __init__(self, kind: str, layout: Layout, width: int, adder: Adder) -> None:
        super().__init__(kind, layout, width, adder)
        self._proposed: Ints = np.zeros(0, np.int64)
        self._count: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._pad_ids: PadIds = np.zeros(0, np.uint64)
        if adder.whole:
            self._bookkeeping = PadBookkeeping(kind, layout, width, adder)

    @timed
    def invite(self, messages: Mapping[str, Message]) -> None:
        """Prepare the request for proposals."""
        if self._bookkeeping is not None:
            self._bookkeeping.invite(messages)

    @timed
    def add(self, replies: Mapping[str, Message], iteration: int, round_: int) -> None:
        """Add all parties' proposals."""
        parts = self._read(replies, iteration, replies, round_)
        if parts:
            self._store(parts, iteration)
        if self._bookkeeping is not None:
            self._bookkeeping.record(parts)
            self._proposed = np.unique(self._named(parts, replies, iteration))
            return
        slots, pad_ids = slots_of(parts), self._pad_ids_of(parts, round_)
        order = np.argsort(slots, kind="stable")
        ordered = slots[order]
        first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
        self._proposed = ordered[first]
        self._count = np.diff(np.append(first, len(ordered))).astype(np.uint32)
        self._pad_ids = pad_ids[order]

    def _carried(self, slots: Ints, ends: Sequence[int]) -> list[Carried]:
        if not self._adder.linked:
            return [NOTHING] * len(ends)
        at = np.searchsorted(self._proposed, slots)
        counts = self._count[at].astype(np.int64)
        begin = (np.cumsum(self._count, dtype=np.int64) - self._count)[at]
        inner = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        pad_ids = self._pad_ids[np.repeat(begin, counts) + inner]
        edges = np.concatenate([[0], np.cumsum(counts)])
        return [
            Carried(
                np.ones(b - a, np.uint32),
                counts[a:b].astype(np.uint32),
                pad_ids[edges[a] : edges[b]],
            )
            for a, b in zip([0, *ends], ends, strict=False)
        ]

    def proposed(self, parties: Iterable[str]) -> dict[str, tuple[Slots, bytes]]:
        """For each party, its slots for which somebody proposed something, with the sums."""
        found: dict[int, Slots] = {}
        wanted: dict[str, Slots] = {}
        flags = np.zeros(self.layout.n_shared, bool)
        flags[self._proposed] = True
        for party in parties:
            group = self.layout.group[party]
            if group not in found:
                found[group] = self._places(self.layout.slots[group], flags)
            if len(found[group]):
                wanted[party] = found[group]
        return {p: (wanted[p], block) for p, block in self.pieces(wanted).items()}

    def _places(self, mine: Ints, flags: Flags) -> Slots:
        """Where in ``mine`` (ascending) the proposed slots lie, which have flags."""
        if len(mine) < _FEWER * len(self._proposed):
            return np.flatnonzero(flags.take(mine)).astype(np.int32)
        # Few are proposed: each is looked up among the many that a party has.
        at = np.searchsorted(mine, self._proposed)
        inside = at < len(mine)
        inside[inside] = mine[at[inside]] == self._proposed[inside]
        return at[inside].astype(np.int32)
