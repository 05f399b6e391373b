"""Where a party's columns were cut in earlier descriptions, as its own ledger remembers it.

Counts up to two edges of two descriptions differ by the cells between them. So a ledger remembers
at which edges cells of a column were counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats

Hashes = NDArray[np.uint64]

_PARTS = ("column", "edge")


@dataclass
class EdgeMemory:
    """Edges of columns.

    Attributes
    ----------
    column
        Keyed hash of the column of each edge.
    edge
        Where it was cut.
    """

    column: Hashes
    edge: Floats

    @classmethod
    def new(cls) -> EdgeMemory:
        """No description yet."""
        return cls(np.zeros(0, np.uint64), np.zeros(0))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> EdgeMemory | None:
        """The inverse of :meth:`to_arrays`; None: that is no memory."""
        column, edge = (arrays.get(f"edges.{part}") for part in _PARTS)
        if column is None and edge is None:
            # Files from before columns were described.
            return cls.new()
        if column is None or edge is None:
            return None
        whole = column.dtype == np.uint64 and edge.dtype == np.float64 and column.ndim == 1
        return cls(column, edge) if whole and column.shape == edge.shape else None

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For a file."""
        return {f"edges.{part}": getattr(self, part) for part in _PARTS}

    def of(self, column: int) -> Floats:
        """Edges that a column was cut at."""
        found: Floats = self.edge[self.column == np.uint64(column)]
        return found

    def add(self, column: int, edges: Floats) -> None:
        """Take down where a column is cut."""
        new = np.setdiff1d(edges, self.of(column))
        self.column = np.append(self.column, np.full(len(new), column, np.uint64))
        self.edge = np.append(self.edge, new)
