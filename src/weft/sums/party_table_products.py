"""A party's own cells, addressed by local row and column slots, and products of some of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from weft.array_types import Floats, Slots
from weft.matching.party_view import PartyView
from weft.sums.party_table_kernels import (
    dense_accumulate,
    dense_products,
    sparse_accumulate,
    sparse_products,
    whole_accumulate,
    whole_products,
)

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
        self._whole_rows = _is_range(row_slots, n_rows)
        self._whole_columns = _is_range(column_slots, n_columns)
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
        if _is_permuted(row_slots, n_rows):
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
                whole_products(self.block, self._every, np.ascontiguousarray(mine.T), out)
            else:
                for band in self._bands():
                    place = self._every[band] if len(self._every) else band
                    out[place] += np.asarray(self.block[band], np.float64) @ mine
        else:
            dense_products(self.block, self._rows(slots), mine, out)

    def accumulate(self, slots: Slots | None, change: Floats, v: Floats) -> None:
        if slots is None and self._every is not None:
            # A pass of its own: within the one over the block, each row would wait for its number.
            ordered = change.take(self._every, axis=0) if len(self._every) else change
            if self._few(v.shape[1]):
                across = np.zeros((v.shape[1], self.block.shape[1]))
                whole_accumulate(self.block, ordered, across)
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
            dense_accumulate(self.block, self._rows(slots), self._columns, change, v)

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
        sparse_products(self.start, self.columns, self.values, self._rows(slots), w, out)

    def accumulate(self, slots: Slots | None, change: Floats, v: Floats) -> None:
        sparse_accumulate(self.start, self.columns, self.values, self._rows(slots), change, v)

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


def build_table(view: PartyView, blocks: Sequence[Block], bias_value: float | None) -> LocalTable:
    """Arrange a party's blocks for its view, with overlap weights and the constant column."""
    pieces: list[Piece] = []
    squares = None if view.cell_holders is None else np.zeros((view.n_rows, 1))
    shape = (view.n_rows, view.n_columns)
    for number, block in enumerate(blocks):
        rows, columns = view.tile_rows[number], view.tile_columns[number]
        cell, square = _cell_weights(view, number, block)
        piece: Piece
        if isinstance(block, np.ndarray):
            dense = block if cell is None else block * cell
            if dense.size < LARGE and _is_permuted(rows, view.n_rows):
                order = np.argsort(rows)
                dense, rows = dense[order], np.arange(view.n_rows, dtype=np.int32)
                square = None if square is None else square[order]
            piece = DensePiece(dense, rows, columns, *shape)
        else:
            sparse = block if cell is None else _scaled(block, cell)
            piece = SparsePiece(sparse, rows, columns, *shape)
        if squares is not None:
            piece.squares(square, squares)
        pieces.append(piece)
    if bias_value is not None and view.bias.any():
        slots = np.flatnonzero(view.bias[view.row_cohort] & ~view.left_out).astype(np.int32)
        column = np.full((len(slots), 1), bias_value)
        where = np.array([view.bias_slot], np.int32)
        pieces.append(DensePiece(column, slots, where, *shape))
        if squares is not None:
            squares[slots] += bias_value**2
    return LocalTable(*shape, pieces, squares)


def _cell_weights(view: PartyView, tile: int, block: Block) -> tuple[Floats | None, Floats | None]:
    """Weights of a tile's cells in products, and of their squares in norms (None: all one).

    With h holders of a cell and equal values x: "mean" sends x/h, and squares (x/h)² · h add
    up to x²; "first" sends x at one holder; "sum" sends shares s with (Σs)² ≤ h Σ s².
    """
    if view.cell_holders is None:
        return None, None
    holders = np.maximum(view.cell_holders, 1).astype(np.float64)
    cell: Floats | None
    square: Floats | None
    if view.overlap == "mean":
        cell, square = 1.0 / holders, holders
    elif view.overlap == "first":
        cell, square = view.cells_of(tile).astype(np.float64), None
    else:
        cell, square = None, holders
    return _spread(view, tile, block, cell), _spread(view, tile, block, square)


def counted_once(view: PartyView, tile: int, block: Block) -> Floats | None:
    """Weights with which every cell of the table counts once over all its holders."""
    if view.cell_holders is None:
        return None
    if view.overlap == "first":
        share = view.cells_of(tile).astype(np.float64)
    else:
        share = 1.0 / np.maximum(view.cell_holders, 1)
    row_cohort = view.row_cohort[np.maximum(view.tile_rows[tile], 0)]
    return share[np.ix_(row_cohort, view.column_cohort[view.tile_columns[tile]])]


def _spread(view: PartyView, tile: int, block: Block, weights: Floats | None) -> Floats | None:
    """From (row cohort × column cohort) to the cells of a block (its entries in CSR)."""
    if weights is None:
        return None
    row_cohort = view.row_cohort[np.maximum(view.tile_rows[tile], 0)]
    column_cohort = view.column_cohort[view.tile_columns[tile]]
    if isinstance(block, np.ndarray):
        return weights[np.ix_(row_cohort, column_cohort)]
    return weights[np.repeat(row_cohort, np.diff(block.indptr)), column_cohort[block.indices]]


def _scaled(block: sp.csr_array, factors: Floats) -> sp.csr_array:
    return sp.csr_array((block.data * factors, block.indices, block.indptr), shape=block.shape)


def _is_permuted(slots: Slots, n: int) -> bool:
    """Whether these are all slots, in another order than ascending."""
    if len(slots) != n or _is_range(slots, n) or (slots < 0).any():
        return False
    return bool((np.bincount(slots, minlength=n) == 1).all())


def _is_range(slots: Slots, n: int) -> bool:
    return len(slots) == n and bool((slots == np.arange(n, dtype=np.int32)).all())


def cohort_bounds(squares: Floats, view: PartyView) -> Floats:
    """In the place of every row's ‖x‖² a bound for its cohort, which says less.

    The largest of the cohort, rounded up to a power of √2.
    """
    bound = np.maximum.reduceat(squares[:, 0], view.cohort_start[:-1])
    safe = np.maximum(bound, 1e-300)
    rounded: Floats = 2.0 ** (np.ceil(2.0 * np.log2(safe) - 1e-12) / 2.0)
    return np.repeat(np.where(bound > 0, rounded, 0.0), view.sizes)[:, None]


def rows_times(block: Block, factors: Floats) -> Block:
    """A block with every row multiplied by a factor of its own."""
    if isinstance(block, np.ndarray):
        return block * factors[:, None]
    return _scaled(block, np.repeat(factors, np.diff(block.indptr)))
