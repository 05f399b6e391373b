"""Numbers on the wire: fixed point in integers below 2^49.

A value v travels as round(v · 2^bits). Integer sums do not depend on the order in which
contributions arrive and increments cancel exactly, so running totals never drift and every
channel and cipher gives the same bits.

No total can wrap. ``bound`` is a proven bound on the total and on every single value, and bits is
the largest whole number with bound · 2^bits ≤ 2^48. Every party checks its values against the
bound before it sends them. A total of h parties differs from the sum of their values by rounding
only, by at most h/2 units, so that it stays below 2^48 + 50,000 < 2^49 for up to 100,000
parties: within ±2^49, which ``pad`` (2^64, of which it keeps 14 bits to check), ``bfv`` (a prime
above 2^49 · 2 − 1) and ``paillier`` can hold. Increments and partial sums may be larger, but they
are only ever added modulo that range, and the total is what is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.errors import ProtocolError
from weft.numba_options import INNER, OUTER

Integers = NDArray[np.int64]

_TOTAL_BITS = 48
_MOST_BITS = 52
#: Fewer binary digits behind the point would limit training.
LEAST_BITS = 12


@dataclass(frozen=True)
class FixedPoint:
    """A fixed-point format for one kind of value.

    Parameters
    ----------
    bound
        No value, and no total, is larger in absolute value.
    what
        What the values are, for the error message.
    """

    bound: float
    what: str

    @cached_property
    def bits(self) -> int:
        """Binary digits behind the point."""
        if not (math.isfinite(self.bound) and self.bound > 0):
            self.refuse()
        bits = _TOTAL_BITS - math.ceil(math.log2(self.bound) - 1e-12)
        if bits < LEAST_BITS:
            self.refuse()
        return min(bits, _MOST_BITS)

    @cached_property
    def scale(self) -> float:
        return math.ldexp(1.0, self.bits)

    @cached_property
    def unit(self) -> float:
        return 1.0 / self.scale

    @cached_property
    def limit(self) -> float:
        """The largest integer that may travel; half a unit is for rounding."""
        return self.bound * self.scale * (1 + 1e-9) + 0.5

    def encode(self, values: Floats, scale: float | None = None) -> Integers:
        """Round to the grid; values out of range are an error before any sum is wrong.

        With ``scale`` values come in another unit, which is part of it.
        """
        out = np.empty(values.shape, np.int64)
        if not encode_block(values, self.scale if scale is None else scale, self.limit, out):
            self.refuse()
        return out

    def decode(self, integers: Integers) -> Floats:
        values: Floats = np.multiply(integers, self.unit, dtype=np.float64)
        return values

    def refuse(self) -> None:
        """Say what cannot travel, but not the value: refusals go to the coordinator."""
        raise ProtocolError(
            f"a value of the {self.what} lies outside the range ±{self.bound:.3g} that can be "
            "summed exactly; scale the features (scaling = 'standard') or raise lambda"
        )


@numba.njit(**INNER)
def _fits(values: Any, rows: int, scale: float, limit: float) -> bool:
    """Checked before anything is written: a refusal changes nothing."""
    for i in range(rows):
        for j in range(values.shape[1]):
            # Written so that NaN fails too.
            if not (abs(np.rint(values[i, j] * scale)) <= limit):
                return False
    return True


@numba.njit(**OUTER)
def encode_block(values: Any, scale: float, limit: float, out: Any) -> bool:
    """out = round(values · scale); False where a value does not fit."""
    if not _fits(values, values.shape[0], scale, limit):
        return False
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            out[i, j] = np.int64(np.rint(values[i, j] * scale))
    return True


@numba.njit(**OUTER)
def encode_increment(
    values: Any, slots: Any, scale: float, limit: float, sent: Any, out: Any
) -> bool:
    """out[r] = round(values[r] · scale) − sent[slots[r]], and remember what was sent."""
    if not _fits(values, slots.shape[0], scale, limit):
        return False
    for r in range(slots.shape[0]):
        s = slots[r]
        for j in range(values.shape[1]):
            n = np.int64(np.rint(values[r, j] * scale))
            out[r, j] = n - sent[s, j]
            sent[s, j] = n
    return True


@numba.njit(**OUTER)
def encode_block_increment(values: Any, scale: float, limit: float, sent: Any, out: Any) -> bool:
    """The same for a whole block: slot r is row r."""
    if not _fits(values, sent.shape[0], scale, limit):
        return False
    for r in range(sent.shape[0]):
        for j in range(sent.shape[1]):
            n = np.int64(np.rint(values[r, j] * scale))
            out[r, j] = n - sent[r, j]
            sent[r, j] = n
    return True
