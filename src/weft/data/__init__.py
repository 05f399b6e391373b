"""Data as parties hold it: tiles, files, named data sets, and ways to cut a table."""

from weft.data.apply_scaling import ColumnScaling
from weft.data.blank_cells import settle_missing
from weft.data.named_data_sets import DataSet, describe, load
from weft.data.pooled_table import pool
from weft.data.read_tiles import read_tile
from weft.data.reading_options import ReadingOptions
from weft.data.splits import SPLITS, Split
from weft.data.tile import Table, Tile
from weft.data.write_tiles import write_tile

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
