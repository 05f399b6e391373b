"""An ordinary table as one party's tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.data.tile import Tile

#: What the column with weights of a table is called.
WEIGHT = "(sample weight)"


def table_tile(
    X: Any, targets: NDArray[Any], names: Sequence[str], weights: NDArray[np.float64] | None
) -> Tile:
    """The tile; weights of samples become one more column, `WEIGHT`.

    They have a mean of one there: so a sample that weighs twice as much as others counts as if it
    stood in the table twice.
    """
    if weights is not None:
        blocks: list[Any] = [X, (weights / weights.mean())[:, None]]
        X = sp.hstack(blocks, format="csr") if sp.issparse(X) else np.hstack(blocks)
        names = [*names, WEIGHT]
    ids = [str(row) for row in range(X.shape[0])]
    return Tile.make(ids, names, X, targets, "the table")
