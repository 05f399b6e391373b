"""Cells in single precision: what a column must be like for it to be kept so.

A float32 has 24 bits between 2^-126 and 2^127, and fewer below. Whoever makes cells small enough
for that could have all but the largest of a column vanish, and learn of one sample. So cells as
read are well inside, and factors of columns and rows are bounded (`sums/scaling_party.py`) such
that no product leaves it: what is refused depends on the file alone, or on factors alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from weft.errors import DataError

#: What a number other than zero may be as read, either way from one.
MOST_CELL = 2.0**36
#: What share of the narrowest interval with most values of a column rounding may take.
_LOST = 1e-4
#: Values that are sorted to find that interval.
_SORTED = 100_000


def in_single(
    block: NDArray[np.float64], features: Sequence[str], where: str
) -> NDArray[np.float32]:
    """A dense block in float32.

    Raises
    ------
    DataError
        A number other than zero is too large or too small, or rounding moves cells of a column by
        more than a ten-thousandth of where most of its values lie. What is exact is never refused
        for that.
    """
    kept = np.empty(block.shape, np.float32)
    for number, name in enumerate(features):
        column = np.ascontiguousarray(block[:, number])
        sizes = np.abs(column[~np.isnan(column) & (column != 0)])
        low, high = sizes.min(initial=1.0), sizes.max(initial=1.0)
        if low < 1 / MOST_CELL or high > MOST_CELL:
            size = high if high > MOST_CELL else low
            raise DataError(
                f"{where}: column {name!r} has a value of size {size:g}, and single precision "
                f"is for zero and sizes from {1 / MOST_CELL:.2g} to {MOST_CELL:.2g}; take "
                'another unit, or leave storage = "float32" out.'
            )
        kept[:, number] = column
        moved = np.fmax.reduce(np.abs(column - kept[:, number]), initial=0.0)
        if moved > 0 and _too_far(column, float(moved)):
            raise DataError(
                f"{where}: column {name!r} has values that single precision would move by up to "
                f"{moved:.2g}, which is much for how close to each other most of them are; count "
                'them from another zero, or leave storage = "float32" out.'
            )
    return kept


def _too_far(column: NDArray[np.float64], moved: float) -> bool:
    """Whether so much is a large share of the narrowest interval with most distinct values."""
    known = column[~np.isnan(column)]
    values = np.unique(known[:: 1 + len(known) // _SORTED])
    most = len(values) // 2
    if not most:
        return False
    return moved > _LOST * float((values[most:] - values[:-most]).min())
