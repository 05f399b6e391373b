"""Numbers modulo the prime 2^61 − 1, inside compiled loops."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from weft.numba_options import OUTER

#: Tags are numbers below this prime.
PRIME = (1 << 61) - 1

_P = np.uint64(PRIME)
_LOW32 = np.uint64((1 << 32) - 1)
_LOW29 = np.uint64((1 << 29) - 1)
_U3, _U29, _U32, _U61, _U63 = (np.uint64(n) for n in (3, 29, 32, 61, 63))
_ZERO = np.uint64(0)


@numba.njit(cache=True, inline="always")
def reduced(x: Any) -> Any:
    """A 64-bit number modulo the prime."""
    x = (x & _P) + (x >> _U61)
    return x - _P if x >= _P else x


@numba.njit(**OUTER)
def multiply(a: Any, b: Any) -> Any:
    """a·b modulo the prime, for numbers below it: there, 2^61 is 1 and 2^64 is 8."""
    a0, a1, b0, b1 = a & _LOW32, a >> _U32, b & _LOW32, b >> _U32
    low, middle, high = a0 * b0, a1 * b0 + a0 * b1, a1 * b1
    total = (high << _U3) + (middle >> _U29) + ((middle & _LOW29) << _U32)
    return reduced(reduced(total) + reduced(low))


@intrinsic
def add_product(_: Any, high: Any, low: Any, factor: Any, value: Any) -> Any:
    """A signed sum of 128 bits, in two halves, plus an unsigned factor times a signed value.

    It holds 2^16 products of factors below the prime and values within ±2^50.
    """
    halves: Any = types.Tuple((types.int64, types.uint64))  # type: ignore[no-untyped-call]

    def generate(context: Any, builder: Any, _: Any, given: Any) -> Any:
        wide, word = ir.IntType(128), ir.IntType(64)
        shift = ir.Constant(wide, 64)
        total = builder.shl(builder.zext(given[0], wide), shift)
        total = builder.or_(total, builder.zext(given[1], wide))
        product = builder.mul(builder.zext(given[2], wide), builder.sext(given[3], wide))
        total = builder.add(total, product)
        parts = [builder.trunc(builder.lshr(total, shift), word), builder.trunc(total, word)]
        return context.make_tuple(builder, halves, parts)

    return halves(types.int64, types.uint64, types.uint64, types.int64), generate


@numba.njit(cache=True, inline="always")
def in_field(value: Any) -> Any:
    """A signed number modulo the prime, without a branch: signs cannot be foreseen."""
    number = np.uint64(value)
    # A negative number stands 2^64 higher, which is 8 modulo the prime.
    return reduced(reduced(number) + _P - ((number >> _U63) << _U3))


@numba.njit(cache=True, inline="always")
def from_halves(high: Any, low: Any) -> Any:
    """A signed number of 128 bits modulo the prime."""
    # 2^64 is 8 modulo the prime.
    return reduced(reduced(in_field(high) << _U3) + reduced(low))


@numba.njit(**OUTER)
def add_modulo(totals: Any, slots: Any, numbers: Any) -> None:
    """totals[slots[r]] += numbers[r] modulo the prime; a slot may come repeatedly."""
    for r in range(slots.shape[0]):
        totals[slots[r]] = reduced(totals[slots[r]] + reduced(numbers[r]))
