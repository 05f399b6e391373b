"""A party's own cells, addressed by local row and column slots, and products of some of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp

from weft.array_types import Floats, Slots
from weft.numba_options import OUTER

Block = Floats | sp.csr_array

#: Columns beside each other, up to which a compiled loop beats a product of matrices.
_FEW_COLUMNS = 4
#: Cells from which a block stays as its file has it: in the order of slots it would be in memory
#: twice. Smaller ones are put in order, which saves a detour with every product of some rows.
LARGE = 1_000_000
#: Cells that are looked at together where a pass needs room of its own.
_AT_ONCE = 500_000
_IN_ORDER = np.zeros(0, np.int32)


class LocalTable:
    """All tiles of a party as one sparse arrangement of blocks.

    A cell that several tiles hold carries the weight of the overlap rule, so that adding up
    all parties' products gives the products of the de-duplicated table.
    """

    def __init__(
        self, n_rows: int, n_columns: int, pieces: Sequence[Piece], squares: Floats | None = None
    ) -> None:
        self.n_rows = n_rows
        self.n_columns = n_columns
        self._pieces = pieces
        self._squares = squares

    @property
    def squares(self) -> Floats:
        """Per row, this party's share of ‖x_i‖².

        The sum over parties is exact without overlapping cells and an upper bound with them.
        Where nothing overlaps it is made anew from the cells: it is wanted a few times in a run.
        """
        if self._squares is not None:
            return self._squares
        squares = np.zeros((self.n_rows, 1))
        for piece in self._pieces:
            piece.squares(None, squares)
        return squares

    def products(self, slots: Slots | None, w: Floats) -> Floats:
        """X[slots] @ w (all rows when ``slots`` is None)."""
        n = self.n_rows if slots is None else len(slots)
        out = np.zeros((n, w.shape[1]))
        for piece in self._pieces:
            piece.products(slots, w, out)
        return out

    def accumulate(self, slots: Slots | None, change: Floats, v: Floats) -> None:
        """v += X[slots].T @ change, in place."""
        for piece in self._pieces:
            piece.accumulate(slots, change, v)

    def dense(self) -> Floats:
        """All cells, as one array of rows by columns."""
        out = np.zeros((self.n_rows, self.n_columns))
        for piece in self._pieces:
            piece.add_cells(out)
        return out

    def compressed(self) -> sp.csr_array:
        """All cells that are not zero, as one matrix of rows by columns."""
        shape = (self.n_rows, self.n_columns)
        total = sp.csr_array(shape)
        for piece in self._pieces:
            total = total + piece.compressed(shape)
        total.sort_indices()
        return total


class Piece(ABC):
    """One block of a local table.

    Parameters
    ----------
    row_slots, column_slots
        Local slot of each row and column of the block; a row may have −1 (left out).
    n_rows
        Local rows of the party.
    """

    def __init__(self, row_slots: Slots, column_slots: Slots, n_rows: int, n_columns: int) -> None:
        self._whole_rows = is_range(row_slots, n_rows)
        self._whole_columns = is_range(column_slots, n_columns)
        self.row_slots = row_slots
        self.column_slots = column_slots
        self._n_rows = n_rows

    @cached_property
    def _row_of(self) -> Slots:
        """Per local row, its place in the block; −1: it has none. Whole tables never ask."""
        found = np.full(self._n_rows, -1, np.int32)
        kept = self.row_slots >= 0
        found[self.row_slots[kept]] = np.flatnonzero(kept)
        return found

    def _rows(self, slots: Slots | None) -> Slots:
        if self._whole_rows:
            return self.row_slots if slots is None else slots
        return self._row_of if slots is None else self._row_of[slots]

    @abstractmethod
    def products(self, slots: Slots | None, w: Floats, out: Floats) -> None: ...

    @abstractmethod
    def accumulate(self, slots: Slots | None, change: Floats, v: Floats) -> None: ...

    @abstractmethod
    def squares(self, weights: Floats | None, out: Floats) -> None: ...

    @abstractmethod
    def compressed(self, shape: tuple[int, int]) -> sp.csr_array: ...

    def add_cells(self, out: Floats) -> None:
        """Add all cells of the block to an array of local rows by columns."""
        out += self.compressed(out.shape).toarray()


class DensePiece(Piece):
    """A block of all its cells; one of float32 is multiplied as if it were float64."""

    def __init__(
        self, block: Floats, row_slots: Slots, column_slots: Slots, n_rows: int, n_columns: int
    ) -> None:
        super().__init__(row_slots, column_slots, n_rows, n_columns)
        self.block = block
        self._by_rows = block.flags.c_contiguous
        self._columns = _IN_ORDER if self._whole_columns else column_slots
        #: Slots of all rows where these are all slots, none for rows in their order; else None.
        self._every: Slots | None = _IN_ORDER if self._whole_rows else None
        if is_permuted(row_slots, n_rows):
            self._every = row_slots

    def _few(self, width: int) -> bool:
        """Whether a loop over whole rows is faster than BLAS."""
        return self._by_rows and width <= _FEW_COLUMNS

    def _bands(self, cells: int | None = None) -> Iterator[slice]:
        """All rows, a band of so many cells after the other: a block is never doubled in memory.

        None: in one where the block is float64, of which a product makes no copy.
        """
        if cells is None:
            cells = self.block.size + 1 if self.block.dtype == np.float64 else _AT_ONCE
        rows = max(1, cells // max(1, self.block.shape[1]))
        return (slice(start, start + rows) for start in range(0, len(self.block), rows))

    def products(self, slots: Slots | None, w: Floats, out: Floats) -> None:
        mine = w if self._whole_columns else w.take(self.column_slots, axis=0)
        if slots is None and self._every is not None:
            if self._few(w.shape[1]):
                _whole_products(self.block, self._every, np.ascontiguousarray(mine.T), out)
            else:
                for band in self._bands():
                    place = self._every[band] if len(self._every) else band
                    out[place] += np.asarray(self.block[band], np.float64) @ mine
        else:
            _dense_products(self.block, self._rows(slots), mine, out)

    def accumulate(self, slots: Slots | None, change: Floats, v: Floats) -> None:
        if slots is None and self._every is not None:
            # A pass of its own: within the one over the block, each row would wait for its number.
            ordered = change.take(self._every, axis=0) if len(self._every) else change
            if self._few(v.shape[1]):
                across = np.zeros((v.shape[1], self.block.shape[1]))
                _whole_accumulate(self.block, ordered, across)
                part = across.T
            else:
                part = np.zeros((self.block.shape[1], v.shape[1]))
                for band in self._bands():
                    part += np.asarray(self.block[band], np.float64).T @ ordered[band]
            if self._whole_columns:
                v += part
            else:
                v[self.column_slots] += part
        else:
            _dense_accumulate(self.block, self._rows(slots), self._columns, change, v)

    def squares(self, weights: Floats | None, out: Floats) -> None:
        for band in self._bands(_AT_ONCE):
            part, slots = np.asarray(self.block[band], np.float64), self.row_slots[band]
            squared = np.einsum("ij,ij->i", part, part if weights is None else part * weights[band])
            kept = slots >= 0
            out[slots[kept], 0] += squared[kept]

    def compressed(self, shape: tuple[int, int]) -> sp.csr_array:
        row, column = np.nonzero(self.block)
        kept = self.row_slots[row] >= 0
        row, column = row[kept], column[kept]
        where = (self.row_slots[row], self.column_slots[column])
        return sp.csr_array((self.block[row, column].astype(np.float64), where), shape=shape)

    def add_cells(self, out: Floats) -> None:
        kept = self.row_slots >= 0
        out[np.ix_(self.row_slots[kept], self.column_slots)] += self.block[kept]


class SparsePiece(Piece):
    """A block in CSR; its column numbers are local slots already."""

    def __init__(
        self,
        block: sp.csr_array,
        row_slots: Slots,
        column_slots: Slots,
        n_rows: int,
        n_columns: int,
    ) -> None:
        super().__init__(row_slots, column_slots, n_rows, n_columns)
        self.start = block.indptr
        self.columns = column_slots[block.indices]
        self.values = block.data
        self._block_rows = block.shape[0]

    def products(self, slots: Slots | None, w: Floats, out: Floats) -> None:
        _sparse_products(self.start, self.columns, self.values, self._rows(slots), w, out)

    def accumulate(self, slots: Slots | None, change: Floats, v: Floats) -> None:
        _sparse_accumulate(self.start, self.columns, self.values, self._rows(slots), change, v)

    def squares(self, weights: Floats | None, out: Floats) -> None:
        values = self.values**2 if weights is None else self.values**2 * weights
        block = sp.csr_array(
            (values, np.zeros(len(values), np.int32), self.start), shape=(self._block_rows, 1)
        )
        kept = self.row_slots >= 0
        out[self.row_slots[kept], 0] += np.asarray(block.sum(axis=1))[kept]

    def compressed(self, shape: tuple[int, int]) -> sp.csr_array:
        row = np.repeat(self.row_slots, np.diff(self.start))
        kept = row >= 0
        where = (row[kept], self.columns[kept])
        return sp.csr_array((self.values[kept], where), shape=shape)


def is_permuted(slots: Slots, n: int) -> bool:
    """Whether these are all slots, in another order than ascending."""
    if len(slots) != n or is_range(slots, n) or (slots < 0).any():
        return False
    return bool((np.bincount(slots, minlength=n) == 1).all())


def is_range(slots: Slots, n: int) -> bool:
    return len(slots) == n and bool((slots == np.arange(n, dtype=np.int32)).all())


# ── products of some rows, in machine code ──────────────────────────────────────────────

# ``rows`` holds row numbers of a block; −1 stands for a sample that is not in it.

#: Reassociation lets the compiler use vector instructions; the result is the same on every call.
_FAST = {"reassoc", "contract", "nsz"}


@numba.njit(**OUTER, fastmath=_FAST)
def _whole_products(block: Any, slots: Any, across: Any, out: Any) -> None:
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
def _whole_accumulate(block: Any, change: Any, across: Any) -> None:
    """across += (block.T @ change).T, likewise."""
    for i in range(block.shape[0]):
        for c in range(change.shape[1]):
            a = change[i, c]
            if a != 0.0:
                for j in range(block.shape[1]):
                    across[c, j] += block[i, j] * a


@numba.njit(**OUTER, fastmath=_FAST)
def _dense_products(block: Any, rows: Any, w: Any, out: Any) -> None:
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
def _dense_accumulate(block: Any, rows: Any, columns: Any, change: Any, whole: Any) -> None:
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
def _sparse_products(start: Any, columns: Any, values: Any, rows: Any, w: Any, out: Any) -> None:
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
def _sparse_accumulate(
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
