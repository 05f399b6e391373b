"""Who makes the seed of which cohort, and for whom: the coordinator only carries boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.crypto.key_and_seed_messages import AxisSeeds, SeedBoxes, SeedPlan
from weft.crypto.pads.pad_ids_in_totals import Holders
from weft.errors import ProtocolError
from weft.matching.cohort_holder_lists import TAG
from weft.matching.cohorts import Axis
from weft.matching.holding_map import HoldingMap
from weft.matching.messages import KeysRequest, ViewReply
from weft.protocol.shared_fields import Participants


def holders_of(axis: Axis, parties: int) -> Holders:
    """Holders of the shared cohorts."""
    count = int(axis.shared_cohort.sum())
    held = axis.holders
    return Holders.of(held.lengths[:count], held.values[: held.start[count]], parties)


class _Gifts:
    """Along one axis: which of its cohorts a maker gives to which holder.

    The first holder of a cohort makes its seed.
    """

    def __init__(self, axis: Axis, parties: int) -> None:
        holders = self.holders = holders_of(axis, parties)
        self._parties = parties
        self._start = axis.start
        lead = holders.begin[:-1]
        self._maker = holders.party[lead]
        #: Where each cohort stands among the shared cohorts of a pair's party.
        place = np.empty(len(holders.party), np.int64)
        first = np.array(holders.bounds)[holders.party[holders.order]]
        place[holders.order] = np.arange(len(holders.order)) - first
        others = np.ones(len(holders.party), bool)
        others[lead] = False
        unit, to = holders.unit[others], holders.party[others]
        by = self._maker[unit]
        order = np.lexsort((unit, to, by))
        self.by, self.to = by[order], to[order]
        self.place = place[lead[unit[order]]]

    def makers(self, party: int) -> NDArray[np.int32]:
        """Who makes the seed of each shared cohort of a party."""
        return self._maker[self.holders.unit[self.holders.pairs(party)]].astype(np.int32)

    def cohorts(self, party: int) -> Ints:
        """Numbers of the shared cohorts of a party."""
        numbers: Ints = self.holders.unit[self.holders.pairs(party)].astype(np.int64)
        return numbers

    def places(self, party: int) -> Ints:
        """Where each shared cohort of a party begins among all shared slots."""
        return self._start[self.holders.unit[self.holders.pairs(party)]]

    def of(self, party: int) -> tuple[Ints, Ints]:
        """To whom a maker gives which of its cohorts."""
        a, b = np.searchsorted(self.by, [party, party + 1])
        return self.to[a:b], self.place[a:b]

    def seeds(self, party: int, to: Ints, gifts: tuple[Ints, Ints], *, places: bool) -> AxisSeeds:
        """What a party is told: who makes the seeds of its cohorts, and what it gives to whom."""
        receivers, given = gifts
        everyone = np.append(to, self._parties)
        return AxisSeeds(
            cohort=self.cohorts(party),
            maker=self.makers(party),
            given=given,
            start=np.searchsorted(receivers, everyone),
            place=self.places(party) if places else None,
        )


def plan_seeds(holdings: HoldingMap, cards: Sequence[bytes], *, places: bool) -> list[SeedPlan]:
    """What every party shall make and give, in the order of the parties.

    With ``places`` also where its cohorts lie among all slots, which only ciphers that mix
    cohorts in a chunk must know.
    """
    count = len(holdings.parties)
    labelled = [party in holdings.label_parties for party in holdings.parties]
    participants = Participants(keys=b"".join(cards), labelled=np.array(labelled, bool))
    rows, columns = _Gifts(holdings.rows, count), _Gifts(holdings.columns, count)
    plans = []
    for number in range(count):
        row_gifts, column_gifts = rows.of(number), columns.of(number)
        to = np.unique(np.concatenate([row_gifts[0], column_gifts[0]]))
        if number == 0:
            to = np.arange(1, count)
        plans.append(
            SeedPlan(
                participants=participants,
                to=to,
                rows=rows.seeds(number, to, row_gifts, places=places),
                columns=columns.seeds(number, to, column_gifts, places=places),
                deal=number == 0,
            )
        )
    return plans


def deliver(
    parties: Sequence[str], plans: Sequence[SeedPlan], replies: Mapping[str, ViewReply]
) -> dict[str, KeysRequest]:
    """Sort the boxes that came back by those to whom they are sealed."""
    found: dict[str, list[tuple[int, bytes]]] = {party: [] for party in parties}
    for number, (party, plan) in enumerate(zip(parties, plans, strict=True)):
        for receiver, box in zip(plan.to.tolist(), _sealed(party, plan, replies), strict=True):
            found[parties[receiver]].append((number, box))
    return {
        party: KeysRequest(
            seeds=SeedBoxes(
                content=b"".join(box for _, box in boxes),
                lengths=np.array([len(box) for _, box in boxes], np.int64),
                makers=np.array([maker for maker, _ in boxes], np.int64),
            )
        )
        for party, boxes in found.items()
    }


def add_tags(holdings: HoldingMap, replies: Mapping[str, ViewReply]) -> dict[str, bytes]:
    """Per party, the tags of everybody, and of all holders of its shared cohorts, added up."""
    axes = (holdings.rows, holdings.columns)
    everybody = np.zeros(TAG, np.uint8)
    totals = [np.zeros((int(axis.shared_cohort.sum()), TAG), np.uint8) for axis in axes]
    # Shared cohorts come first, also among those of a party.
    shared = {
        party: [c[: int(axis.shared_cohort[c].sum())] for axis in axes for c in [axis.cohorts[k]]]
        for k, party in enumerate(holdings.parties)
    }
    for party, (rows, columns) in shared.items():
        tags = np.frombuffer(replies[party].tags, np.uint8)
        if len(tags) != TAG * (1 + len(rows) + len(columns)):
            raise ProtocolError(f"party {party} did not confirm what it was told; update it")
        tags = tags.reshape(-1, TAG)
        everybody ^= tags[0]
        totals[0][rows] ^= tags[1 : 1 + len(rows)]
        totals[1][columns] ^= tags[1 + len(rows) :]
    return {
        party: b"".join(part.tobytes() for part in (everybody, totals[0][rows], totals[1][columns]))
        for party, (rows, columns) in shared.items()
    }


def _sealed(party: str, plan: SeedPlan, replies: Mapping[str, ViewReply]) -> list[bytes]:
    """The boxes of one party, one for everyone to whom it gives something."""
    boxes = replies[party].seeds
    sealed = [] if boxes is None else boxes.cut()
    if boxes is None or len(sealed) != len(plan.to):
        raise ProtocolError(f"party {party} did not seal the seeds it was asked for")
    return sealed
