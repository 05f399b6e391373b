"""The scalar sum: losses, conjugates, norms and counts, added over parties.

Every sample and every feature is counted by one named party. Values travel as integers of
128 bits (value · 2^80), so that the total does not depend on who answers first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from weft.channels.message import Message
from weft.errors import ProtocolError

_BITS = 80
_WIDTH = 16


def pack_scalars(*values: float) -> bytes:
    """A party's contribution to a sum of scalars."""
    parts = []
    for value in values:
        if not math.isfinite(value) or abs(value) >= 2.0**46:
            raise ProtocolError(
                "a sum of losses or norms is too large to be added exactly; scale the features "
                "(scaling = 'standard') or raise lambda"
            )
        parts.append(int(math.ldexp(value, _BITS)).to_bytes(_WIDTH, "big", signed=True))
    return b"".join(parts)


def add_scalars(replies: Mapping[str, Message], field: str, count: int) -> list[float]:
    """Totals of ``count`` scalars over all replies, each of which must carry ``field``."""
    totals = [0] * count
    for party, reply in replies.items():
        pack = reply.get(field)
        if not isinstance(pack, bytes) or len(pack) != count * _WIDTH:
            raise ProtocolError(
                f"party {party} sent a malformed field '{field}', or none; the run stops"
            )
        for i in range(count):
            totals[i] += int.from_bytes(pack[i * _WIDTH : (i + 1) * _WIDTH], "big", signed=True)
    return [total / 2**_BITS for total in totals]
