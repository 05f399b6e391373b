"""How large the values of columns are: their median and spread, which tell units apart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from weft.array_types import Floats
from weft.data.tile import Tile

#: Values that a column must have before its size says anything.
FEWEST = 20

#: Median and distance of the quartiles of the absolute values, zeros aside.
ColumnSize = tuple[float, float]


def column_sizes(tiles: Sequence[Tile], least: int = FEWEST) -> dict[str, ColumnSize]:
    """Sizes of the columns that have ``least`` values, and not the same over and over.

    Zeros are zeros in any unit, and may stand for blank cells: they are no values here.
    Of a column in several tiles, that of the tile with most values; columns of sparse tiles have
    none.
    """
    found: dict[str, tuple[int, ColumnSize]] = {}
    for tile in tiles:
        if not isinstance(tile.block, np.ndarray):
            continue
        for name, column in zip(tile.features.tolist(), tile.block.T, strict=True):
            # Neither zeros nor blanks are above zero.
            values = np.abs(column)
            values = values[values > 0]
            if len(values) < max(least, found[name][0] + 1 if name in found else 0):
                continue
            low, middle, high = _quartiles(values)
            if high > low:
                found[name] = len(values), (middle, high - low)
    return {name: size for name, (_, size) in found.items()}


def _quartiles(values: Floats) -> list[float]:
    """What ``np.quantile`` says, which takes ten times as long over columns of a small table."""
    needed, between = _places(len(values))
    values.partition(needed)
    found = []
    for below, above, share in between:
        low, high = values.item(below), values.item(above)
        step = high - low
        found.append(low + step * share if share < 0.5 else high - step * (1 - share))
    return found


@lru_cache(maxsize=64)
def _places(count: int) -> tuple[tuple[int, ...], tuple[tuple[int, int, float], ...]]:
    """Where quartiles lie among so many sorted values: which are needed, and between which two."""
    last = count - 1
    wanted = [last * part for part in (0.25, 0.5, 0.75)]
    between = tuple((int(at), min(int(at) + 1, last), at - int(at)) for at in wanted)
    needed = {place for below, above, _ in between for place in (below, above)}
    return tuple(sorted(needed)), between
