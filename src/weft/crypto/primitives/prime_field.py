"""Numbers modulo the prime 2^61 − 1, inside compiled loops."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

#: Tags are numbers below this prime.
PRIME = (1 << 61) - 1

_P = np.uint64(PRIME)
_LOW32 = np.uint64((1 << 32) - 1)
_LOW29 = np.uint64((1 << 29) - 1)
_U3, _U29, _U32, _U61 = (np.uint64(n) for n in (3, 29, 32, 61))
_ZERO = np.uint64(0)


@numba.njit(cache=True, inline="always")
def reduced(x: Any) -> Any:
    """A 64-bit number modulo the prime."""
    x = (x & _P) + (x >> _U61)
    return x - _P if x >= _P else x


@numba.njit(cache=True)
def multiply(a: Any, b: Any) -> Any:
    """a·b modulo the prime, for numbers below it: there, 2^61 is 1 and 2^64 is 8."""
    a0, a1, b0, b1 = a & _LOW32, a >> _U32, b & _LOW32, b >> _U32
    low, middle, high = a0 * b0, a1 * b0 + a0 * b1, a1 * b1
    total = (high << _U3) + (middle >> _U29) + ((middle & _LOW29) << _U32)
    return reduced(reduced(total) + reduced(low))


@numba.njit(cache=True, inline="always")
def in_field(value: Any) -> Any:
    """A signed number modulo the prime."""
    if value < 0:
        return reduced(_P - reduced(_ZERO - np.uint64(value)))
    return reduced(np.uint64(value))


@numba.njit(cache=True)
def add_modulo(totals: Any, slots: Any, numbers: Any) -> None:
    """totals[slots[r]] += numbers[r] modulo the prime; a slot may come repeatedly."""
    for r in range(slots.shape[0]):
        totals[slots[r]] = reduced(totals[slots[r]] + reduced(numbers[r]))
