"""A number of samples that the parties add up, and that the coordinator cannot change.

Losses and feature sums are divided by the number of samples, and the noise of a private model
follows from it. Each party tells ``factor · count + share`` modulo 2^144. Factor and shares come
from a key that the coordinator lacks, so that what is told says nothing; their sum fits one total
only.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import shake_256
from hmac import compare_digest
from typing import TYPE_CHECKING

import numpy as np

from weft.crypto.primitives.scalars_modulo_2_144 import carried, number_bytes, packed, unpacked
from weft.matching.guard_facts_from_confirmed_lists import LyingView
from weft.protocol.declared_message_fields import SCALAR_BYTES, malformed

if TYPE_CHECKING:
    from weft.crypto.secret_bytes import Secret

_MODULUS = 1 << (8 * SCALAR_BYTES)


class CountCheck:
    """What all parties know of one count.

    Parameters
    ----------
    key
        Of this run, which the parties share and the coordinator lacks.
    what
        Sets the count apart from others under the key.
    parties
        How many there are.
    """

    def __init__(self, key: Secret, what: str, parties: int) -> None:
        secret = key.derive("weft count", what.encode()).reveal()
        drawn = shake_256(secret).digest(SCALAR_BYTES * (parties + 1))
        # An odd factor takes no two counts to the same number.
        self._factor = int.from_bytes(drawn[:SCALAR_BYTES], "big") | 1
        self._shares = unpacked(drawn[SCALAR_BYTES:])

    def __repr__(self) -> str:
        return "CountCheck()"

    def tell(self, party: int, count: int) -> int:
        """What a party tells of its own count, modulo 2^144."""
        share = int.from_bytes(packed(self._shares[party : party + 1]), "big")
        return (self._factor * count + share) % _MODULUS

    def insist(self, count: int, told: bytes) -> None:
        """Refuse a total that the parties' counts do not add up to."""
        expected = number_bytes(self._factor * count)
        total = carried(unpacked(expected) + self._shares.sum(axis=0, keepdims=True))
        if not compare_digest(packed(total), told):
            raise LyingView


def add_told(told: Iterable[bytes], field: str) -> bytes:
    """Coordinator: what all parties told, added up."""
    parts = list(told)
    if any(len(part) != SCALAR_BYTES for part in parts):
        raise malformed(field, "does not confirm how many samples there are")
    total = unpacked(b"".join(parts)).sum(axis=0, keepdims=True, dtype=np.int64)
    return packed(carried(total))
