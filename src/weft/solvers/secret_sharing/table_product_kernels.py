"""Products of tables and vectors modulo 2^64, in compiled loops.

Vectors of several problems lie side by side, one in each row of a (problems × length) array.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto.primitives.seeded_words import Words
from weft.numba_options import OUTER

#: Columns up to which four rows are taken at once: loops over one are too short to be fast. Four
#: long rows would be read in too many places at once.
_FEW = 48


def encoded(values: Floats, bits: int) -> Words:
    """round(values · 2^bits) modulo 2^64."""
    return np.rint(values * 2.0**bits).astype(np.int64).view(np.uint64)


def signed(word: int, bits: int = 64) -> int:
    """The number nearest to zero that is this one modulo 2^bits."""
    half = 1 << (bits - 1)
    return (word + half) % (1 << bits) - half


def round_cells(block: Floats, bits: int) -> NDArray[np.float32]:
    """Round cells to so many binary digits, in place; returns by how many units each moved."""
    moved = np.empty(block.shape, np.float32)
    _round_cells(block, 2.0**bits, moved)
    return moved


def mask_cells(block: Floats, bits: int, masks: Words) -> NDArray[Any]:
    """Replace masks by cells less masks; returns the rounded cells as whole numbers.

    In 32 bits where they fit: half as many bytes to read for every product.
    """
    most = max(float(block.max(initial=0.0)), -float(block.min(initial=0.0)))
    kind = np.int32 if most * 2.0**bits < 2.0**31 - 1 else np.int64
    cells: NDArray[Any] = np.empty(block.shape, kind)
    _mask_cells(block, 2.0**bits, masks, cells)
    return cells


def add_products(table: NDArray[Any], vectors: Words, rows: Ints, out: Words) -> None:
    """out[:, rows] += table · vectors, with the table's own columns in ``vectors``."""
    kernel = _add_products_of_few if table.shape[1] <= _FEW else _add_products
    kernel(_compiled_for(table), np.ascontiguousarray(vectors), rows, out)


def transposed_products(table: NDArray[Any], vectors: Words, rows: Ints) -> Words:
    """tableᵀ · vectors[:, rows]: one entry for every column of the table."""
    out: Words = np.zeros((len(vectors), table.shape[1]), np.uint64)
    kernel = _transposed_products_of_few if table.shape[1] <= _FEW else _transposed_products
    kernel(_compiled_for(table), vectors, rows, out)
    return out


def _compiled_for(table: NDArray[Any]) -> NDArray[Any]:
    """Cells of 64 bits as words, which they are modulo 2^64: loops are compiled for two types."""
    return table.view(np.uint64) if table.dtype == np.int64 else table


@numba.njit(**OUTER)
def _round_cells(block: Any, scale: float, moved: Any) -> None:
    for i in range(block.shape[0]):
        for j in range(block.shape[1]):
            scaled = block[i, j] * scale
            whole = np.rint(scaled)
            moved[i, j] = whole - scaled
            block[i, j] = whole / scale


@numba.njit(**OUTER)
def _mask_cells(block: Any, scale: float, masks: Any, cells: Any) -> None:
    for i in range(block.shape[0]):
        for j in range(block.shape[1]):
            cell = np.int64(block[i, j] * scale)
            cells[i, j] = cell
            masks[i, j] = np.uint64(cell) - masks[i, j]


@numba.njit(**OUTER)
def _add_products(table: Any, vectors: Any, rows: Any, out: Any) -> None:
    for i in range(table.shape[0]):
        for c in range(vectors.shape[0]):
            total = np.uint64(0)
            for j in range(table.shape[1]):
                total += np.uint64(table[i, j]) * vectors[c, j]
            out[c, rows[i]] += total


@numba.njit(**OUTER)
def _transposed_products(table: Any, vectors: Any, rows: Any, out: Any) -> None:
    for i in range(table.shape[0]):
        for c in range(vectors.shape[0]):
            factor = vectors[c, rows[i]]
            for j in range(table.shape[1]):
                out[c, j] += np.uint64(table[i, j]) * factor


@numba.njit(**OUTER)
def _add_products_of_few(table: Any, vectors: Any, rows: Any, out: Any) -> None:
    whole = len(table) - len(table) % 4
    for c in range(vectors.shape[0]):
        vector, sums = vectors[c], out[c]
        for i in range(0, whole, 4):
            r0, r1, r2, r3 = table[i], table[i + 1], table[i + 2], table[i + 3]
            s0, s1, s2, s3 = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
            for j in range(len(vector)):
                s0 += np.uint64(r0[j]) * vector[j]
                s1 += np.uint64(r1[j]) * vector[j]
                s2 += np.uint64(r2[j]) * vector[j]
                s3 += np.uint64(r3[j]) * vector[j]
            sums[rows[i]] += s0
            sums[rows[i + 1]] += s1
            sums[rows[i + 2]] += s2
            sums[rows[i + 3]] += s3
    _add_products(table[whole:], vectors, rows[whole:], out)


@numba.njit(**OUTER)
def _transposed_products_of_few(table: Any, vectors: Any, rows: Any, out: Any) -> None:
    whole = len(table) - len(table) % 4
    for c in range(vectors.shape[0]):
        vector, sums = vectors[c], out[c]
        for i in range(0, whole, 4):
            r0, r1, r2, r3 = table[i], table[i + 1], table[i + 2], table[i + 3]
            f0, f1 = vector[rows[i]], vector[rows[i + 1]]
            f2, f3 = vector[rows[i + 2]], vector[rows[i + 3]]
            for j in range(len(sums)):
                sums[j] += (
                    np.uint64(r0[j]) * f0
                    + np.uint64(r1[j]) * f1
                    + np.uint64(r2[j]) * f2
                    + np.uint64(r3[j]) * f3
                )
    _transposed_products(table[whole:], vectors, rows[whole:], out)
