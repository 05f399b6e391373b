"""The scalar sum: losses, conjugates, norms and counts, added over parties.

Every sample and every feature is counted by one named party. Values travel as integers modulo
2^144 (value · 2^80) under masks that cancel in the sum over all parties that were asked, so that
the total does not depend on who answers first, and the coordinator reads nothing but totals.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from weft.crypto.ciphers.party_cipher import Cipher
from weft.crypto.primitives.scalars_modulo_2_144 import (
    floats_of,
    number_bytes,
    unpacked,
    whole_number,
)
from weft.crypto.scalar_mask_neighbours import Sharers
from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import SCALAR_BYTES, Message

#: So many parties may send values of up to 2^46 without a total that wraps: 2^17 · 2^46 = 2^63.
_LARGEST = 2.0**46


def over_labelled(cipher: Cipher) -> Sharers | None:
    """For sums over all parties that have labels."""
    return None if cipher.masks is None else cipher.masks.labelled()


def over_attending(
    cipher: Cipher, bits: NDArray[np.uint8] | None, *, harmless: bool = False
) -> Sharers | None:
    """For sums over those who are there, as far as terms allow them (`Masks.attending`)."""
    return None if cipher.masks is None else cipher.masks.attending(bits, harmless=harmless)


def pack_scalars(cipher: Cipher, field: str, *values: float, over: Sharers | None = None) -> bytes:
    """A party's contribution to the sums of ``field``, in its answer to a request.

    ``over`` says over whom the sums go; None: everyone.
    """
    return pack_numbers(cipher, field, _whole_numbers(values), over)


def clear_scalars(*values: float) -> bytes:
    """The same where nothing hides it, and no request asks for it."""
    return b"".join([number_bytes(number) for number in _whole_numbers(values)])


def _whole_numbers(values: Sequence[float]) -> list[int]:
    for value in values:
        # Nor is what is no number between two numbers.
        if not -_LARGEST < value < _LARGEST:
            raise ProtocolError(
                "a sum of losses or norms is too large to be added exactly; scale the features "
                "(scaling = 'standard') or raise lambda"
            )
    return [whole_number(value) for value in values]


def pack_numbers(
    cipher: Cipher, field: str, numbers: Sequence[int], over: Sharers | None = None
) -> bytes:
    """The same for whole numbers modulo 2^144."""
    with cipher.cost.timed():
        masks, question = cipher.masks, cipher.question(field)
        if masks is not None:
            hidden = masks.sum(question, over or masks.everyone(), len(numbers))
            if hidden is None:
                raise ProtocolError(f"a request wants '{field}' in a sum without this party")
            numbers = [number + mask for number, mask in zip(numbers, hidden, strict=True)]
        pack = b"".join([number_bytes(number) for number in numbers])
    cipher.answer_once(question, pack)
    cipher.cost.bytes += len(pack)
    return pack


def add_scalars(
    replies: Mapping[str, Message], field: str, count: int, asked: Collection[str]
) -> list[float] | None:
    """Totals of ``count`` scalars over all parties that were asked.

    None when somebody did not answer: the masks of the others do not cancel then, and the
    values are given up.
    """
    packs = []
    for party, reply in replies.items():
        pack = getattr(reply, field)
        if pack is None or len(pack) != count * SCALAR_BYTES:
            raise ProtocolError(
                f"party {party} sent a malformed field '{field}', or none; the run stops"
            )
        packs.append(pack)
    if len(replies) < len(asked):
        return None
    return floats_of(unpacked(b"".join(packs)).reshape(len(packs), count, 3).sum(axis=0))
