"""``min_batch`` for columns: no feature sum may be about a few samples only.

Where a single one of a party's samples has a word, a code or a measurement that the others lack,
the sum of that column moves in proportion to this sample's dual variable: over a few vectors, all
columns that move alike are its row. So a party leaves a column out for a group of its samples
where fewer than ``min_batch`` of them differ from the value that most of them have. There all get
that value, as if nobody differed: whoever chose the column, such as a bin beyond some number, does
not see in the model, or in its loss, whether anybody does. Where fewer than ``min_batch`` have any
one value, the cells count as missing, in scaling and in training, which is zero in the table that
is trained on.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.array_types import Flags, Floats, Ints

#: Rows that are compared at a time.
_AT_ONCE = 20_000


def rare_columns(block: Floats | sp.csr_array, group: Ints, least: int) -> Flags:
    """(groups × columns) where some samples of a group differ from the rest, but too few.

    ``group`` has the group of every row, −1 for rows that nobody else sees a sum of.
    """
    count = int(group.max(initial=-1)) + 1
    found: Flags = np.zeros((count, block.shape[1]), bool)
    for number in range(count):
        rows = np.flatnonzero(group == number)
        if not len(rows):
            continue
        if isinstance(block, np.ndarray):
            different = _different_dense(block, rows, least)
        else:
            different = _different_sparse(sp.csr_array(block[rows]), least)
        found[number] = (different > 0) & (different < least)
    return found


def without_columns(
    block: Floats | sp.csr_array, group: Ints, rare: Flags, least: int
) -> Floats | sp.csr_array:
    """The block with what most of a group have in the place of those cells.

    In a sparse one they are zero, which most have in a column that few have an entry in.
    """
    guarded = group >= 0
    if isinstance(block, np.ndarray):
        table = block.copy()
        for number in np.flatnonzero(rare.any(axis=1)).tolist():
            rows, places = np.flatnonzero(group == number), np.flatnonzero(rare[number])
            table[np.ix_(rows, places)] = _common(_comparable(block, rows)[:, places], least)
        return table
    row = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
    gone = guarded[row]
    gone[gone] = rare[group[row[gone]], block.indices[gone]]
    left = sp.csr_array((block.data[~gone], (row[~gone], block.indices[~gone])), shape=block.shape)
    left.sort_indices()
    return left


def _common(values: Floats, least: int) -> Floats:
    """Per column, the value that most have; NaN: none, or fewer than ``least`` have it."""
    ordered = np.sort(values, axis=0)
    run = np.ones(values.shape[1], np.int64)
    longest, found = run.copy(), ordered[0].copy()
    for above, below in zip(ordered[1:], ordered[:-1], strict=True):
        run = np.where(above == below, run + 1, 1)
        found = np.where(run > longest, above, found)
        longest = np.maximum(longest, run)
    return np.where((longest < least) | np.isinf(found), np.nan, found)


def _comparable(block: Floats, rows: Ints) -> Floats:
    """Rows of a block; a missing cell is a value like any other."""
    some = block[rows]
    return np.where(np.isnan(some), np.inf, some)


def _different_dense(block: Floats, rows: Ints, least: int) -> NDArray[np.int64]:
    """As `_different`, of rows of a block, without a copy of them all."""
    if len(rows) <= max(_AT_ONCE, 2 * least):
        return _different(_comparable(block, rows), least)
    common = _middle(_comparable(block, rows[: 2 * least - 1]), least)
    different = np.zeros(block.shape[1], np.int64)
    for start in range(0, len(rows), _AT_ONCE):
        different += (_comparable(block, rows[start : start + _AT_ONCE]) != common).sum(axis=0)
        if (different >= least).all():
            break
    return different


def _middle(values: Floats, least: int) -> Floats:
    """What more than half of 2·least − 1 values are, per column, if fewer than ``least`` differ."""
    middle: Floats = np.sort(values, axis=0)[least - 1]
    return middle


def _different(values: Floats, least: int) -> NDArray[np.int64]:
    """Per column, how many entries differ from the most common value, if they are fewer than
    ``least``; else some number that is not smaller."""
    if len(values) >= 2 * least - 1:
        # Fewer than ``least`` differ: so more than half of these have the common value.
        common = _middle(values[: 2 * least - 1], least)
        return np.asarray((values != common).sum(axis=0), np.int64)
    ordered = np.sort(values, axis=0)
    longest = np.ones(values.shape[1], np.int64)
    run = longest.copy()
    for above, below in zip(ordered[1:], ordered[:-1], strict=True):
        run = np.where(above == below, run + 1, 1)
        longest = np.maximum(longest, run)
    return len(values) - longest


def _different_sparse(values: sp.csr_array, least: int) -> NDArray[np.int64]:
    stored = values.copy()
    stored.eliminate_zeros()
    different = np.bincount(stored.indices, minlength=values.shape[1]).astype(np.int64)
    # Where nearly all have an entry, the common value may be another one than zero.
    full = np.flatnonzero(different > values.shape[0] - least)
    if len(full):
        dense = np.where(np.isnan(stored[:, full].toarray()), np.inf, stored[:, full].toarray())
        different[full] = np.minimum(different[full], _different(dense, least))
    return different
