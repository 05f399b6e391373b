"""Who makes the seed of which cohort, and for whom: the coordinator only carries boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from weft.crypto.pads.pad_record import Holders
from weft.errors import ProtocolError
from weft.matching.cohorts import Axis
from weft.matching.holding_map import HoldingMap
from weft.protocol.message import Message, array

Ints = NDArray[np.int64]


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

    def places(self, party: int) -> Ints:
        """Where each shared cohort of a party begins among all shared slots."""
        return self._start[self.holders.unit[self.holders.pairs(party)]]

    def of(self, party: int) -> tuple[Ints, Ints]:
        """To whom a maker gives which of its cohorts."""
        a, b = np.searchsorted(self.by, [party, party + 1])
        return self.to[a:b], self.place[a:b]


def ask_for_seeds(
    holdings: HoldingMap, messages: Mapping[str, Message], keys: Sequence[bytes], *, places: bool
) -> None:
    """Write into the seats what every party shall make and give.

    With ``places`` also where its cohorts lie among all slots, which only ciphers that mix
    cohorts in a chunk must know.
    """
    parties = holdings.parties
    gifts = {
        "rows": _Gifts(holdings.rows, len(parties)),
        "columns": _Gifts(holdings.columns, len(parties)),
    }
    for number, party in enumerate(parties):
        message = messages[party]
        given = {axis: gift.of(number) for axis, gift in gifts.items()}
        to = np.unique(np.concatenate([g[0] for g in given.values()]))
        if number == 0:
            message["deal"] = True
            to = np.arange(1, len(parties))
        message["give.to"] = to
        message["give.keys"] = b"".join(keys[k] for k in to.tolist())
        for axis, (receivers, chosen) in given.items():
            if places:
                message[f"{axis}.place"] = gifts[axis].places(number)
            message[f"{axis}.maker"] = gifts[axis].makers(number)
            message[f"give.{axis}"] = chosen
            message[f"give.{axis}.start"] = np.searchsorted(receivers, np.append(to, len(parties)))


def deliver(
    parties: Sequence[str], asked: Mapping[str, Message], replies: Mapping[str, Message]
) -> dict[str, Message]:
    """Sort the boxes that came back by those to whom they are sealed."""
    found: dict[str, list[tuple[int, bytes]]] = {party: [] for party in parties}
    for number, party in enumerate(parties):
        to = array(asked[party], "give.to").tolist()
        boxes = replies[party].get("boxes")
        lengths = array(replies[party], "boxes.lengths").tolist()
        if not isinstance(boxes, bytes) or len(lengths) != len(to) or sum(lengths) != len(boxes):
            raise ProtocolError(f"party {party} did not seal the seeds it was asked for")
        at = 0
        for receiver, length in zip(to, lengths, strict=True):
            found[parties[receiver]].append((number, boxes[at : at + length]))
            at += length
    return {
        party: {
            "boxes.from": np.array([maker for maker, _ in boxes], np.int64),
            "boxes.lengths": np.array([len(box) for _, box in boxes], np.int64),
            "boxes": b"".join(box for _, box in boxes),
        }
        for party, boxes in found.items()
    }
