"""A party's blocks arranged for its view: overlap weights, the constant column, bounds on rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from weft.array_types import Floats
from weft.matching.party_view import PartyView
from weft.sums.party_table_products import (
    LARGE,
    Block,
    DensePiece,
    LocalTable,
    Piece,
    SparsePiece,
    is_permuted,
)


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
            if dense.size < LARGE and is_permuted(rows, view.n_rows):
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
