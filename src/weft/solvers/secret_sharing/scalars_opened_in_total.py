"""Shares of single numbers that the coordinator may read in total: losses, products, alarms.

They travel as other sums of scalars do, modulo 2^144 under masks between pairs of parties. A share
stands in the highest bits, so that its total wraps as shares do, and nothing is seen of how often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.array_types import Floats
from weft.crypto import Cipher
from weft.crypto.primitives.scalars_modulo_2_144 import carried, unpacked
from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import SCALAR_BYTES, Message
from weft.solvers.secret_sharing.table_product_kernels import signed
from weft.sums.scalar_sums import pack_numbers

_BITS = 8 * SCALAR_BYTES


def pack_shares(cipher: Cipher, field: str, shares: list[int], bits: int) -> bytes:
    """A party's shares, modulo 2^bits."""
    return pack_numbers(cipher, field, [share << (_BITS - bits) for share in shares])


def add_shares(replies: Mapping[str, Message], field: str, count: int, bits: int) -> list[int]:
    """The numbers that all parties' shares add up to, those nearest to zero."""
    packs = []
    for party, reply in replies.items():
        pack = getattr(reply, field)
        if pack is None or len(pack) != count * SCALAR_BYTES:
            raise ProtocolError(f"party {party} sent a malformed field '{field}'; the run stops")
        packs.append(pack)
    total = carried(unpacked(b"".join(packs)).reshape(len(packs), count, 3).sum(axis=0))
    found = []
    for high, middle, low in total.tolist():
        number = (high << 96) | (middle << 48) | low
        found.append(signed(number >> (_BITS - bits), bits))
    return found


@dataclass(frozen=True)
class Told:
    """What slopes come with, per problem; zero where nothing was asked for.

    Attributes
    ----------
    losses, held
        Sums of log 2cosh(z/2) over samples trained on, and left out, in parts of all samples.
    alarms
        Sums of eighth powers over all rows.
    """

    losses: Floats
    held: Floats
    alarms: Floats
