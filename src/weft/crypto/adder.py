"""The coordinator's half of the ciphers: numbers requests, adds and forwards, reads nothing.

Nothing in this file can take a secret: an adder is made from a cipher's name and learns public
keys and the public number of the run's key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from weft.crypto.ciphers.cipher import check_cipher
from weft.crypto.ciphers.encrypted_totals import BfvStore, PaillierStore, Store, WordStore
from weft.crypto.encryption_cost import Cost
from weft.crypto.pads.pad_ids import label_of
from weft.protocol.parts import LastingRing, Ring

#: Up to this many parties, everyone shares masks with everyone …
FEW = 9
#: … and beyond with so many neighbours on either side, in the order of the parties asked.
NEIGHBOURS = 2


class Masked(Protocol):
    """A request for scalars under masks of its own."""

    ring: Ring | None


class MaskedForLong(Protocol):
    """A request for scalars under masks that serve several requests."""

    ring: LastingRing | None


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

    def fresh_context(self) -> int:
        """A number for masks that are used over several requests; no request will have it."""
        self.round += 1
        return label_of(self.epoch, self.round, 0)

    def mask(self, messages: Mapping[str, Masked]) -> None:
        """Tell the parties of a request with whom they share masks under their scalars.

        The parties form a ring; each shares a mask with its nearest neighbours, so that all
        masks cancel in the sum over everyone, and in no smaller one.
        """
        if not self.linked:
            return
        with self.cost.timed():
            for party, (peers, keys) in self._neighbours(messages, list(messages)).items():
                messages[party].ring = Ring(peers=peers, keys=keys)

    def mask_lasting(
        self, messages: Mapping[str, MaskedForLong], context: int, everyone: Iterable[str]
    ) -> None:
        """The same for scalars that come in over several requests.

        Parameters
        ----------
        context
            What the masks are for.
        everyone
            Over whom the sum goes, who are more than the parties of this request.
        """
        if not self.linked:
            return
        with self.cost.timed():
            for party, (peers, keys) in self._neighbours(messages, list(everyone)).items():
                messages[party].ring = LastingRing(peers=peers, keys=keys, context=context)

    def _neighbours(
        self, asked: Iterable[str], everyone: Sequence[str]
    ) -> dict[str, tuple[NDArray[np.int32], bytes]]:
        """For each party asked, its neighbours in the ring and their keys."""
        ring = sorted(self._index[party] for party in everyone)
        place = {number: at for at, number in enumerate(ring)}
        n = len(ring)
        reach = n // 2 if n <= FEW else NEIGHBOURS
        offsets = sorted({o % n for o in range(-reach, reach + 1)} - {0}) if n > 1 else []
        found = {}
        for party in asked:
            at = place[self._index[party]]
            peers = [ring[(at + o) % n] for o in offsets]
            found[party] = np.array(peers, np.int32), b"".join(self._keys[p] for p in peers)
        return found

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
