"""Whole numbers modulo 2^144: what a scalar is, and many of them in three limbs of 48 bits each.

A party has few scalars, which Python's whole numbers are quickest for. Limbs are kept in 64-bit
words, so that thousands of parties' numbers can be added limb by limb before anything is carried.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from weft.protocol.declared_message_fields import SCALAR_BYTES

#: (numbers × 3), the most significant limb first.
Limbs = NDArray[np.int64]

_LIMB = 48
_MASK = np.int64((1 << _LIMB) - 1)
#: Binary digits behind the point.
FRACTION = 80
_MODULUS = 1 << (8 * SCALAR_BYTES)


def whole_number(value: float) -> int:
    """value · 2^80, cut off towards zero; |value| must lie below 2^63."""
    return int(math.ldexp(value, FRACTION))


def number_bytes(number: int) -> bytes:
    """A number modulo 2^144 as it travels: 18 bytes, the most significant first."""
    return (number % _MODULUS).to_bytes(SCALAR_BYTES, "big")


def carried(limbs: Limbs) -> Limbs:
    """The same numbers with every limb between 0 and 2^48."""
    out = limbs.copy()
    for place in (2, 1):
        out[:, place - 1] += out[:, place] >> _LIMB
    out &= _MASK
    return out


def packed(limbs: Limbs) -> bytes:
    """18 bytes per number, the most significant first; limbs must be carried."""
    words = limbs.astype(">u8").view(np.uint8).reshape(-1, 3, 8)
    return words[:, :, 2:].tobytes()


def unpacked(data: bytes) -> Limbs:
    """The inverse of :func:`packed`."""
    words = np.zeros((len(data) // SCALAR_BYTES, 3, 8), np.uint8)
    words[:, :, 2:] = np.frombuffer(data, np.uint8).reshape(-1, 3, 6)
    return words.view(">u8")[:, :, 0].astype(np.int64)


def whole_numbers(limbs: Limbs) -> list[int]:
    """The numbers between 0 and 2^144."""
    return [(high << 96) | (middle << 48) | low for high, middle, low in carried(limbs).tolist()]


def floats_of(limbs: Limbs) -> list[float]:
    """The numbers nearest to zero that are these modulo 2^144, over 2^80, rounded once."""
    return [
        (number - _MODULUS if number >> 143 else number) / 2**FRACTION
        for number in whole_numbers(limbs)
    ]
