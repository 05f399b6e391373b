"""Labels of a tile, made fit for a problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft.data.tile import Tile


def two_classes(tile: Tile, positive: Sequence[str | float]) -> Tile:
    """Labels 1 for the values listed and -1 for all others; unknown ones stay unknown."""
    if tile.labels is None:
        return tile
    known = tile.labelled
    labels = np.full(tile.n, np.nan)
    if tile.labels.dtype.kind in "biuf":
        chosen = [float(value) for value in positive if not isinstance(value, str)]
        inside = np.isin(tile.labels[known].astype(np.float64), chosen)
    else:
        texts = {value if isinstance(value, str) else f"{value:g}" for value in positive}
        inside = np.array([str(label) in texts for label in tile.labels[known]], bool)
    labels[known] = np.where(inside, 1.0, -1.0)
    return replace(tile, labels=labels)
