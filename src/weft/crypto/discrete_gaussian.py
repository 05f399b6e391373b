"""Integers of the discrete normal distribution, drawn exactly.

P(x) is proportional to exp(−x²/2σ²) over all integers x. A normal number of floats that is rounded
has another distribution, by which tables can be told apart in principle (Mironov 2012); here every
decision is a comparison of whole numbers (Canonne, Kamath and Steinke 2020, algorithms 1 to 3).
How long a draw takes depends on what is drawn, so nobody should time single draws.
"""

from __future__ import annotations

import math
from hashlib import shake_256

import numpy as np
from numpy.typing import NDArray

#: Bytes that are hashed at a time.
_CHUNK = 1 << 14


class SecretIntegers:
    """Integers that follow from secret bytes, and from nothing else."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._chunks = 0
        self._bytes = b""
        self._at = 0

    def below(self, most: int) -> int:
        """One of 0 … most − 1, each as likely."""
        bits = (most - 1).bit_length()
        length = (bits + 7) // 8
        while True:
            found = int.from_bytes(self._take(length), "little") >> (8 * length - bits)
            if found < most:
                return found

    def _take(self, length: int) -> bytes:
        if self._at + length > len(self._bytes):
            said = b"weft noise " + self._seed + self._chunks.to_bytes(8, "little")
            self._bytes, self._at = shake_256(said).digest(_CHUNK), 0
            self._chunks += 1
        self._at += length
        return self._bytes[self._at - length : self._at]

    def happens(self, over: int, under: int) -> bool:
        """True with probability exp(−over/under)."""
        while over > under:
            if not self._happens_within_one(1, 1):
                return False
            over -= under
        return self._happens_within_one(over, under)

    def _happens_within_one(self, over: int, under: int) -> bool:
        """The same for over ≤ under: the first k with no success is odd with that probability."""
        k = 1
        while self.below(under * k) < over:
            k += 1
        return k % 2 == 1

    def laplace(self, scale: int) -> int:
        """An integer x with probability proportional to exp(−|x|/scale)."""
        while True:
            rest = self.below(scale)
            if not self.happens(rest, scale):
                continue
            whole = 0
            while self.happens(1, 1):
                whole += 1
            size = rest + scale * whole
            if self.below(2):
                return size
            if size:
                return -size

    def gaussian(self, variance: int) -> int:
        """An integer x with probability proportional to exp(−x²/(2 variance))."""
        scale = math.isqrt(variance) + 1
        while True:
            found = self.laplace(scale)
            distance = abs(found) * scale - variance
            if self.happens(distance * distance, 2 * variance * scale * scale):
                return found


def discrete_gaussian(seed: bytes, variance: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Independent integers of a variance; one of zero gives zeros."""
    if not variance:
        return np.zeros(shape, np.int64)
    draw = SecretIntegers(seed).gaussian
    count = math.prod(shape)
    return np.fromiter((draw(variance) for _ in range(count)), np.int64, count).reshape(shape)
