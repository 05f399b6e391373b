"""Sines and cosines of masked numbers, the same bits on every machine.

sin(ωz) = sin(ωc) cos(ωu) − cos(ωc) sin(ωu) for c = z + u modulo 2^64, if ω is a whole multiple κ of
2π/2^64. All parties must round the factors from c alike, or their shares do not fit together. So
sine and cosine are polynomials in plain sums and products, whose bits IEEE 754 fixes, and rounding
is dithered by a number that all know: floor(x + d) with d even in [0, 1) is right on average.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

_QUARTER = np.uint64(62)
_EIGHTH = np.uint64(1 << 61)
_ANGLE = 2.0 * np.pi / 2.0**64
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S16, _S27, _S30, _S31, _S32, _S48 = (np.uint64(n) for n in (16, 27, 30, 31, 32, 48))
_DITHER_MASK, _DITHER = np.uint64(0xFFFF), 2.0**-16
_ONE, _TWO = np.uint64(1), np.uint64(2)


@numba.njit(cache=True, inline="always")
def sine_cosine(phase: Any) -> Any:
    """sin and cos of 2π·phase/2^64, to 1e-14."""
    quarter = (phase + _EIGHTH) >> _QUARTER
    x = np.float64(np.int64(phase - (quarter << _QUARTER))) * _ANGLE
    y = x * x
    s = 1.0 / 6227020800.0
    s = s * y - 1.0 / 39916800.0
    s = s * y + 1.0 / 362880.0
    s = s * y - 1.0 / 5040.0
    s = s * y + 1.0 / 120.0
    s = s * y - 1.0 / 6.0
    s = x + x * y * s
    c = -1.0 / 87178291200.0
    c = c * y + 1.0 / 479001600.0
    c = c * y - 1.0 / 3628800.0
    c = c * y + 1.0 / 40320.0
    c = c * y - 1.0 / 720.0
    c = c * y + 1.0 / 24.0
    c = c * y - 0.5
    c = 1.0 + y * c
    # Without branches, so that several are computed at once.
    swap = quarter & _ONE != 0
    sine, cosine = c if swap else s, s if swap else c
    sine *= 1.0 - np.float64(np.int64(quarter & _TWO))
    cosine *= 1.0 - np.float64(np.int64((quarter + _ONE) & _TWO))
    return sine, cosine


@numba.njit(cache=True, inline="always")
def mixed(number: Any) -> Any:
    """64 bits that look random (splitmix64): four dithers of 16 bits."""
    x = number * _GOLDEN
    x = (x ^ (x >> _S30)) * _MIX1
    x = (x ^ (x >> _S27)) * _MIX2
    return x ^ (x >> _S31)


@numba.njit(cache=True, inline="always")
def dithered(value: Any, dither: Any) -> Any:
    """A whole number that is right on average, modulo 2^64."""
    return np.uint64(
        np.int64(np.floor(value + np.float64(np.int64(dither & _DITHER_MASK)) * _DITHER))
    )


@numba.njit(cache=True)
def add_dealt(masks: Any, multiples: Any, bits: int, seed: Any, cosines: Any, sines: Any) -> None:
    """Add cos and sin of κ·u, in fixed point and dithered, to (numbers × terms) words."""
    scale, terms = 2.0**bits, len(multiples)
    for i in range(len(masks)):
        for k in range(terms):
            s, c = sine_cosine(masks[i] * multiples[k])
            dither = mixed(seed + np.uint64(i * terms + k))
            cosines[i, k] += dithered(c * scale, dither)
            sines[i, k] += dithered(s * scale, dither >> _S16)


@numba.njit(cache=True)
def combine_dealt(
    opened: Any,
    multiples: Any,
    odd: Any,
    even: Any,
    seed: Any,
    cosines: Any,
    sines: Any,
    apart: Any,
    out: Any,
) -> Any:
    """A party's share of Σ_k odd_k sin(κ_k z) for every number, and of the totals of even terms.

    ``odd`` and ``even`` are in fixed point already; returns shares of ΣΣ even_k cos(κ_k z), over
    all numbers but those ``apart``, and over these.
    """
    others, aside, terms = np.uint64(0), np.uint64(0), len(multiples)
    sine, cosine = np.empty(terms), np.empty(terms)
    # One of the two is often all zeros, which are zero dithered too.
    some_odd, some_even = np.any(odd != 0.0), np.any(even != 0.0)
    for i in range(len(opened)):
        # Apart from the rest, several at once.
        for k in range(terms):
            sine[k], cosine[k] = sine_cosine(opened[i] * multiples[k])
        share, total, first = np.uint64(0), np.uint64(0), seed + np.uint64(i * terms)
        if some_odd:
            for k in range(terms):
                dither = mixed(first + np.uint64(k))
                share += dithered(odd[k] * sine[k], dither) * cosines[i, k]
                share -= dithered(odd[k] * cosine[k], dither >> _S16) * sines[i, k]
        if some_even:
            for k in range(terms):
                dither = mixed(first + np.uint64(k))
                total += dithered(even[k] * cosine[k], dither >> _S32) * cosines[i, k]
                total += dithered(even[k] * sine[k], dither >> _S48) * sines[i, k]
        out[i] += share
        if apart[i]:
            aside += total
        else:
            others += total
    return others, aside
