"""A file with all columns, as a table to cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from weft.data.readers import read_tile
from weft.data.tile import Labels, Table, Task
from weft.errors import DataError

# Whole numbers with more different values than this are taken as a response, not as classes.
_MOST_CLASSES = 20


def table_of_file(path: Path, *, id_column: str, label_column: str) -> Table:
    """Read a table; its labels tell whether it is for classification or regression."""
    tile = read_tile(path, id_column=id_column, label_column=label_column)
    if tile.labels is None or not tile.labelled.any():
        raise DataError(f"{path.name}: no sample has a label; name the label column with --label")
    task = _task(tile.labels[tile.labelled])
    name = path.name.partition(".")[0]
    return Table(tile.ids, tile.features, tile.block, tile.labels, task, name, path.name)


def _task(labels: Labels) -> Task:
    if labels.dtype.kind not in "biuf":
        return "classification"
    values = np.unique(labels.astype(np.float64))
    whole = bool((values == np.floor(values)).all())
    return "classification" if whole and len(values) <= _MOST_CLASSES else "regression"
