"""Products of some rows of a party's blocks, in machine code.

``rows`` holds row numbers of a block; −1 stands for a sample that is not in it.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from weft.numba_options import OUTER

#: Reassociation lets the compiler use vector instructions; the result is the same on every call.
_FAST = {"reassoc", "contract", "nsz"}


@numba.njit(**OUTER, fastmath=_FAST)
def whole_products(block: Any, slots: Any, across: Any, out: Any) -> None:
    """out[slots] += block @ across.T; for a few columns one pass that BLAS takes twice as long for.

    No ``slots`` stand for all in their order.
    """
    for i in range(block.shape[0]):
        s = np.int64(slots[i]) if slots.shape[0] else i
        for c in range(across.shape[0]):
            total = 0.0
            for j in range(block.shape[1]):
                total += block[i, j] * across[c, j]
            out[s, c] += total


@numba.njit(**OUTER, fastmath=_FAST)
def whole_accumulate(block: Any, change: Any, across: Any) -> None:
    """across += (block.T @ change).T, likewise."""
    for i in range(block.shape[0]):
        for c in range(change.shape[1]):
            a = change[i, c]
            if a != 0.0:
                for j in range(block.shape[1]):
                    across[c, j] += block[i, j] * a


@numba.njit(**OUTER, fastmath=_FAST)
def dense_products(block: Any, rows: Any, w: Any, out: Any) -> None:
    """out[r] += block[rows[r]] @ w."""
    classes = w.shape[1]
    for r in range(rows.shape[0]):
        i = rows[r]
        if i < 0:
            continue
        if classes == 1:
            total = 0.0
            for j in range(block.shape[1]):
                total += block[i, j] * w[j, 0]
            out[r, 0] += total
        else:
            for j in range(block.shape[1]):
                x = block[i, j]
                if x != 0.0:
                    for c in range(classes):
                        out[r, c] += x * w[j, c]


@numba.njit(**OUTER, fastmath=_FAST)
def dense_accumulate(block: Any, rows: Any, columns: Any, change: Any, whole: Any) -> None:
    """whole[columns] += block[rows].T @ change; no ``columns`` stand for all in their order."""
    classes, v = whole.shape[1], whole
    if columns.shape[0]:
        v = np.zeros((columns.shape[0], classes))
    for r in range(rows.shape[0]):
        i = rows[r]
        if i < 0:
            continue
        if classes == 1:
            a = change[r, 0]
            if a != 0.0:
                for j in range(block.shape[1]):
                    v[j, 0] += block[i, j] * a
        else:
            for j in range(block.shape[1]):
                x = block[i, j]
                if x != 0.0:
                    for c in range(classes):
                        v[j, c] += x * change[r, c]
    for j in range(columns.shape[0]):
        for c in range(classes):
            whole[columns[j], c] += v[j, c]


@numba.njit(**OUTER, fastmath=_FAST)
def sparse_products(start: Any, columns: Any, values: Any, rows: Any, w: Any, out: Any) -> None:
    """out[r] += block[rows[r]] @ w for a block in CSR."""
    classes = w.shape[1]
    for r in range(rows.shape[0]):
        i = rows[r]
        if i < 0:
            continue
        for at in range(start[i], start[i + 1]):
            x = values[at]
            j = columns[at]
            for c in range(classes):
                out[r, c] += x * w[j, c]


@numba.njit(**OUTER, fastmath=_FAST)
def sparse_accumulate(
    start: Any, columns: Any, values: Any, rows: Any, change: Any, v: Any
) -> None:
    """v += block[rows].T @ change for a block in CSR."""
    classes = v.shape[1]
    for r in range(rows.shape[0]):
        i = rows[r]
        if i < 0:
            continue
        for c in range(classes):
            a = change[r, c]
            if a != 0.0:
                for at in range(start[i], start[i + 1]):
                    v[columns[at], c] += values[at] * a
