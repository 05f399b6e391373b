"""A hash of what a tile holds, to know it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.data.tile import Tile


def add_tile(update: Callable[[bytes], None], tile: Tile) -> None:
    """Feed a hash with the ids, the features and the cells of a tile."""
    for names in (tile.ids, tile.features):
        update("\x00".join(names.tolist()).encode())
    block: Any = tile.block
    parts = (block,) if not tile.is_sparse else (block.data, block.indices, block.indptr)
    for part in parts:
        update(np.ascontiguousarray(part).tobytes())
