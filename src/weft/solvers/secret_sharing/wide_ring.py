"""Numbers modulo 2^128, many at once: two 64-bit words each, the lower one first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.crypto.primitives.seeded_words import Words
from weft.numba_options import OUTER

#: (… × 2) words.
Wide = NDArray[np.uint64]

_HALF, _LOW = np.uint64(32), np.uint64((1 << 32) - 1)


def widened(words: Words) -> Wide:
    """Words as numbers modulo 2^128."""
    wide: Wide = np.zeros((*words.shape, 2), np.uint64)
    wide[..., 0] = words
    return wide


def wide_of(numbers: list[int]) -> Wide:
    """Whole numbers of any size, one by one."""
    mask = (1 << 64) - 1
    pairs = [(n & mask, (n >> 64) & mask) for n in numbers]
    return np.array(pairs, np.uint64).reshape(len(numbers), 2)


def wide_of_signed(numbers: NDArray[np.int64]) -> Wide:
    """Whole numbers of 64 bits."""
    wide = widened(numbers.view(np.uint64))
    wide[..., 1] = (numbers >> 63).view(np.uint64)
    return wide


def numbers_of(wide: Wide) -> list[int]:
    """Back to whole numbers, those nearest to zero."""
    found = []
    for low, high in wide.reshape(-1, 2).tolist():
        number = low | high << 64
        found.append(number - (1 << 128) if high >> 63 else number)
    return found


def plus(a: Wide, b: Wide) -> Wide:
    """a + b."""
    return _by_entry(_plus, a, b)


def minus(a: Wide, b: Wide) -> Wide:
    """a − b."""
    return _by_entry(_minus, a, b)


def spread(wide: Wide) -> Words:
    """As three words that may be added up modulo 2^64 for up to 2^32 parties, see `gathered`."""
    return np.stack([wide[..., 0] & _LOW, wide[..., 0] >> _HALF, wide[..., 1]])


def gathered(words: Words) -> Wide:
    """The total of numbers that were spread."""
    low, middle, high = words
    shifted = np.stack([middle << _HALF, middle >> _HALF], axis=-1)
    return plus(plus(widened(low), shifted), np.stack([np.zeros_like(high), high], axis=-1))


def shifted_down(wide: Wide, bits: int) -> Words:
    """⌊x / 2^bits⌋ modulo 2^64, for 0 < bits < 64."""
    down, up = np.uint64(bits), np.uint64(64 - bits)
    found: Words = (wide[..., 0] >> down) | (wide[..., 1] << up)
    return found


def times(a: Wide, b: Wide) -> Wide:
    """a · b, entry by entry."""
    return _by_entry(_times, a, b)


def inner(a: Wide, b: Wide) -> Wide:
    """Σ a · b over the last axis of numbers."""
    return summed(times(a, b))


def summed(wide: Wide) -> Wide:
    """The sum over the last axis of numbers."""
    found: Wide = _summed(_plain(wide).reshape(-1, wide.shape[-2], 2))
    return found.reshape(*wide.shape[:-2], 2)


def _by_entry(kernel: Callable[[Wide, Wide], Wide], a: Wide, b: Wide) -> Wide:
    """Compiled loops: there are few numbers, and many calls."""
    if a.shape != b.shape:
        shape = np.broadcast_shapes(a.shape, b.shape)
        a, b = np.broadcast_to(a, shape), np.broadcast_to(b, shape)
    return kernel(_plain(a).reshape(-1, 2), _plain(b).reshape(-1, 2)).reshape(a.shape)


def _plain(wide: Wide) -> Wide:
    """In order and writable, which what comes in a message is not: loops are compiled once."""
    ordered = np.ascontiguousarray(wide)
    return ordered if ordered.flags.writeable else ordered.copy()


@numba.njit(cache=True, inline="always")
def _product(a0: Any, a1: Any, b0: Any, b1: Any) -> Any:
    """(a0 + 2^64 a1)(b0 + 2^64 b1) modulo 2^128."""
    x0, x1, y0, y1 = a0 & _LOW, a0 >> _HALF, b0 & _LOW, b0 >> _HALF
    low, cross, other, high = x0 * y0, x1 * y0, x0 * y1, x1 * y1
    middle = (low >> _HALF) + (cross & _LOW) + (other & _LOW)
    carried = high + (cross >> _HALF) + (other >> _HALF) + (middle >> _HALF)
    return a0 * b0, carried + a0 * b1 + a1 * b0


@numba.njit(**OUTER)
def _plus(a: Any, b: Any) -> Any:
    out = np.empty_like(a)
    for i in range(a.shape[0]):
        low = a[i, 0] + b[i, 0]
        out[i, 0], out[i, 1] = low, a[i, 1] + b[i, 1] + np.uint64(low < a[i, 0])
    return out


@numba.njit(**OUTER)
def _minus(a: Any, b: Any) -> Any:
    out = np.empty_like(a)
    for i in range(a.shape[0]):
        borrow = np.uint64(a[i, 0] < b[i, 0])
        out[i, 0], out[i, 1] = a[i, 0] - b[i, 0], a[i, 1] - b[i, 1] - borrow
    return out


@numba.njit(**OUTER)
def _times(a: Any, b: Any) -> Any:
    out = np.empty_like(a)
    for i in range(a.shape[0]):
        out[i, 0], out[i, 1] = _product(a[i, 0], a[i, 1], b[i, 0], b[i, 1])
    return out


@numba.njit(**OUTER)
def _summed(numbers: Any) -> Any:
    out = np.zeros((numbers.shape[0], 2), np.uint64)
    for r in range(numbers.shape[0]):
        for i in range(numbers.shape[1]):
            before = out[r, 0]
            out[r, 0] += numbers[r, i, 0]
            out[r, 1] += numbers[r, i, 1] + np.uint64(out[r, 0] < before)
    return out
