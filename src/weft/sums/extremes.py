"""Maxima from sums: the largest value over all parties, digit by digit.

A float64 has 64 bits that sort like the number. Four bits at a time, each party says for which
of the fifteen digits it has a value at least that large, given the digits known so far; where
the sum is above zero, somebody has. Sixteen sums give the exact maximum, and nobody learns more
than how many parties reach a digit.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Keys = NDArray[np.uint64]

ROUNDS = 16
_DIGITS = np.arange(1, 16, dtype=np.uint64)
_SIGN = np.uint64(1 << 63)


def keys_of(values: Floats) -> Keys:
    """Integers that sort like the values."""
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    return cast(Keys, np.where(bits & _SIGN, ~bits, bits | _SIGN))


def values_of(keys: Keys) -> Floats:
    """The inverse of :func:`keys_of`."""
    bits = np.where(keys & _SIGN, keys & ~_SIGN, ~keys)
    return cast(Floats, np.ascontiguousarray(bits).view(np.float64))


def reached(keys: Keys, prefix: Keys, round_: int) -> Floats:
    """For each key, 15 flags: does it reach prefix · digit in this round?"""
    shift = np.uint64(60 - 4 * round_)
    candidates = prefix[:, None] | (_DIGITS << shift)
    return (keys[:, None] >= candidates).astype(np.float64)


def extend(prefix: Keys, totals: Floats, round_: int) -> Keys:
    """The prefix with the next digit: the largest one that somebody reached."""
    digit = (totals > 0.5).sum(axis=1).astype(np.uint64)
    return cast(Keys, prefix | (digit << np.uint64(60 - 4 * round_)))
