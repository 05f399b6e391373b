"""The coordinator's half of the ciphers: numbers requests, adds and forwards, reads nothing.

Nothing in this file can take a secret: an adder is made from a cipher's name and learns public
keys and the public number of the run's key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.crypto.ciphers.cipher import check_cipher
from weft.crypto.ciphers.encrypted_totals import BfvStore, PaillierStore, Store, WordStore
from weft.crypto.encryption_cost import Cost
from weft.crypto.pads.pad_ids import label_of

#: Up to this many parties, everyone shares masks with everyone …
FEW = 9
#: … and beyond with so many neighbours on either side, in the order of the parties asked.
NEIGHBOURS = 2


class Adder:
    """What the coordinator knows of a run's encryption: public things only.

    Attributes
    ----------
    epoch, round
        Together they number the requests; a resumed run goes on in a later epoch.
    key
        Public number of the run's key, the same at all parties.
    """

    def __init__(self, cipher: str) -> None:
        check_cipher(cipher)
        self.name = cipher
        self.epoch = 0
        self.round = 0
        self.key = 0
        #: What the parties said in the clear about the key that all of them share.
        self.public = b""
        self.cost = Cost()
        self._index: dict[str, int] = {}
        self._keys: list[bytes] = []

    @property
    def whole(self) -> bool:
        """Whether blocks are added and forwarded as a whole."""
        return self.name == "bfv"

    @property
    def linked(self) -> bool:
        """Whether contributions carry pads."""
        return self.name != "plain"

    def meet(self, parties: Sequence[str], keys: Sequence[bytes], key: int, public: bytes) -> None:
        """Take over what the parties announced; ``keys`` are public keys and nonces."""
        self._index = {name: number for number, name in enumerate(parties)}
        self._keys = list(keys)
        self.key, self.public = key, public

    def index(self, party: str) -> int:
        return self._index[party]

    def advance(self) -> int:
        """The number of a new request; blocks made from now on belong to it."""
        self.round += 1
        return self.round

    def messages(self, parties: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Messages of the current request, with its number in them."""
        return {party: {"round": self.round} for party in parties}

    def open(self, parties: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The messages of a new request."""
        self.advance()
        return self.messages(parties)

    def fresh_context(self) -> int:
        """A number for masks that are used over several requests; no request will have it."""
        self.round += 1
        return label_of(self.epoch, self.round, 0)

    def mask(
        self,
        messages: Mapping[str, dict[str, Any]],
        context: int | None = None,
        everyone: Iterable[str] | None = None,
    ) -> None:
        """Tell the parties of a request with whom they share masks under their scalars.

        The parties form a ring; each shares a mask with its nearest neighbours, so that all
        masks cancel in the sum over everyone, and in no smaller one.

        Parameters
        ----------
        context
            What the masks are for, where that is more than this request.
        everyone
            Over whom the sum goes, where those are more than the parties of this request.
        """
        if not self.linked:
            return
        with self.cost.timed():
            self._mask(messages, context, list(messages if everyone is None else everyone))

    def _mask(
        self,
        messages: Mapping[str, dict[str, Any]],
        context: int | None,
        everyone: Sequence[str],
    ) -> None:
        ring = sorted(self._index[party] for party in everyone)
        place = {number: at for at, number in enumerate(ring)}
        n = len(ring)
        reach = n // 2 if n <= FEW else NEIGHBOURS
        offsets = sorted({o % n for o in range(-reach, reach + 1)} - {0}) if n > 1 else []
        for party, message in messages.items():
            at = place[self._index[party]]
            peers = [ring[(at + o) % n] for o in offsets]
            message["peers"] = np.array(peers, np.int32)
            message["peers.keys"] = b"".join(self._keys[peer] for peer in peers)
            if context is not None:
                message["context"] = context

    def store(self, slots: int, width: int, *, clear: bool = False) -> Store:
        """An empty total, on wish of numbers in the clear."""
        if clear:
            return WordStore(slots, width)
        if self.name == "paillier":
            return PaillierStore(self.public, slots, width)
        if self.name == "bfv":
            return BfvStore(slots, width)
        return WordStore(slots, width)

    def label(self, party: str) -> int:
        """The label that a party's contribution to the current request must have."""
        return label_of(self.epoch, self.round, self._index[party])
