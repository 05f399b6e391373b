"""The coordinator's half of a running sum: one total per shared slot, never opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from weft.channels.message import Message, Value
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


class RunningTotals:
    """Totals along one axis, from increments.

    Parameters
    ----------
    kind
        Name of the sum, which is also the field of the payload in messages.
    width
        Values per slot (classes).
    """

    def __init__(self, kind: str, layout: Layout, width: int, adder: Adder) -> None:
        self.kind = kind
        self._slots_field = f"{kind}.slots"
        self.layout = layout
        self.width = width
        self._adder = adder
        self.totals: Payload = adder.zeros(layout.n_shared, width)
        #: Iteration in which each slot last changed.
        self.stamp = np.zeros(layout.n_shared, np.int32)

    def add(
        self, replies: Mapping[str, Message], iteration: int = 0, *, required: bool = True
    ) -> None:
        """Add all parties' increments: at ``kind.slots`` of a reply, else to the whole block.

        Nothing is added unless every reply is sound. With ``required``, a party that shares
        slots and sends nothing is an error too: its silence would spoil the totals.
        """
        where, what = [], []
        for party, reply in replies.items():
            mine = self.layout.of(party)
            payload = reply.get(self.kind)
            if payload is None:
                if required and len(mine):
                    raise self._refusal(party, iteration, "is missing")
                continue
            chosen = reply.get(self._slots_field)
            if chosen is not None:
                mine = self._chosen(party, mine, chosen, iteration)
            expected = (len(mine), self.width)
            if type(payload) is not np.ndarray or payload.shape != expected:
                found = getattr(payload, "shape", type(payload).__name__)
                raise self._refusal(party, iteration, f"has shape {found}, expected {expected}")
            if payload.dtype != self.totals.dtype:
                raise self._refusal(party, iteration, f"holds {payload.dtype}")
            where.append(mine)
            what.append(payload)
        if where:
            slots = np.concatenate(where)
            self._adder.add(self.totals, slots, np.concatenate(what))
            self.stamp[slots] = iteration

    def _chosen(
        self, party: str, mine: NDArray[np.int64], chosen: Value, iteration: int
    ) -> NDArray[np.int64]:
        """Some of a party's slots, by their local numbers."""
        if type(chosen) is not np.ndarray or chosen.ndim != 1 or chosen.dtype.kind != "i":
            raise self._refusal(party, iteration, "comes with slots that are no whole numbers")
        if len(chosen) and (chosen.min() < 0 or chosen.max() >= len(mine)):
            raise self._refusal(party, iteration, "is for a slot that the party does not share")
        slots: NDArray[np.int64] = mine.take(chosen)
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
                chosen = np.flatnonzero(self.stamp[mine] > iteration)
                payload = self._adder.take(self.totals, mine[chosen])
                gathered[key] = (chosen.astype(np.int32), payload)
            out[party] = gathered[key]
        return out

    def copy(self) -> RunningTotals:
        """These totals as they are now, to be kept while the originals move on."""
        other = RunningTotals(self.kind, self.layout, self.width, self._adder)
        other.totals = self.totals.copy()
        other.stamp = self.stamp.copy()
        return other
