"""Passes over layers in machine code: each entry is read once, and no copy is made on the way."""

from __future__ import annotations

from typing import Any

import numba

_FAST = {"reassoc", "contract", "nsz"}


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def scatter(out: Any, rows: Any, to: Any, values: Any, at: Any, weight: Any) -> None:
    """out[rows[j], to[k]] += weight · values[j, at[k]]."""
    for j in range(rows.shape[0]):
        target, source = out[rows[j]], values[j]
        for k in range(to.shape[0]):
            target[to[k]] += weight * source[at[k]]


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def place(out: Any, rows: Any, to: Any, values: Any) -> None:
    """out[rows[j], to[k]] = values[j, k]."""
    for j in range(rows.shape[0]):
        target, source = out[rows[j]], values[j]
        for k in range(to.shape[0]):
            target[to[k]] = source[k]


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def gap(layer: Any, rows: Any, columns: Any, values: Any) -> float:
    """Σ (values[j, k] − layer[rows[j], columns[k]])², added up in double precision."""
    total = 0.0
    for j in range(rows.shape[0]):
        mine, other = values[j], layer[rows[j]]
        for k in range(columns.shape[0]):
            difference = float(mine[k] - other[columns[k]])
            total += difference * difference
    return total


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def centred(values: Any, order: Any, starts: Any, centre: Any, ordered: Any, squares: Any) -> None:
    """Columns in another order, less ``centre``, and the sums of their squares by group."""
    groups = starts.shape[0] - 1
    for j in range(values.shape[0]):
        source, target = values[j], ordered[j]
        for g in range(groups):
            total = 0.0
            for k in range(starts[g], starts[g + 1]):
                value = source[order[k]] - centre[k]
                target[k] = value
                total += value * value
            squares[j, g] = total


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def pulls(sums: Any, starts: Any, shares: Any, factors: Any, centre: Any, constant: Any) -> None:
    """Turn sums s into a·(mean − centre) where mean = share·s; constant_i = Σ_c a (mean − centre)².

    A row without weight in a column has factor 0 there.
    """
    groups = starts.shape[0] - 1
    for i in range(sums.shape[0]):
        row = sums[i]
        total = 0.0
        for g in range(groups):
            share, factor = shares[i, g], factors[i, g]
            for k in range(starts[g], starts[g + 1]):
                mean = share * row[k] - centre[k]
                pull = factor * mean
                row[k] = pull
                total += float(pull) * mean
        constant[i] = total
