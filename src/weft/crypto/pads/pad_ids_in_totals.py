"""The public record of pads: which pad ids the coordinator's totals carry.

A contribution is value + F(new) − F(before). Within a request the parties are linked in a circle
of their numbers: each takes off the pad that the one before it puts on, and the one who leads takes
off what the total carried: the first who has contributed to that sum before, and so knows how new
the total must be; where nobody has, the first. The total then carries the last party's pad alone,
however many contributed, so that opening it costs one pad. The one who leads refuses a ``before``
that is not of an older request, and the others work theirs out by themselves: so the pads of all
contributions are linearly independent, and the coordinator, which knows every pad id and no key,
learns nothing about any value, not even if it lies about the record. If a party falls silent in
mid-request the links around it stay open: a *knot*, a mark that stands for several signed pad ids,
until the next contribution takes them all off. Nothing secret is in this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Ints
from weft.crypto.ciphers.block_format import ID_BITS, SIGN, Knots, pad_id_of
from weft.numba_options import OUTER
from weft.protocol.shared_fields import PadIds

Sides = NDArray[np.int32]
_NONE = np.zeros(0, np.uint64)
_NOBODY = np.zeros(0, bool)


@dataclass(frozen=True)
class Holders:
    """Who holds which shared unit (cohort, or chunk of slots): pairs, by unit and then party.

    Attributes
    ----------
    unit, party
        Per pair.
    begin
        First pair of each unit, and the number of pairs.
    order, bounds
        The pairs sorted by party (then unit): those of party k are order[bounds[k]:bounds[k+1]].
    """

    unit: Ints
    party: Ints
    begin: Ints
    order: Ints
    bounds: list[int]

    @classmethod
    def of(cls, lengths: Ints, party: Ints, parties: int) -> Holders:
        """From the number of holders per unit, and the holders unit by unit, ascending."""
        unit = np.repeat(np.arange(len(lengths)), lengths)
        begin = np.concatenate([[0], np.cumsum(lengths)])
        order = np.argsort(party, kind="stable")
        bounds = np.searchsorted(party[order], np.arange(parties + 1)).tolist()
        return cls(unit, party, begin, order, bounds)

    @cached_property
    def place(self) -> Ints:
        """Where each pair stands in ``order``."""
        place = np.empty(len(self.order), np.int64)
        place[self.order] = np.arange(len(self.order))
        return place

    def pairs(self, party: int) -> Ints:
        """The pairs of a party, by unit."""
        return self.order[self.bounds[party] : self.bounds[party + 1]]

    def ring(self, asked: Flags) -> tuple[Sides, Sides]:
        """Per pair, in the order of parties: who comes before and after it among those asked.

        −1: nobody. Two form no ring, but a pair.
        """
        left, right = np.full((2, len(self.party)), -1, np.int32)
        ring_pairs(asked, self.begin, self.party, self.place, left, right)
        return left, right


@dataclass(frozen=True)
class Links:
    """How the pairs asked in one request are linked.

    Attributes
    ----------
    parties, pairs
        Which parties are asked; and for which of their units (empty: for all).
    first, last
        Per unit, the pairs that lead and end the chain; −1: nobody is asked.
    """

    parties: Flags
    pairs: Flags
    first: Ints
    last: Ints

    def asked(self, holders: Holders) -> Flags:
        """A flag per pair."""
        every = self.parties[holders.party]
        return every & self.pairs if len(self.pairs) else every

    def order(self, holders: Holders, unit: int) -> list[int]:
        """The parties asked in a unit, from the one who leads around the circle."""
        lead = int(self.first[unit])
        begin, end = int(holders.begin[unit]), int(holders.begin[unit + 1])
        around = [*range(lead, end), *range(begin, lead)] if lead >= 0 else []
        found = [(pair, int(holders.party[pair])) for pair in around]
        return [
            party
            for pair, party in found
            if self.parties[party] and (not len(self.pairs) or self.pairs[pair])
        ]


class CohortChain:
    """Marks per unit, for contributions that cover whole units."""

    def __init__(self, holders: Holders) -> None:
        self.holders = holders
        self.knots = Knots()
        self.marks: PadIds = np.zeros(len(holders.begin) - 1, np.uint64)
        #: Per pair, the request whose masks it left in the total without a counterpart.
        self.torn: PadIds = np.zeros(len(holders.party), np.uint64)
        self._links: Links | None = None
        self._base = 0

    def invite(
        self, parties: Flags, pairs: Flags, epoch: int, round_: int, again: Flags = _NOBODY
    ) -> tuple[PadIds, bool]:
        """Link the parties asked; with flags for ``pairs``, in those units only.

        ``again`` has a flag for who has contributed before; none: nobody has.

        Returns what each pair takes off, in the order of parties: the pad id before it, or the
        mark of the unit; and whether a knot is among them.
        """
        self._base = pad_id_of(epoch, round_, 0)
        holders, units = self.holders, len(self.holders.begin) - 1
        minus = np.empty(len(holders.party), np.uint64)
        first, last = np.empty(units, np.int64), np.empty(units, np.int64)
        marks = self._leading()
        tied = link_pairs(
            parties, pairs, again, holders.begin, holders.party, holders.place, marks, self._base,
            minus, first, last,
        )  # fmt: skip
        self._links = Links(parties, pairs, first, last)
        return minus, tied

    def ring(self) -> tuple[Sides, Sides, PadIds]:
        """Neighbours of the pairs invited, and which masks they take off, by party."""
        links = self._links
        if links is None:
            raise RuntimeError("nobody was invited")
        left, right = self.holders.ring(links.asked(self.holders))
        return left, right, self.torn[self.holders.order]

    def tear(self, answered: Flags) -> None:
        """Note whose masks are left without a counterpart: somebody asked did not answer."""
        links = self._links
        if links is None:
            raise RuntimeError("nobody was invited")
        asked, holders = links.asked(self.holders), self.holders
        heard = asked & answered[holders.party]
        silent = asked & ~heard
        open_ = np.zeros(len(holders.begin) - 1, bool)
        open_[holders.unit[silent]] = True
        # Whoever contributed has taken off what it had left there before.
        self.torn[heard] = np.where(open_[holders.unit[heard]], np.uint64(self._base), 0)

    def _leading(self) -> PadIds:
        """Marks that leading parties take off, per unit; none: they know them by slot."""
        return self.marks

    def _taken(self) -> Links:
        links = self._links
        if links is None:
            raise RuntimeError("contributions that nobody was invited to make")
        self._links = None
        return links

    def record(self, answered: Flags) -> None:
        """The parties that answered have contributed to all their units that were asked."""
        links = self._taken()
        linked = np.flatnonzero(links.last >= 0)
        before = self.marks.copy() if (links.parties & ~answered).any() else None
        last = self.holders.party[links.last[linked]].astype(np.uint64)
        self.marks[linked] = last + np.uint64(self._base)
        if before is not None:
            silent = links.asked(self.holders) & ~answered[self.holders.party]
            for unit in np.unique(self.holders.unit[silent]).tolist():
                residue = self._residue(links, unit, answered, int(before[unit]))
                self.marks[unit] = self.knots.mark(residue)

    def _residue(self, links: Links, unit: int, answered: Flags, carried: int) -> set[int]:
        """Signed pad ids in a unit some of whose holders were asked and stayed silent."""
        count: dict[int, int] = {}

        def add(pad_id: int, sign: int) -> None:
            count[pad_id] = count.get(pad_id, 0) + sign

        old = self.knots.pad_ids(carried)
        for pad_id in old:
            add(pad_id & int(ID_BITS), -1 if pad_id & int(SIGN) else 1)
        before = -1
        for party in links.order(self.holders, unit):
            if answered[party]:
                add(self._base + party, 1)
                if before >= 0:
                    add(self._base + before, -1)
                else:
                    for pad_id in old:
                        add(pad_id & int(ID_BITS), 1 if pad_id & int(SIGN) else -1)
            before = party
        return {pad_id if n > 0 else pad_id | int(SIGN) for pad_id, n in count.items() if n}

    def state(self) -> dict[str, NDArray[Any]]:
        return {"marks": self.marks, "knots": self.knots.state()}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        self.marks = state["marks"]
        self.knots.restore(state["knots"])


class SlotChain(CohortChain):
    """Marks per slot, for contributions to chosen slots of cohorts.

    All parties asked in a cohort contribute to the same slots, which the coordinator does not
    know beforehand: the party that leads a cohort is told the marks that changed since it last
    led there (*news*), and looks the chosen ones up.
    """

    def __init__(self, holders: Holders, start: Ints) -> None:
        super().__init__(holders)
        self._start = start
        self.cohort_of = np.repeat(np.arange(len(start) - 1), np.diff(start)).astype(np.int32)
        self.marks = np.zeros(int(start[-1]) if len(start) else 0, np.uint64)
        #: Request in which a slot changed, and up to which a pair knows the marks.
        self._stamp = np.zeros(len(self.marks), np.int64)
        self._told = np.zeros(len(holders.party), np.int64)
        self._time = 0
        self._log: list[tuple[int, Ints]] = []
        self._logged = 0
        self._complete_after = 0

    def _leading(self) -> PadIds:
        return _NONE

    def news(self) -> tuple[Ints, Ints]:
        """Pairs that lead now, and slots whose marks they do not know, pair by pair.

        Returns the pair of each slot, and the slots.
        """
        links = self._links
        if links is None:
            raise RuntimeError("nobody was invited")
        lead = links.first
        leading = lead[lead >= 0]
        told = self._told[leading]
        oldest = int(told.min(initial=self._time))
        # A slot stands in many entries of the log; it counts where it changed last.
        found = [slots[self._stamp[slots] == at] for at, slots in self._log if at > oldest]
        behind = leading[told < self._complete_after]
        if len(behind):
            wanted = np.zeros(len(self._start) - 1, bool)
            wanted[self.holders.unit[behind]] = True
            found = [slots[~wanted[self.cohort_of[slots]]] for slots in found]
            found.append(np.flatnonzero(np.repeat(wanted, np.diff(self._start))))
        slots = np.concatenate(found) if found else np.zeros(0, np.int64)
        pair = lead[self.cohort_of[slots]]
        stale = (pair >= 0) & (self._stamp[slots] > self._told[np.maximum(pair, 0)])
        return pair[stale], slots[stale]

    def record_slots(self, answered: Flags, slots: Ints, party: Ints) -> None:
        """Contributions at ``slots`` (parties ascending) by the parties of ``party``."""
        links = self._taken()
        self._time += 1
        before = self.marks[slots] if (links.parties & ~answered).any() else None
        last = self.holders.party[links.last[self.cohort_of[slots]]]
        self.marks[slots] = np.uint64(self._base) + last.astype(np.uint64)
        if before is not None:
            silent = links.asked(self.holders) & ~answered[self.holders.party]
            affected = np.zeros(len(self._start) - 1, bool)
            affected[self.holders.unit[silent]] = True
            self._tie(links, answered, slots, before, affected)
        slots = self._once(links, slots, party, before is None)
        self._stamp[slots] = self._time
        self._log.append((self._time, slots))
        self._logged += len(slots)
        while self._logged > len(self._stamp) and len(self._log) > 1:
            self._complete_after, dropped = self._log.pop(0)
            self._logged -= len(dropped)
        leading = links.first[links.first >= 0]
        self._told[leading[answered[self.holders.party[leading]]]] = self._time - 1

    def _once(self, links: Links, slots: Ints, party: Ints, complete: bool) -> Ints:
        """Every slot once: where all have answered, as the leading party sent it."""
        if not complete:
            return np.unique(slots)
        lead = self.holders.party[links.first[self.cohort_of[slots]]]
        once: Ints = slots[lead == party]
        return once

    def _tie(
        self, links: Links, answered: Flags, slots: Ints, before: PadIds, affected: Flags
    ) -> None:
        """Knots in the cohorts of parties that stayed silent."""
        chosen = affected[self.cohort_of[slots]]
        slots, first = np.unique(slots[chosen], return_index=True)
        before = before[chosen][first]
        cohort = self.cohort_of[slots]
        for c in np.unique(cohort).tolist():
            inside = cohort == c
            for old in np.unique(before[inside]).tolist():
                residue = self._residue(links, c, answered, old)
                self.marks[slots[inside & (before == old)]] = self.knots.mark(residue)

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        super().restore(state)
        # Parties that come back have forgotten what they were told.
        self._time = 1
        self._stamp[:] = self.marks != 0
        self._told[:] = 0
        self._log, self._logged, self._complete_after = [], 0, 1


def runs_of(marks: PadIds, bounds: Sequence[int]) -> list[tuple[NDArray[np.uint32], PadIds]]:
    """Runs of equal marks, cut at ``bounds`` (the ends of the parts)."""
    if not len(marks):
        return [(np.zeros(0, np.uint32), marks) for _ in bounds]
    fresh = np.empty(len(marks), bool)
    fresh[0] = True
    np.not_equal(marks[1:], marks[:-1], out=fresh[1:])
    cuts = np.array(bounds[:-1], np.int64)
    fresh[cuts[cuts < len(marks)]] = True
    at = np.flatnonzero(fresh)
    lengths = np.diff(np.append(at, len(marks))).astype(np.uint32)
    names = marks[at]
    edges = np.searchsorted(at, [0, *bounds]).tolist()
    return [(lengths[a:b], names[a:b]) for a, b in pairwise(edges)]


@numba.njit(**OUTER)
def link_pairs(
    parties: Any, pairs: Any, again: Any, begin: Any, party: Any, place: Any, marks: Any, base: int,
    minus: Any, first: Any, last: Any,
) -> bool:  # fmt: skip
    """Two passes over the pairs, unit by unit; see `CohortChain.invite`."""
    tied = False
    for unit in range(begin.shape[0] - 1):
        lead, end, anew = -1, -1, True
        for pair in range(begin[unit], begin[unit + 1]):
            if parties[party[pair]] and (pairs.shape[0] == 0 or pairs[pair]):
                new = again.shape[0] == 0 or not again[party[pair]]
                if lead < 0 or (anew and not new):
                    lead, anew = pair, new
                end = pair
        before = end
        last[unit] = end
        first[unit] = lead
        for pair in range(begin[unit], begin[unit + 1]):
            mark = np.uint64(0)
            if parties[party[pair]] and (pairs.shape[0] == 0 or pairs[pair]):
                if pair != lead:
                    mark = np.uint64(base + party[before])
                else:
                    last[unit] = before
                    if marks.shape[0] > 0:
                        mark = marks[unit]
                        tied = tied or (mark >> np.uint64(63)) != 0
                before = pair
            minus[place[pair]] = mark
    return tied


@numba.njit(**OUTER)
def ring_pairs(asked: Any, begin: Any, party: Any, place: Any, left: Any, right: Any) -> None:
    """One pass over the pairs, unit by unit; see `Holders.ring`."""
    for unit in range(begin.shape[0] - 1):
        first, before, count = -1, -1, 0
        for pair in range(begin[unit], begin[unit + 1]):
            if not asked[pair]:
                continue
            if before < 0:
                first = pair
            else:
                left[place[pair]] = party[before]
                right[place[before]] = party[pair]
            before = pair
            count += 1
        if count > 2:
            left[place[first]] = party[before]
            right[place[before]] = party[first]


@numba.njit(**OUTER)
def learn_marks(known: Any, slots: Any, lengths: Any, marks: Any) -> bool:
    """Write runs of marks at ``slots``, or from the only slot on; false where they do not fit."""
    if lengths.shape[0] != marks.shape[0]:
        return False
    total = 0
    for run in range(lengths.shape[0]):
        total += int(lengths[run])
    in_a_row = slots.shape[0] == 1
    if not in_a_row and total != slots.shape[0]:
        return False
    for i in range(slots.shape[0]):
        if slots[i] < 0 or slots[i] + (total if in_a_row else 1) > known.shape[0]:
            return False
    at = 0
    for run in range(lengths.shape[0]):
        for _ in range(int(lengths[run])):
            known[slots[0] + at if in_a_row else slots[at]] = marks[run]
            at += 1
    return True
