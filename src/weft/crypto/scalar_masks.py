"""Masks under scalars: pairs of parties add and subtract the same number.

A party adds a mask for every neighbour that comes after it and subtracts one for every neighbour
before it. Over all parties asked the masks cancel; any smaller sum is random to the coordinator,
also with the help of other parties, since a mask takes the key of one of its two parties.
"""

from __future__ import annotations

from hashlib import shake_256
from typing import Any

import numpy as np

from weft.crypto.ciphers.block_format import pad_id_of
from weft.crypto.identities import Identity, PublicIdentity, Secret
from weft.crypto.primitives.wide_integers import Limbs, unpacked
from weft.errors import ConfigError, ProtocolError
from weft.guards.terms import OPEN, Terms
from weft.protocol.message import SCALAR_BYTES
from weft.protocol.shared_fields import CARD, NONCE, LastingRing, Ring

_WIDTH = SCALAR_BYTES


class Masks:
    """A party's masks.

    Parameters
    ----------
    identity
        Its key pair.
    nonce
        Its own random bytes of this run, which every pair secret depends on: masks of two runs
        differ, whatever anybody else repeats.
    terms
        Over how many parties a sum must go.
    alone
        There is no other party in this run, so that a sum over one is all there is.
    """

    def __init__(
        self, identity: Identity, nonce: bytes, terms: Terms = OPEN, *, alone: bool = False
    ) -> None:
        self._identity = identity
        self._nonce = nonce
        self._terms = terms
        self._alone = alone
        self._pairs: dict[bytes, Secret] = {}

    def __reduce__(self) -> Any:
        raise TypeError("masks are not to be pickled: they hold keys")

    def sum(
        self, field: str, count: int, round_: int, ring: Ring | None, epoch: int, party: int
    ) -> Limbs:
        """What to add to ``count`` scalars of ``field`` in the answer to a request."""
        if ring is None:
            raise ProtocolError(f"a request for '{field}' does not say who shares the masks")
        peers, keys = ring.peers, ring.keys
        if party in peers.tolist():
            raise ProtocolError(f"a request for '{field}' names neighbours that are none")
        if len(keys) != CARD * len(peers):
            raise ProtocolError(f"a request for '{field}' names neighbours without their keys")
        if len(set(peers.tolist())) != len(peers):
            raise ProtocolError(f"a request for '{field}' names a neighbour twice")
        # Neighbours are everybody else, or as many as terms can ask for.
        if not self._alone and not self._terms.allows_scalars(len(peers) + 1):
            self._refuse(field, len(peers) + 1)
        name = f"request {pad_id_of(epoch, round_, 0)} {field}".encode()
        if isinstance(ring, LastingRing):
            name = f"context {ring.context} {field}".encode()
        streams = [
            shake_256(self._shared(keys[at : at + CARD]).reveal() + name).digest(_WIDTH * count)
            for at in range(0, len(keys), CARD)
        ]
        masks = unpacked(b"".join(streams)).reshape(len(streams), count, 3)
        signs = np.where(peers > party, 1, -1)
        total: Limbs = (masks * signs[:, None, None]).sum(axis=0)
        return total

    def _refuse(self, field: str, parties: int) -> None:
        own = "its own" if parties == 1 else "a sum of two"
        flag = "allow_lone_labels" if parties == 1 else "allow_pairs"
        raise ConfigError(
            f"this party refuses to tell '{field}' in a sum over so few parties that the "
            f"coordinator would read {own}; agree on {flag} = true, or let more bring labels"
        )

    def _shared(self, key: bytes) -> Secret:
        """The secret of a pair in this run, agreed upon once."""
        if key not in self._pairs:
            public, nonce = key[:-NONCE], key[-NONCE:]
            pair = self._identity.shared_with(PublicIdentity.from_bytes(public))
            both = b"".join(sorted((self._nonce, nonce)))
            self._pairs[key] = pair.derive("weft masks", both)
        return self._pairs[key]
