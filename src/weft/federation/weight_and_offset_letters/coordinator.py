"""The coordinator's side of weights and offsets that are told: it carries letters."""

from __future__ import annotations

import numpy as np

from weft.errors import ProtocolError
from weft.federation.weight_and_offset_letters.messages import (
    TAKE,
    TELL,
    Letters,
    TakeRequest,
    TellRequest,
)
from weft.protocol import Channel


def relay_weights_and_offsets(channel: Channel) -> None:
    """Coordinator: carry letters from holders of weights and offsets to holders of labels."""
    parties = channel.parties
    replies = channel.ask(TELL, dict.fromkeys(parties, TellRequest())).insist("telling weights")
    found: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(len(parties))}
    for writer, party in enumerate(parties):
        told = replies[party]
        boxes, readers = told.letters.cut(), told.readers.tolist()
        if len(boxes) != len(readers) or not set(readers) <= found.keys():
            raise ProtocolError(f"party {party} wrote letters to parties that there are none of")
        for reader, box in zip(readers, boxes, strict=True):
            found[reader].append((writer, box))
    carried = {
        party: TakeRequest(
            writers=np.array([writer for writer, _ in found[number]], np.int64),
            letters=Letters.of([box for _, box in found[number]]),
        )
        for number, party in enumerate(parties)
    }
    channel.ask(TAKE, carried).insist("telling weights")
