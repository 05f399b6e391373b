"""The public record of pads: which labels the coordinator's totals carry.

A contribution is value + F(new) − F(before). Within a request the parties are linked in their
order: each takes off the pad that the one before it puts on, and the first takes off what the
total carried. The total then carries the last party's pad alone, however many contributed, so
that opening it costs one pad. Since ``before`` is always an older label, the pads of all
contributions are linearly independent: the coordinator, which knows every label and no key,
learns nothing about any value, not even if it lies about the record (a party refuses a
``before`` that is not older than its own label). If a party falls silent in mid-request the
links around it stay open: a *knot*, a mark that stands for several signed labels, until the
next contribution takes them all off. Nothing secret is in this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.crypto.labels import SIGN, label_of
from weft.crypto.payload import Carried, Labels

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_PLAIN_BITS = np.uint64((1 << 63) - 1)


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

    def pairs(self, party: int) -> Ints:
        """The pairs of a party, by unit."""
        return self.order[self.bounds[party] : self.bounds[party + 1]]


@dataclass(frozen=True)
class Links:
    """How the pairs asked in one request are linked."""

    asked: Flags
    #: Per pair, the pair before it in its unit; −1: it leads.
    before: Ints
    #: Units with somebody asked, and the last pair asked there.
    units: Ints
    last: Ints


class Knots:
    """Marks that stand for several signed labels."""

    def __init__(self) -> None:
        self._table: list[tuple[int, ...]] = []
        self._known: dict[tuple[int, ...], int] = {}

    def mark(self, labels: Iterable[int]) -> int:
        """One mark for a set of signed labels: the label itself, zero, or a knot."""
        found = tuple(sorted(labels))
        if not found:
            return 0
        if len(found) == 1 and not found[0] & int(SIGN):
            return found[0]
        if found not in self._known:
            self._known[found] = len(self._table)
            self._table.append(found)
        return int(SIGN) | self._known[found]

    def labels(self, mark: int) -> tuple[int, ...]:
        """The signed labels of a mark."""
        if not mark & int(SIGN):
            return (mark,) if mark else ()
        return self._table[mark & ~int(SIGN)]

    def rewrite(self, marks: Labels) -> tuple[Labels, NDArray[np.uint64] | None]:
        """Marks for a message: knots numbered from zero, and their table (None: no knots)."""
        if not self._table:
            return marks, None
        several = (marks & SIGN) != 0
        if not several.any():
            return marks, None
        names, inverse = np.unique(marks[several], return_inverse=True)
        out = marks.copy()
        out[several] = SIGN | inverse.astype(np.uint64)
        flat: list[int] = []
        for name in names.tolist():
            labels = self.labels(name)
            flat += [len(labels), *labels]
        return out, np.array(flat, np.uint64)

    def carried(self, lengths: NDArray[np.uint32] | None, marks: Labels, sizes: Ints) -> Carried:
        """Marks of runs (of cohorts with ``sizes`` where ``lengths`` is None), for a block."""
        if not self._table or not ((marks & SIGN) != 0).any():
            return Carried(lengths, None, marks)
        lists = [self.labels(mark) for mark in marks.tolist()]
        return Carried(
            sizes.astype(np.uint32) if lengths is None else lengths,
            np.array([len(labels) for labels in lists], np.uint32),
            np.array([label for labels in lists for label in labels], np.uint64),
        )

    def state(self) -> NDArray[np.uint64]:
        flat = [value for labels in self._table for value in (len(labels), *labels)]
        return np.array(flat, np.uint64)

    def restore(self, state: NDArray[np.uint64]) -> None:
        self._table = read_knots(state)
        self._known = {labels: i for i, labels in enumerate(self._table)}


def read_knots(flat: NDArray[np.uint64]) -> list[tuple[int, ...]]:
    """A table of knots from its flat form."""
    table, at, values = [], 0, flat.tolist()
    while at < len(values):
        count = values[at]
        table.append(tuple(values[at + 1 : at + 1 + count]))
        at += 1 + count
    return table


class CohortChain:
    """Marks per unit, for contributions that cover whole units."""

    def __init__(self, holders: Holders) -> None:
        self.holders = holders
        self.knots = Knots()
        self.marks: Labels = np.zeros(len(holders.begin) - 1, np.uint64)
        self._links: Links | None = None
        self._cached: tuple[bytes, Links] | None = None
        self._base = 0

    def link(self, asked: Flags) -> Links:
        """Link the pairs asked; the same pairs as last time cost nothing."""
        key = asked.tobytes()
        if self._cached is not None and self._cached[0] == key:
            return self._cached[1]
        number = np.arange(len(asked))
        latest = np.maximum.accumulate(np.where(asked, number, -1)) if len(asked) else number
        before = np.concatenate([[-1], latest[:-1]]) if len(asked) else number
        begin = self.holders.begin
        before = np.where(before >= begin[self.holders.unit], before, -1)
        ends = latest[begin[1:] - 1] if len(asked) else np.zeros(0, np.int64)
        units = np.flatnonzero(ends >= begin[:-1])
        links = Links(asked, before, units, ends[units])
        self._cached = (key, links)
        return links

    def invite(self, asked: Flags, epoch: int, round_: int) -> Labels:
        """What each pair takes off: the label before it, or the mark of the unit."""
        links = self._links = self.link(asked)
        self._base = label_of(epoch, round_, 0)
        party = self.holders.party[np.maximum(links.before, 0)].astype(np.uint64)
        before = np.uint64(self._base) + party
        return np.where(links.before >= 0, before, self._leading())

    def _leading(self) -> Labels:
        return self.marks[self.holders.unit]

    def record(self, answered: Flags) -> None:
        """The parties that answered have contributed to all their units that were asked."""
        links = self._links
        if links is None:
            raise RuntimeError("contributions that nobody was invited to make")
        self._links = None
        last = self.holders.party[links.last].astype(np.uint64) + np.uint64(self._base)
        silent = links.asked & ~answered[self.holders.party]
        if silent.any():
            whole = ~np.isin(links.units, self.holders.unit[silent])
            for unit in np.unique(self.holders.unit[silent]).tolist():
                self.marks[unit] = self.knots.mark(
                    self._residue(links, unit, answered, int(self.marks[unit]))
                )
            self.marks[links.units[whole]] = last[whole]
        else:
            self.marks[links.units] = last

    def _residue(self, links: Links, unit: int, answered: Flags, carried: int) -> set[int]:
        """Signed labels in a unit some of whose holders were asked and stayed silent."""
        count: dict[int, int] = {}

        def add(label: int, sign: int) -> None:
            count[label] = count.get(label, 0) + sign

        old = self.knots.labels(carried)
        for label in old:
            add(label & int(_PLAIN_BITS), -1 if label & int(SIGN) else 1)
        for pair in range(int(self.holders.begin[unit]), int(self.holders.begin[unit + 1])):
            party = int(self.holders.party[pair])
            if not links.asked[pair] or not answered[party]:
                continue
            add(self._base + party, 1)
            before = int(links.before[pair])
            if before >= 0:
                add(self._base + int(self.holders.party[before]), -1)
            else:
                for label in old:
                    add(label & int(_PLAIN_BITS), 1 if label & int(SIGN) else -1)
        return {label if n > 0 else label | int(SIGN) for label, n in count.items() if n}

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

    def _leading(self) -> Labels:
        return np.zeros(len(self.holders.party), np.uint64)

    def news(self) -> tuple[Ints, Ints]:
        """Pairs that lead now, and slots whose marks they do not know, pair by pair.

        Returns the pair of each slot, and the slots.
        """
        links = self._links
        if links is None:
            raise RuntimeError("nobody was invited")
        lead = np.full(len(self._start) - 1, -1)
        leading = np.flatnonzero(links.asked & (links.before < 0))
        lead[self.holders.unit[leading]] = leading
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
        links = self._links
        if links is None:
            raise RuntimeError("contributions that nobody was invited to make")
        self._links = None
        self._time += 1
        silent = links.asked & ~answered[self.holders.party]
        before = self.marks[slots] if silent.any() else None
        # Parties come in their order, so that the last one's label stays.
        self.marks[slots] = np.uint64(self._base) + party.astype(np.uint64)
        if before is not None:
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
        leading = links.asked & (links.before < 0) & answered[self.holders.party]
        self._told[leading] = self._time - 1

    def _once(self, links: Links, slots: Ints, party: Ints, complete: bool) -> Ints:
        """Every slot once: where all have answered, as the leading party sent it."""
        if not complete:
            return np.unique(slots)
        lead = np.full(len(self._start) - 1, -1)
        leading = np.flatnonzero(links.asked & (links.before < 0))
        lead[self.holders.unit[leading]] = self.holders.party[leading]
        once: Ints = slots[lead[self.cohort_of[slots]] == party]
        return once

    def _tie(
        self, links: Links, answered: Flags, slots: Ints, before: Labels, affected: Flags
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


def runs_of(marks: Labels, bounds: Sequence[int]) -> list[tuple[NDArray[np.uint32], Labels]]:
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
