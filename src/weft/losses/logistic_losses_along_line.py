"""Sums of logistic losses at many mixtures of two points, in machine code.

log(1 + e^{−m}) = max(0, −m) + log(1 + e^{−|m|}), of which the second part is
made of additions and products alone, so that the compiler does several samples at once; both series
end where the next term is below the last bit, and tiny losses keep all of their digits.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from weft.numba_options import INNER, OUTER

#: Samples that stay in the processor's nearest cache while all steps are tried on them.
_BAND = 512
#: Adding and taking off 1.5·2^52 rounds to a whole number, which the lowest bits of the sum hold.
_ROUND = 6755399441055744.0
_PER_LOG2 = 1.4426950408889634
#: log 2 in two parts: products of the first and whole numbers up to 2^20 are exact.
_LOG2_HIGH, _LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
#: Beyond this margin a loss is below 1e-304.
_LARGEST = 700.0
_EXPONENT = np.int64(52)


@numba.njit(**INNER, fastmath={"contract", "nsz"})
def _take_powers(
    a: Any, b: Any, here: float, there: float, count: int, margin: Any, power: Any, rest: Any
) -> None:
    """margin = here·a + there·b; e^{−|margin|} is rest · 2^power, power in the bits of its sum."""
    for i in range(count):
        m = here * a[i] + there * b[i]
        margin[i] = m
        x = -min(abs(m), _LARGEST)
        rounded = x * _PER_LOG2 + _ROUND
        power[i] = rounded
        whole = rounded - _ROUND
        r = (x - whole * _LOG2_HIGH) - whole * _LOG2_LOW
        # Taylor, |r| ≤ log(2)/2.
        p = 1 / 479001600
        p = p * r + 1 / 39916800
        p = p * r + 1 / 3628800
        p = p * r + 1 / 362880
        p = p * r + 1 / 40320
        p = p * r + 1 / 5040
        p = p * r + 1 / 720
        p = p * r + 1 / 120
        p = p * r + 1 / 24
        p = p * r + 1 / 6
        p = p * r + 1 / 2
        p = p * r + 1
        rest[i] = p * r + 1


@numba.njit(**INNER)
def _shift(count: int, power: Any, rest: Any) -> None:
    """Numbers times powers of two, both as their bits."""
    for i in range(count):
        rest[i] += power[i] << _EXPONENT


@numba.njit(**INNER, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def _add_up(count: int, margin: Any, chance: Any, weight: Any) -> float:
    """Σ weight · loss, from e^{−|margin|}; in any order, since the sum is of one party alone."""
    total = 0.0
    for i in range(count):
        e = chance[i]
        # log(1 + e) = 2 artanh s, s ≤ 1/3.
        s = e / (2.0 + e)
        q = s * s
        p = 1 / 33
        p = p * q + 1 / 31
        p = p * q + 1 / 29
        p = p * q + 1 / 27
        p = p * q + 1 / 25
        p = p * q + 1 / 23
        p = p * q + 1 / 21
        p = p * q + 1 / 19
        p = p * q + 1 / 17
        p = p * q + 1 / 15
        p = p * q + 1 / 13
        p = p * q + 1 / 11
        p = p * q + 1 / 9
        p = p * q + 1 / 7
        p = p * q + 1 / 5
        p = p * q + 1 / 3
        total += weight[i] * (2.0 * s * (p * q + 1.0) + max(0.0, -margin[i]))
    return total


@numba.njit(**OUTER)
def logistic_table(z: Any, target: Any, y: Any, here: Any, there: Any, used: Any, out: Any) -> None:
    """out[k, p] += Σ_i l(here[k, p] z[i, p] + there[k, p] target[i, p]) · used[i, p].

    ``used`` is empty where all samples count once.
    """
    a, b, weight = np.empty(_BAND), np.empty(_BAND), np.ones(_BAND)
    margin, power, rest = np.empty(_BAND), np.empty(_BAND), np.empty(_BAND)
    power_bits, rest_bits = power.view(np.int64), rest.view(np.int64)
    for start in range(0, z.shape[0], _BAND):
        count = min(start + _BAND, z.shape[0]) - start
        for p in range(z.shape[1]):
            for i in range(count):
                a[i] = y[start + i, p] * z[start + i, p]
                b[i] = y[start + i, p] * target[start + i, p]
            if used.shape[0]:
                for i in range(count):
                    weight[i] = used[start + i, p]
            for k in range(here.shape[0]):
                _take_powers(a, b, here[k, p], there[k, p], count, margin, power, rest)
                _shift(count, power_bits, rest_bits)
                out[k, p] += _add_up(count, margin, rest, weight)
