"""Numbers on the wire: fixed point in 64-bit integers.

A value v travels as round(v · 2^bits). Integer sums do not depend on the order in which
contributions arrive and increments cancel exactly, so running totals never drift and every
channel and cipher gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.errors import ProtocolError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class FixedPoint:
    """A fixed-point format for one kind of value.

    Parameters
    ----------
    bits
        Binary digits behind the point.
    contributors
        The most parties whose values are added into one slot. Each value must stay below
        2^62 / contributors, so that no total, and no difference of two totals, can leave
        the 64-bit range: |Σ_k n_k| < contributors · 2^62 / contributors = 2^62.
    what
        What the values are, for the error message.
    """

    bits: int
    contributors: int
    what: str

    @cached_property
    def scale(self) -> float:
        return float(2**self.bits)

    @cached_property
    def unit(self) -> float:
        return 1.0 / self.scale

    @cached_property
    def limit(self) -> float:
        return float(2**62) / max(1, self.contributors)

    def encode(self, values: Floats) -> Integers:
        """Round to the grid; values out of range are an error before any sum is wrong."""
        out = np.empty(values.shape, np.int64)
        if not _encode(values, self.scale, self.limit, out):
            self.refuse()
        return out

    def decode(self, integers: Integers) -> Floats:
        values: Floats = np.multiply(integers, self.unit, dtype=np.float64)
        return values

    def refuse(self) -> None:
        """Say what cannot travel, but not the value: refusals go to the coordinator."""
        raise ProtocolError(
            f"a value of the {self.what} lies outside the range ±{self.limit / self.scale:.3g} "
            "that can be summed exactly; scale the features (scaling = 'standard') or raise lambda"
        )


@numba.njit(cache=True)
def _fits(values: Any, rows: int, scale: float, limit: float) -> bool:
    """Checked before anything is written: a refusal changes nothing."""
    for i in range(rows):
        for j in range(values.shape[1]):
            # Written so that NaN fails too.
            if not (abs(np.rint(values[i, j] * scale)) < limit):
                return False
    return True


@numba.njit(cache=True)
def _encode(values: Any, scale: float, limit: float, out: Any) -> bool:
    if not _fits(values, values.shape[0], scale, limit):
        return False
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            out[i, j] = np.int64(np.rint(values[i, j] * scale))
    return True


@numba.njit(cache=True)
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


@numba.njit(cache=True)
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
