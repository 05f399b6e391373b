"""Sines and cosines of masked numbers, the same bits on every machine.

sin(ωz) = sin(ωc) cos(ωu) − cos(ωc) sin(ωu) for c = z + u modulo 2^64, if ω is a whole multiple κ of
2π/2^64. All parties must round the factors from c alike, or their shares do not fit together. So
sine and cosine are polynomials in plain sums and products, whose bits IEEE 754 fixes, and rounding
is dithered by a number that all know: floor(x + d) with d even in [0, 1) is right on average.

Numbers are worked on in blocks, so that what is dealt for one is used before it leaves the cache.
What is dealt for a block are the cosines of all its numbers, term by term, and then the sines.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from weft.numba_options import INNER, OUTER

#: Numbers in a block.
BLOCK = 2048
#: How far sines and cosines are off at most.
SINE_ERROR = 1e-11
#: Numbers that are rounded must be smaller.
MOST_ROUNDED = 2.0**50

_QUARTER, _EIGHTH = np.uint64(62), np.uint64(1 << 61)
_ANGLE = 2.0 * np.pi / 2.0**64
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S27, _S29, _S30, _S31, _S32 = (np.uint64(n) for n in (27, 29, 30, 31, 32))
_ONE, _SIGN = np.uint64(1), np.uint64(1 << 63)
#: Shifts that bring one of four dithers of 16 bits to the highest digits of a float.
_DITHER1, _DITHER2, _DITHER3, _DITHER4 = (np.uint64(n) for n in (36, 20, 4, 12))
_DITHER, _FLOAT_ONE = np.uint64(0xFFFF << 36), np.uint64(0x3FF << 52)
#: Added to a float, it leaves no digits behind the point, and the rest as a whole number.
_WHOLE = 1.5 * 2.0**52
_WHOLE_BITS = np.float64(_WHOLE).view(np.uint64)


def blocks_of(count: int) -> list[slice]:
    """So many numbers in blocks."""
    return [slice(begin, min(begin + BLOCK, count)) for begin in range(0, count, BLOCK)]


@numba.njit(**INNER)
def _bits_of(value: Any) -> Any:
    return np.float64(value).view(np.uint64)


@numba.njit(**INNER)
def _float_of(bits: Any) -> Any:
    return np.uint64(bits).view(np.float64)


@numba.njit(**OUTER)
def sine_cosine(phase: Any) -> Any:
    """sin and cos of 2π·phase/2^64, to `SINE_ERROR`."""
    quarter = (phase + _EIGHTH) >> _QUARTER
    x = np.float64(np.int64(phase - (quarter << _QUARTER))) * _ANGLE
    y = x * x
    s = -1.0 / 39916800.0
    s = s * y + 1.0 / 362880.0
    s = s * y - 1.0 / 5040.0
    s = s * y + 1.0 / 120.0
    s = s * y - 1.0 / 6.0
    s = x + x * y * s
    c = 1.0 / 479001600.0
    c = c * y - 1.0 / 3628800.0
    c = c * y + 1.0 / 40320.0
    c = c * y - 1.0 / 720.0
    c = c * y + 1.0 / 24.0
    c = c * y - 0.5
    c = 1.0 + y * c
    # Without branches, so that several are computed at once.
    swap = quarter & _ONE != 0
    sine, cosine = _bits_of(c if swap else s), _bits_of(s if swap else c)
    sine ^= (quarter << _QUARTER) & _SIGN
    cosine ^= ((quarter + _ONE) << _QUARTER) & _SIGN
    return _float_of(sine), _float_of(cosine)


@numba.njit(**OUTER)
def mixed(number: Any) -> Any:
    """64 bits that look random (splitmix64)."""
    x = number * _GOLDEN
    x = (x ^ (x >> _S30)) * _MIX1
    x = (x ^ (x >> _S27)) * _MIX2
    return x ^ (x >> _S31)


@numba.njit(**INNER)
def _dithers(of_number: Any, of_term: Any) -> Any:
    """Four dithers of 16 bits, from what is mixed already."""
    x = of_number ^ of_term
    x = (x ^ (x >> _S32)) * _MIX1
    return x ^ (x >> _S29)


@numba.njit(**INNER)
def _dithered(value: Any, dither: Any) -> Any:
    """⌊value + d⌋, modulo 2^64: a whole number that is right on average."""
    d = _float_of((dither & _DITHER) | _FLOAT_ONE)
    return _bits_of(value - 1.5 + d + _WHOLE) - _WHOLE_BITS


@numba.njit(**INNER)
def _mixed_numbers(seed: Any, count: int) -> Any:
    found = np.empty(count, np.uint64)
    for i in range(count):
        found[i] = mixed(seed + np.uint64(i))
    return found


@numba.njit(**OUTER)
def less_dealt(masks: Any, multiples: Any, scale: float, seed: Any, words: Any) -> None:
    """Replace a block's words by cosines and sines of κ·u, in fixed point, less them."""
    count, terms = len(masks), len(multiples)
    numbers = _mixed_numbers(seed, count)
    for k in range(terms):
        multiple, term = multiples[k], mixed(np.uint64(k))
        cosines = words[k * count : (k + 1) * count]
        sines = words[(terms + k) * count : (terms + k + 1) * count]
        for i in range(count):
            s, c = sine_cosine(masks[i] * multiple)
            dither = _dithers(numbers[i], term)
            cosines[i] = _dithered(c * scale, dither << _DITHER1) - cosines[i]
            sines[i] = _dithered(s * scale, dither << _DITHER2) - sines[i]


@numba.njit(**OUTER)
def add_waves(
    opened: Any,
    multiples: Any,
    odd: Any,
    even: Any,
    seed: Any,
    words: Any,
    odds: Any,
    evens: Any,
) -> None:
    """Add a party's shares of Σ_k odd_k sin(κ_k z) and Σ_k even_k cos(κ_k z), number by number.

    Factors are in fixed point already, ``words`` what is dealt for this block.
    """
    count, terms = len(opened), len(multiples)
    numbers = _mixed_numbers(seed, count)
    sine, cosine = np.empty(count), np.empty(count)
    for k in range(terms):
        multiple, term, a, b = multiples[k], mixed(np.uint64(k)), odd[k], even[k]
        cosines = words[k * count : (k + 1) * count]
        sines = words[(terms + k) * count : (terms + k + 1) * count]
        # Apart from the rest: together they take more registers than there are.
        for i in range(count):
            sine[i], cosine[i] = sine_cosine(opened[i] * multiple)
        for i in range(count):
            dither = _dithers(numbers[i], term)
            odds[i] += (
                _dithered(a * sine[i], dither << _DITHER1) * cosines[i]
                - _dithered(a * cosine[i], dither << _DITHER2) * sines[i]
            )
            evens[i] += (
                _dithered(b * cosine[i], dither << _DITHER3) * cosines[i]
                + _dithered(b * sine[i], dither >> _DITHER4) * sines[i]
            )


@numba.njit(**OUTER)
def add_cosines(opened: Any, multiples: Any, even: Any, seed: Any, words: Any, evens: Any) -> None:
    """The even half of `add_waves`."""
    count, terms = len(opened), len(multiples)
    numbers = _mixed_numbers(seed, count)
    for k in range(terms):
        multiple, term, b = multiples[k], mixed(np.uint64(k)), even[k]
        cosines = words[k * count : (k + 1) * count]
        sines = words[(terms + k) * count : (terms + k + 1) * count]
        for i in range(count):
            s, c = sine_cosine(opened[i] * multiple)
            dither = _dithers(numbers[i], term)
            evens[i] += (
                _dithered(b * c, dither << _DITHER3) * cosines[i]
                + _dithered(b * s, dither >> _DITHER4) * sines[i]
            )
