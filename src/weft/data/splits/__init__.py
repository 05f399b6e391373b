"""Ways to cut a table into tiles, by name in `SPLITS`."""

from __future__ import annotations

from collections.abc import Callable

from weft.data.splits.cutting import LabelRule, Overlap, Split
from weft.data.splits.even import columns, grid, overlapping, rows
from weft_papers.data.splits import class_blocks, dealt, quadrants, sorted_response

SPLITS: dict[str, Callable[..., Split]] = {
    "rows": rows,
    "columns": columns,
    "grid": grid,
    "overlapping": overlapping,
    "quadrants": quadrants,
    "dealt": dealt,
    "class_blocks": class_blocks,
    "sorted_response": sorted_response,
}

__all__ = [
    "SPLITS",
    "LabelRule",
    "Overlap",
    "Split",
    "class_blocks",
    "columns",
    "dealt",
    "grid",
    "overlapping",
    "quadrants",
    "rows",
    "sorted_response",
]
