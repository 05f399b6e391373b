"""Data as parties hold it: tiles, files, named data sets, and ways to cut a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.lazy_names import found_on_first_use

if TYPE_CHECKING:
    from weft.data.apply_scaling import ColumnScaling
    from weft.data.blank_cells import settle_missing
    from weft.data.named_data_sets import DataSet, describe, load
    from weft.data.pooled_table import pool
    from weft.data.read_tiles import read_tile
    from weft.data.reading_options import ReadingOptions
    from weft.data.splits import SPLITS, Split
    from weft.data.tile import Table, Tile
    from weft.data.write_tile_file import write_tile

__all__ = [
    "SPLITS",
    "ColumnScaling",
    "DataSet",
    "ReadingOptions",
    "Split",
    "Table",
    "Tile",
    "describe",
    "load",
    "pool",
    "read_tile",
    "settle_missing",
    "write_tile",
]

__getattr__ = found_on_first_use(
    __name__,
    {
        "ColumnScaling": "weft.data.apply_scaling",
        "DataSet": "weft.data.named_data_sets",
        "ReadingOptions": "weft.data.reading_options",
        "SPLITS": "weft.data.splits",
        "Split": "weft.data.splits",
        "Table": "weft.data.tile",
        "Tile": "weft.data.tile",
        "describe": "weft.data.named_data_sets",
        "load": "weft.data.named_data_sets",
        "pool": "weft.data.pooled_table",
        "read_tile": "weft.data.read_tiles",
        "settle_missing": "weft.data.blank_cells",
        "write_tile": "weft.data.write_tile_file",
    },
)
