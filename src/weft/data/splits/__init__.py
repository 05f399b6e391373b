"""Ways to cut a table into tiles, by name in `SPLITS`."""

from __future__ import annotations

from collections.abc import Callable

from weft.data.splits.even_splits import columns, grid, rows
from weft.data.splits.overlapping_tiles import overlapping
from weft.data.splits.split_and_cutter import LabelRule, Overlap, Split
from weft.plugins import Registry

#: Weft's own ways, and those that plug-ins add.
SPLITS: Registry[Callable[..., Split]] = Registry(
    "splits",
    {"rows": rows, "columns": columns, "grid": grid, "overlapping": overlapping},
    callable,
)

__all__ = [
    "SPLITS",
    "LabelRule",
    "Overlap",
    "Split",
    "columns",
    "grid",
    "overlapping",
    "rows",
]
