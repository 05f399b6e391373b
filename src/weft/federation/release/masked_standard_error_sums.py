"""Sums for standard errors as they travel: exact, and hidden until all parties' are added.

A number is taken as x · 2^64, a whole one of 128 bits, in three words: its lower two quarters
of 32 bits, and its upper half. Words are added modulo 2^64, one by one; sums of up to 2^32 quarters
have room in a word, so that the number of all parties follows from the words of all. Over each word
lies the sum of masks that a party shares with each other one: they cancel in the total, and any
smaller sum is uniform.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.array_types import Floats
from weft.crypto.primitives.seeded_words import Words
from weft.crypto.scalar_masks import Masks
from weft.errors import ProtocolError
from weft.federation.messages import StatisticsShare
from weft.protocol.declared_message_fields import malformed
from weft.solvers.secret_sharing.wide_ring import gathered, minus, spread

#: Words of a number.
LIMBS = 3
#: So many parties may send numbers of up to 2^46 without a total that wraps.
_LARGEST = 2.0**46
_UNIT = 2.0**64


def masked_words(values: Floats, masks: object, label: str) -> Words:
    """A party's numbers as words, under its masks; without any under a cipher that hides nothing.

    ``label`` names what is told; whoever tells two things under one name shows their difference.
    """
    if not np.isfinite(values).all() or np.abs(values).max(initial=0.0) >= _LARGEST:
        raise ProtocolError(
            "sums for standard errors are too large to be added exactly; scale the features "
            "(scaling = 'standard')"
        )
    words = spread(_wide(values))
    return words + masks.words(label, *words.shape) if isinstance(masks, Masks) else words


def opened(shares: Sequence[StatisticsShare]) -> Floats:
    """The totals of all parties' numbers."""
    first = shares[0].words
    if first.ndim != 2 or len(first) != LIMBS or any(s.words.shape != first.shape for s in shares):
        raise malformed("words", "are not there from every party")
    total = np.zeros_like(first)
    for share in shares:
        total = total + share.words
    wide = gathered(total)
    below = wide[..., 1] >> np.uint64(63) > 0
    size = np.where(below[..., None], minus(np.zeros_like(wide), wide), wide)
    values: Floats = size[..., 1].astype(np.float64) + size[..., 0] / _UNIT
    return np.where(below, -values, values)


def _wide(values: Floats) -> Words:
    """x · 2^64 modulo 2^128, cut towards zero, the lower word first."""
    size = np.abs(values)
    whole = np.floor(size)
    low = ((size - whole) * _UNIT).astype(np.uint64)
    wide = np.stack([low, whole.astype(np.uint64)], axis=-1)
    return np.where((values < 0)[..., None], minus(np.zeros_like(wide), wide), wide)
