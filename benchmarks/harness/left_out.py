"""The table that guarded parties train on, found by the rule as the threat model says it.

Where fewer than ``min_batch`` samples of a tile have a column otherwise than the rest, they have
the value of the rest: a certificate is about this table, so a judge has to be.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from weft.data import Split, Tile


def without_rare_cells(split: Split, min_batch: int = 10) -> Split:
    """A split whose tiles are one group of samples each, with those cells like the others."""
    parties = {
        party: tuple(_without(tile, min_batch) for tile in tiles)
        for party, tiles in split.parties.items()
    }
    return replace(split, parties=parties)


def _without(tile: Tile, least: int) -> Tile:
    if isinstance(tile.block, np.ndarray):
        block = tile.block.copy()
        for column in range(tile.m):
            values, counts = np.unique(block[:, column], return_counts=True)
            if tile.n - counts.max() < least:
                block[:, column] = values[counts.argmax()]
        return replace(tile, block=block)
    entries = np.bincount(tile.block.indices, minlength=tile.m)
    kept = tile.block @ sp.diags_array((entries >= least).astype(float))
    left = sp.csr_array(kept)
    left.eliminate_zeros()
    left.sort_indices()
    return replace(tile, block=left)
