"""Sums over rows of products of cells, modulo 2^64, in compiled loops."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from weft.crypto.primitives.seeded_words import Words
from weft.numba_options import OUTER

#: Of curvatures and slopes, which are cut: curvatures to their leading digits, and to more.
CUT_TWICE = (0, 0, 1)


def cross_products(left: Words, right: Words) -> Words:
    """leftᵀ · right."""
    out: Words = np.zeros((left.shape[1], right.shape[1]), np.uint64)
    _cross_products(np.ascontiguousarray(left), np.ascontiguousarray(right), out)
    return out


@numba.njit(**OUTER)
def _cross_products(left: Any, right: Any, out: Any) -> None:
    for i in range(left.shape[0]):
        for j in range(left.shape[1]):
            factor = left[i, j]
            for k in range(right.shape[1]):
                out[j, k] += factor * right[i, k]
