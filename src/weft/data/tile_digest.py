"""A hash of what a tile holds, to know it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.data.columns.column_rules import rule_bytes
from weft.data.columns.raw_column_cells import CategoryCells, DeclaredColumns
from weft.data.tile import Tile


def add_tile(update: Callable[[bytes], None], tile: Tile) -> None:
    """Feed a hash with the ids, the features and the cells of a tile."""
    for names in (tile.ids, tile.features):
        update("\x00".join(names.tolist()).encode())
    block: Any = tile.block
    parts = (block,) if not tile.is_sparse else (block.data, block.indices, block.indptr)
    for part in parts:
        update(np.ascontiguousarray(part).tobytes())
    for given in (tile.offset, tile.weight):
        if given is not None:
            update(np.ascontiguousarray(given).tobytes())
    if tile.declared is not None:
        _add_declared(update, tile.declared)


def _add_declared(update: Callable[[bytes], None], declared: DeclaredColumns) -> None:
    update(repr(sorted(declared.interactions)).encode())
    for name, cells in declared.cells.items():
        update(name.encode() + b"\x00" + rule_bytes(declared.rules[name]))
        if isinstance(cells, CategoryCells):
            update("\x00".join(cells.texts).encode() + cells.codes.tobytes())
        else:
            update(np.ascontiguousarray(cells.values).tobytes())
