"""What counts over intervals say of a column: bars, and quantiles with how exact they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.array_types import Floats
from weft.guards.cells_safe_to_describe import LEAVES, ColumnLine

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
#: Bars of a picture, at most.
_BARS = 64
#: Cells are rounded before they are counted, by less than this part of a leaf.
_ROUNDED = 2.0**-6


@dataclass(frozen=True, eq=False)
class Distribution:
    """Cells of a column by interval, added up over parties that each cut the line for itself.

    Attributes
    ----------
    counts
        Per interval of the line, how many cells parties counted in it.
    """

    line: ColumnLine
    counts: Floats

    @property
    def cells(self) -> int:
        return int(self.counts.sum())

    def quantile(self, share: float) -> dict[str, float | None] | None:
        """The value below which this share of cells lies, as `pandas.Series.quantile` has it.

        Every value between ``low`` and ``high`` may be it; ``value`` is in their middle, and
        ``bound`` how far off it can be. None: it is in an interval without an end.
        """
        if not self.cells:
            return None
        rank = (self.cells - 1) * share
        upto = np.arange(LEAVES + 1)
        line = self.line.line
        surely = np.bincount(line.end, self.counts, LEAVES + 1).cumsum()
        starts = np.bincount(line.start, self.counts, LEAVES + 1).cumsum()
        perhaps = np.append(0.0, starts[:-1])
        first = int(upto[perhaps < np.floor(rank) + 1].max())
        last = int(upto[surely >= np.ceil(rank) + 1].min())
        low = None if first == 0 else float(self.line.edge(first))
        high = None if last == LEAVES else float(self.line.edge(last))
        if low is None or high is None:
            return {"value": None, "low": low, "high": high, "bound": None}
        bound = (high - low) / 2 + _ROUNDED * self.line.width
        return {"value": (low + high) / 2, "low": low, "high": high, "bound": bound}

    def bars(self) -> dict[str, Any]:
        """Counts between edges that some party cut at, each spread evenly over its interval."""
        held = np.flatnonzero(self.counts)
        if not len(held):
            return {"edges": [], "counts": []}
        line = self.line.line
        begins, ends = line.start[held], line.end[held]
        per_leaf = self.counts[held] / (ends - begins)
        steps = np.bincount(begins, per_leaf, LEAVES + 1) - np.bincount(ends, per_leaf, LEAVES + 1)
        heights = steps.cumsum()[:LEAVES]
        first, last = int(begins.min()), int(ends.max())
        width = max(1, int(np.ceil((last - first) / _BARS)))
        edges = [*range(first, last, width), last]
        told = np.add.reduceat(heights, edges[:-1]) if len(edges) > 1 else heights[:0]
        told[-1] = heights[edges[-2] : last].sum()
        return {
            "edges": self.line.edge(np.array(edges)).tolist(),
            "counts": np.round(told, 1).tolist(),
            "below": first == 0,
            "above": last == LEAVES,
        }
