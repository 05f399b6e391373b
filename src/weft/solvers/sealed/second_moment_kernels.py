"""Sums over rows of products of cells, modulo 2^64, in compiled loops."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from weft.crypto.primitives.seeded_words import Words
from weft.solvers.sealed.masked_sine_kernels import dithered, mixed, sine_cosine

_S16 = np.uint64(16)


def cross_products(left: Words, right: Words) -> Words:
    """leftᵀ · right."""
    out: Words = np.zeros((left.shape[1], right.shape[1]), np.uint64)
    _cross_products(np.ascontiguousarray(left), np.ascontiguousarray(right), out)
    return out


@numba.njit(cache=True)
def _cross_products(left: Any, right: Any, out: Any) -> None:
    for i in range(left.shape[0]):
        for j in range(left.shape[1]):
            factor = left[i, j]
            for k in range(right.shape[1]):
                out[j, k] += factor * right[i, k]


@numba.njit(cache=True)
def combine_cosines(
    opened: Any, multiples: Any, factors: Any, seed: Any, cosines: Any, sines: Any, out: Any
) -> None:
    """Add a party's share of Σ_k factor_k cos(κ_k z) for every number; see `combine_dealt`."""
    terms = len(multiples)
    for i in range(len(opened)):
        share = np.uint64(0)
        for k in range(terms):
            s, c = sine_cosine(opened[i] * multiples[k])
            dither = mixed(seed + np.uint64(i * terms + k))
            share += dithered(factors[k] * c, dither) * cosines[i, k]
            share += dithered(factors[k] * s, dither >> _S16) * sines[i, k]
        out[i] += share
