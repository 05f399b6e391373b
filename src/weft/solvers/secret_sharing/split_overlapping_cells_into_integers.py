"""Cells that several parties hold: what each brings of them, in whole units, adds up to the cell.

Where the mean of all holders counts, each of h brings an h-th. Rounded by each of them, these are
off by up to half a unit each, and alike, where holders have the same value: h times as much as a
cell that one holds. So each rounds the whole cell to n units and takes ⌊(n + i)/h⌋ of them, i its
place among the holders: these add up to n (Hermite's identity).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.fast_small_array_operations import among
from weft.matching.party_view import PartyView
from weft.solvers.secret_sharing.table_positions import WholeTable
from weft.solvers.secret_sharing.table_product_kernels import round_cells


class Parts(NamedTuple):
    """(rows × columns) how many hold each cell of a party's table, and its place among them."""

    holders: Ints
    places: Ints


def parts_of(view: PartyView, table: WholeTable) -> Parts | None:
    """Which part of every cell a party brings; None: it holds all of its cells alone.

    Of a cell of which it is not sure who holds it, it rounds its part by itself: tables of others
    may cover cells that they have no value of.
    """
    if view.cell_holders is None or view.overlap != "mean":
        return None
    told = view.cell_holders[view.row_cohort][:, view.column_cohort]
    own = table.places[view.party]
    covered, before = np.ones(own.shape, np.int64), np.zeros(own.shape, np.int64)
    for party, other in enumerate(table.places):
        if party == view.party:
            continue
        both = np.outer(among(own.rows, other.rows), among(own.columns, other.columns))
        covered += both
        before += both if party < view.party else 0
    sure = covered == told
    return Parts(np.where(sure, told, 1), np.where(sure, before, 0))


def round_parts(block: Floats, bits: int, parts: Parts | None) -> NDArray[np.float32]:
    """Round what a party brings, in place; returns by how many units each cell moved."""
    if parts is None:
        return round_cells(block, bits)
    exact = block * 2.0**bits
    whole = np.rint(exact * parts.holders)
    found = np.floor((whole + parts.places) / parts.holders)
    block[...] = found * 2.0**-bits
    moved: NDArray[np.float32] = (found - exact).astype(np.float32)
    return moved
