"""Data as parties hold it: tiles, files, named data sets, and ways to cut a table."""

from weft.data.named import DataSetInfo, describe, load
from weft.data.pooled_table import pool
from weft.data.readers import read_tile
from weft.data.scaling import ColumnScaling
from weft.data.splits import SPLITS, Split
from weft.data.tile import Table, Tile, settle_missing
from weft.data.writers import write_tile
from weft_papers.data.originals import fate_breast_tiles

__all__ = [
    "SPLITS",
    "ColumnScaling",
    "DataSetInfo",
    "Split",
    "Table",
    "Tile",
    "describe",
    "fate_breast_tiles",
    "load",
    "pool",
    "read_tile",
    "settle_missing",
    "write_tile",
]
