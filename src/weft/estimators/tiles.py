"""What can be fitted: tiles in every form that names who holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import scipy.sparse as sp

from weft.data.splits import Split
from weft.data.tile import Tile
from weft.errors import DataError

Tiles = Mapping[str, Sequence[Tile]]


def tiles_of(data: Any) -> Tiles | None:
    """Tiles by party; None where the data is an ordinary table."""
    if isinstance(data, Split):
        return data.parties
    if isinstance(data, Tile):
        return {"p1": (data,)}
    # scipy's dictionary-of-keys matrix is a mapping too, but a table all the same.
    if isinstance(data, Mapping) and not sp.issparse(data):
        return {str(name): _held(str(name), tiles) for name, tiles in data.items()}
    if isinstance(data, list | tuple) and data and all(isinstance(t, Tile) for t in data):
        return {f"p{number}": (tile,) for number, tile in enumerate(data, 1)}
    return None


def _held(party: str, tiles: Any) -> tuple[Tile, ...]:
    held = (tiles,) if isinstance(tiles, Tile) else tiles
    if not isinstance(held, list | tuple) or not all(isinstance(tile, Tile) for tile in held):
        raise DataError(f"party {party} must hold a Tile or a list of them; see Tile.make")
    return tuple(held)
