"""Quick ways with arrays of few numbers, where numpy's general functions take ten times as long.

Parties, cohorts and columns are few as a rule, and are looked through in every set-up.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Ints

#: Up to so many numbers; for more, numpy's way is as quick.
_FEW = 2_000


def among(values: NDArray[Any], known: NDArray[Any]) -> Flags:
    """Which whole numbers are among those known; both arrays have one axis."""
    if len(known) == 0 or len(values) > _FEW or len(known) > _FEW:
        return np.isin(values, known)
    ordered = known.copy()
    ordered.sort()
    # Behind the last one stands nothing: whatever is larger is held against the last.
    found: Flags = ordered.take(ordered.searchsorted(values), mode="clip") == values
    return found


def cut(values: NDArray[Any], lengths: Ints) -> list[NDArray[Any]]:
    """Parts of these lengths, one behind the other, which cover all values; views, as a rule."""
    return [values[begin:end] for begin, end in pairwise([0, *np.cumsum(lengths).tolist()])]


def side_by_side(table: NDArray[Any], width: int) -> list[NDArray[Any]]:
    """Parts of so many columns each, which are all of a table; views."""
    columns = table.shape[1]
    if not columns or columns % width:
        raise ValueError(f"{columns} columns are no parts of {width} each")
    return [table[:, begin : begin + width] for begin in range(0, columns, width)]
