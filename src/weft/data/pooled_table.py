"""The central table that a split stands for: the judge's view, never built in a real run."""

from __future__ import annotations

from typing import cast

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.data.splits.split_and_cutter import Overlap, Positions, Split
from weft.data.tile import Block, Labels, Names, Sparse, Table, Tile
from weft.errors import DataError


def pool(split: Split) -> Table:
    """Put the tiles of a split back together, each cell once.

    A cell that several tiles hold gets the mean of their values, the first holder's value or
    their sum, as the split says; a cell that nobody holds is zero. Samples and features stand
    in the order in which they first appear. The result is sparse when any tile is. NaN cells
    stay NaN, so settle missing cells first.

    Parameters
    ----------
    split : Split
        Tiles by party.

    Returns
    -------
    Table
        The table; labels nobody holds are NaN (numbers) or None (text).
    """
    held = list(split.tiles())
    if not held:
        raise DataError("the split has no tiles to pool; cut a table first.")
    tiles = [tile for _, tile in held]
    ids, row_places = _merge([tile.ids for tile in tiles])
    features, column_places = _merge([tile.features for tile in tiles])
    assemble = _pool_sparse if any(tile.is_sparse for tile in tiles) else _pool_dense
    block = assemble(tiles, row_places, column_places, (len(ids), len(features)), split.overlap)
    labels = _pool_labels(held, row_places, ids)
    return Table(ids, features, block, labels, split.task, split.name, split.note)


def _merge(names: list[Names]) -> tuple[Names, list[Positions]]:
    """Distinct names in order of first appearance, and where each list's names are in it."""
    places, distinct = pd.factorize(np.concatenate(names))
    ends = np.cumsum([len(part) for part in names])
    return np.asarray(distinct, dtype=object), np.split(places.astype(np.int64), ends[:-1])


def _pool_dense(
    tiles: list[Tile],
    rows: list[Positions],
    columns: list[Positions],
    shape: tuple[int, int],
    overlap: Overlap,
) -> Block:
    total = np.zeros(shape)
    holders = np.zeros(shape, dtype=np.int32)
    for tile, row, column in zip(tiles, rows, columns, strict=True):
        cells = np.ix_(row, column)
        values = np.asarray(tile.block)
        if overlap == "first":
            values = np.where(holders[cells] == 0, values, 0.0)
        total[cells] += values
        holders[cells] += 1
    if overlap == "mean":
        total /= np.maximum(holders, 1)
    return total


def _pool_sparse(
    tiles: list[Tile],
    rows: list[Positions],
    columns: list[Positions],
    shape: tuple[int, int],
    overlap: Overlap,
) -> Block:
    entries = [sp.coo_array(tile.block) for tile in tiles]
    row = np.concatenate([place[part.row] for place, part in zip(rows, entries, strict=True)])
    column = np.concatenate([place[part.col] for place, part in zip(columns, entries, strict=True)])
    data = np.concatenate([part.data for part in entries])
    if overlap != "sum":
        # A tile also holds its zeros, so holders are counted by samples and features, not by
        # stored values; only cells with a stored value can end up non-zero.
        holders = np.zeros(len(data), dtype=np.int32)
        earlier = np.zeros(len(data), dtype=np.int32)
        end = 0
        for tile_rows, tile_columns, part in zip(rows, columns, entries, strict=True):
            end += part.nnz
            holds = _mask(tile_rows, shape[0])[row] & _mask(tile_columns, shape[1])[column]
            holders += holds
            earlier[end:] += holds[end:]
        data = np.where(earlier == 0, data, 0.0) if overlap == "first" else data / holders
    pooled = cast("Sparse", sp.csr_array(sp.coo_array((data, (row, column)), shape=shape)))
    pooled.sum_duplicates()
    pooled.eliminate_zeros()
    return pooled


def _mask(places: Positions, length: int) -> NDArray[np.bool_]:
    mask = np.zeros(length, dtype=bool)
    mask[places] = True
    return mask


def _pool_labels(held: list[tuple[str, Tile]], rows: list[Positions], ids: Names) -> Labels:
    """Each sample's label from its first label holder; later holders must agree."""
    parts = [tile.labels for _, tile in held if tile.labels is not None]
    numeric = all(part.dtype.kind in "biuf" for part in parts)
    labels: Labels = np.full(len(ids), np.nan) if numeric else np.full(len(ids), None, dtype=object)
    known = np.zeros(len(ids), dtype=bool)
    for (party, tile), row in zip(held, rows, strict=True):
        if tile.labels is None:
            continue
        given = tile.labelled
        places, values = row[given], tile.labels[given]
        differs = known[places] & (labels[places] != values)
        if differs.any():
            sample = ids[places[int(differs.argmax())]]
            raise DataError(
                f"party {party!r}, {tile.source or 'its tile'}: the label of sample {sample!r} "
                "differs from that of an earlier party; make the parties' labels agree."
            )
        labels[places] = values
        known[places] = True
    whole = numeric and known.all() and all(part.dtype.kind in "biu" for part in parts)
    return labels.astype(np.result_type(*parts)) if whole and parts else labels
