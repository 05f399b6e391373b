"""What sums would show of whom, from who holds what alone.

A *feature sum* shows the holders of a column what the rows of others put into it. A *sample sum*
shows the holders of a sample what the columns of others put into it. Both are known as soon as
the cohorts are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.array_types import Ints

if TYPE_CHECKING:
    from weft.matching.holding_map import HoldingMap


def exposed_rows(holdings: HoldingMap) -> NDArray[np.bool_]:
    """Per row cohort, whether its samples enter a feature sum that somebody sees who lacks them.

    Where a party holds several tiles, cells that two of them have could stand for two holders;
    then every cohort with a cell in a shared column counts as exposed.
    """
    columns = holdings.columns
    shared = np.flatnonzero(columns.shared_cohort)
    if holdings.bias_slot >= 0 and len(np.unique(holdings.bias_owner)) > 1:
        # Everybody's samples have a part in the constant column's sum.
        return np.ones(len(holdings.rows.sizes), bool)
    exposed = np.zeros(len(holdings.rows.sizes), bool)
    if not len(shared):
        return exposed
    cells = (holdings.row_tiles @ holdings.column_tiles[shared].T).tocoo()
    holders = columns.holders.lengths[shared][cells.col]
    tiles = np.bincount(holdings.tile_party[: len(holdings.rows.tile_cohorts)])
    seen = cells.data < holders if tiles.max(initial=1) == 1 else np.ones(len(cells.data), bool)
    exposed[cells.row[seen & (cells.data > 0)]] = True
    return exposed


def foreign_columns(holdings: HoldingMap) -> Ints:
    """Per (row cohort, holder) pair of ``rows.holders``, how many columns the others add.

    The constant column is nobody's secret and does not count. A column that the holder has too
    tells it nothing, unless cells are additive shares, of which everybody's is its own.
    """
    rows = holdings.rows
    sizes = holdings.columns.sizes.astype(np.int64)
    if holdings.bias_slot >= 0:
        sizes = sizes.copy()
        sizes[np.searchsorted(holdings.columns.start, holdings.bias_slot, side="right") - 1] -= 1
    held = sp.csr_array(holdings.row_tiles @ holdings.column_tiles.T)
    pair = np.repeat(np.arange(len(rows.sizes)), rows.holders.lengths)
    own = holdings.lines
    if holdings.overlap == "sum":
        foreign: Ints = (held[pair] - own > 0) @ sizes
    else:
        foreign = (held > 0)[pair] @ sizes - (own > 0) @ sizes
    return foreign.astype(np.int64)


def held_cells(holdings: HoldingMap) -> sp.csr_array:
    """(pairs of ``rows.holders`` × column cohort) how many tiles of the holder have these cells."""
    rows = holdings.rows
    cohort = np.repeat(np.arange(len(rows.sizes)), rows.tiles.lengths)
    party = holdings.tile_party[rows.tiles.values]
    pair = np.repeat(np.arange(len(rows.sizes)), rows.holders.lengths)
    parties = len(holdings.parties)
    place = np.searchsorted(pair * parties + rows.holders.values, cohort * parties + party)
    ones = np.ones(len(place), np.int32)
    shape = (len(pair), holdings.row_tiles.shape[1])
    tiles = sp.csr_array((ones, (place, rows.tiles.values)), shape=shape)
    cells = sp.csr_array(tiles @ holdings.column_tiles.T)
    cells.sort_indices()
    return cells


def crossed_rows(holdings: HoldingMap) -> NDArray[np.bool_]:
    """Per row cohort, whether a party has the samples and a feature of theirs, but not the cells.

    It knows the feature's weight and the samples' sums: the cells follow. A party with one tile
    has every cell of its samples and features.
    """
    rows, columns = holdings.rows, holdings.columns
    crossed = np.zeros(len(rows.sizes), bool)
    tiles = holdings.tile_party[: len(rows.tile_cohorts)]
    held = None
    for party in np.flatnonzero(np.bincount(tiles) > 1).tolist():
        if held is None:
            held = holdings.row_tiles @ holdings.column_tiles.T
        mine, features = rows.cohorts[party], columns.cohorts[party]
        own = np.flatnonzero(holdings.tile_party == party)
        cells = holdings.row_tiles[mine][:, own] @ holdings.column_tiles[features][:, own].T
        foreign = (held[mine][:, features].toarray() > 0) & (cells.toarray() == 0)
        crossed[mine] |= foreign.any(axis=1)
    return crossed
