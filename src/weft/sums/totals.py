"""The coordinator's half of a running sum: one total per shared slot, never opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.channels.message import Message
from weft.crypto.cipher import Adder, Payload
from weft.errors import ProtocolError
from weft.matching.axis import Axis

Slots = NDArray[np.int32]


class Layout:
    """Where each party's shared local slots lie among the shared slots of an axis.

    Parties with the same slots (all holders of one cohort, say) share one entry, so that what
    is the same for them is gathered once.
    """

    def __init__(self, axis: Axis, parties: Sequence[str]) -> None:
        self.n_shared = axis.n_shared
        self.group: dict[str, int] = {}
        self.slots: list[NDArray[np.int64]] = []
        known: dict[bytes, int] = {}
        for number, party in enumerate(parties):
            cohorts = axis.cohorts[number]
            key = cohorts[axis.shared_cohort[cohorts]].tobytes()
            if key not in known:
                known[key] = len(self.slots)
                self.slots.append(axis.party_slots(number)[: axis.n_shared_of(number)])
            self.group[party] = known[key]
        lengths = np.array([len(s) for s in self.slots], np.int64)
        self.end = np.cumsum(lengths)
        self.begin = self.end - lengths
        self.flat = np.concatenate(self.slots) if self.slots else np.zeros(0, np.int64)

    def of(self, party: str) -> NDArray[np.int64]:
        """The shared slots of a party, in its local order."""
        return self.slots[self.group[party]]


class Changes:
    """Which slots changed when: a stamp per slot, and a log of the newest changes.

    A party that was away a short while finds what it missed in the log, in time that follows
    the changes; one that was away for long, or holds few slots, looks at its stamps.
    """

    def __init__(self, slots: int) -> None:
        self.stamp = np.zeros(slots, np.int32)
        self._log: list[tuple[int, NDArray[np.int64]]] = []
        self._logged = 0
        #: The log knows every change after this iteration.
        self._complete_after = 0

    def mark(self, slots: NDArray[np.int64], iteration: int) -> None:
        self.stamp[slots] = iteration
        self._log.append((iteration, slots))
        self._logged += len(slots)
        # A log longer than the stamps would cost more than they do.
        while self._logged > len(self.stamp):
            self._complete_after, dropped = self._log.pop(0)
            self._logged -= len(dropped)

    def among(self, mine: NDArray[np.int64], iteration: int) -> NDArray[np.int64]:
        """Positions in ``mine`` (ascending) of the slots that changed after ``iteration``."""
        if iteration >= self._complete_after:
            recent = [slots for when, slots in self._log if when > iteration]
            if not recent:
                return np.zeros(0, np.int64)
            if 8 * sum(len(slots) for slots in recent) < len(mine):
                changed = np.unique(np.concatenate(recent))
                at = np.searchsorted(mine, changed)
                at = at[at < len(mine)]
                held: NDArray[np.int64] = at[mine[at] == changed[: len(at)]]
                return held
        return np.flatnonzero(self.stamp[mine] > iteration)

    def copy(self) -> Changes:
        other = Changes(0)
        other.restore(self.stamp.copy(), self._complete_after)
        other._log = list(self._log)
        other._logged = self._logged
        return other

    def restore(self, stamp: NDArray[np.int32], iteration: int) -> None:
        """Stamps as they were at an iteration; the log begins anew."""
        self.stamp = stamp
        self._log, self._logged, self._complete_after = [], 0, iteration


class RunningTotals:
    """Totals along one axis, from increments.

    Parameters
    ----------
    kind
        Name of the sum, which is also the field of the payload in messages.
    width
        Values per slot (classes).
    tracked
        Remember which slots change when, for :meth:`changes`.
    """

    def __init__(
        self, kind: str, layout: Layout, width: int, adder: Adder, *, tracked: bool = False
    ) -> None:
        self.kind = kind
        self._slots_field = f"{kind}.slots"
        self.layout = layout
        self.width = width
        self._adder = adder
        self.totals: Payload = adder.zeros(layout.n_shared, width)
        self.changed = Changes(layout.n_shared if tracked else 0)
        self._tracked = tracked

    def add(
        self, replies: Mapping[str, Message], iteration: int = 0, *, required: bool = True
    ) -> None:
        """Add all parties' increments: at ``kind.slots`` of a reply, else to the whole block.

        Nothing is added unless every reply is sound. With ``required``, a party that shares
        slots and sends nothing is an error too: its silence would spoil the totals.
        """
        blocks: list[NDArray[np.int64]] = []
        some: dict[str, NDArray[Any]] = {}
        payloads: dict[bool, list[Payload]] = {False: [], True: []}
        for party, reply in replies.items():
            payload = reply.get(self.kind)
            if payload is None:
                if required and len(self.layout.of(party)):
                    raise self._refusal(party, iteration, "is missing")
                continue
            chosen = reply.get(self._slots_field)
            if chosen is None:
                blocks.append(self.layout.of(party))
                expected = (len(blocks[-1]), self.width)
            else:
                if type(chosen) is not np.ndarray or chosen.ndim != 1 or chosen.dtype.kind != "i":
                    raise self._refusal(party, iteration, "comes with slots that are no numbers")
                some[party] = chosen
                expected = (len(chosen), self.width)
            if type(payload) is not np.ndarray or payload.shape != expected:
                found = getattr(payload, "shape", type(payload).__name__)
                raise self._refusal(party, iteration, f"has shape {found}, expected {expected}")
            if payload.dtype != self.totals.dtype:
                raise self._refusal(party, iteration, f"holds {payload.dtype}")
            payloads[chosen is not None].append(payload)
        if some:
            blocks.append(self._chosen(some, iteration))
        if blocks:
            slots = np.concatenate(blocks)
            self._adder.add(self.totals, slots, np.concatenate(payloads[False] + payloads[True]))
            if self._tracked:
                self.changed.mark(slots, iteration)

    def _chosen(self, some: dict[str, NDArray[Any]], iteration: int) -> NDArray[np.int64]:
        """Slots of many parties from their local numbers, all checked at once."""
        groups = [self.layout.group[party] for party in some]
        lengths = [len(chosen) for chosen in some.values()]
        local = np.concatenate(list(some.values()))
        at = np.repeat(self.layout.begin[groups], lengths) + local
        foreign = (local < 0) | (at >= np.repeat(self.layout.end[groups], lengths))
        if foreign.any():
            culprit = list(some)[np.repeat(np.arange(len(some)), lengths)[foreign][0]]
            raise self._refusal(culprit, iteration, "is for a slot that the party does not share")
        slots: NDArray[np.int64] = self.layout.flat[at]
        return slots

    def _refusal(self, party: str, iteration: int, what: str) -> ProtocolError:
        return ProtocolError(
            f"party {party}: its part of '{self.kind}' in iteration {iteration} {what}; the run "
            "stops, since its totals could not be trusted"
        )

    def take(self, party: str, slots: Slots | None = None) -> Payload:
        """A party's totals, at some of its local slots."""
        mine = self.layout.of(party)
        return self._adder.take(self.totals, mine if slots is None else mine[slots])

    def blocks(self, parties: Iterable[str]) -> dict[str, Payload]:
        """Whole blocks for several parties; holders of the same slots share one array."""
        gathered: dict[int, Payload] = {}
        out = {}
        for party in parties:
            group = self.layout.group[party]
            if group not in gathered:
                gathered[group] = self._adder.take(self.totals, self.layout.slots[group])
            out[party] = gathered[group]
        return out

    def pieces(self, wanted: Mapping[str, Slots]) -> dict[str, Payload]:
        """Some totals for each of several parties, gathered at once."""
        if not wanted:
            return {}
        lengths = [len(slots) for slots in wanted.values()]
        begin = self.layout.begin[[self.layout.group[party] for party in wanted]]
        at = np.repeat(begin, lengths) + np.concatenate(list(wanted.values()))
        gathered = self._adder.take(self.totals, self.layout.flat[at])
        out, start = {}, 0
        for party, length in zip(wanted, lengths, strict=True):
            out[party] = gathered[start : start + length]
            start += length
        return out

    def changes(self, since: Mapping[str, int]) -> dict[str, tuple[Slots, Payload]]:
        """For each party, its slots that changed after the given iteration, with their totals."""
        gathered: dict[tuple[int, int], tuple[Slots, Payload]] = {}
        out = {}
        for party, iteration in since.items():
            key = (self.layout.group[party], iteration)
            if key not in gathered:
                mine = self.layout.slots[key[0]]
                chosen = self.changed.among(mine, iteration)
                payload = self._adder.take(self.totals, mine[chosen])
                gathered[key] = (chosen.astype(np.int32), payload)
            out[party] = gathered[key]
        return out

    def copy(self) -> RunningTotals:
        """These totals as they are now, to be kept while the originals move on."""
        other = RunningTotals(self.kind, self.layout, self.width, self._adder, tracked=True)
        other.totals = self.totals.copy()
        other.changed = self.changed.copy()
        return other
