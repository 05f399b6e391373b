"""Data sets by name: three that come with scikit-learn, and those that plug-ins add."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.data.named_data_set_files import DataFolder, load_with
from weft.data.tile import Names, Table, Task
from weft.plugins import Registry


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A data set that loads by its name.

    Attributes
    ----------
    rows, columns, task
        What the table will be, as the loader gives it without options.
    source
        Where its values come from: the files in the data directory, and their author.
    note
        One line on what it is.
    loader
        Makes the table from a `DataFolder` and options.
    needs_data_dir
        Whether the loader reads files.
    """

    name: str
    rows: int
    columns: int
    task: Task
    source: str
    note: str
    loader: Callable[..., Table]
    needs_data_dir: bool = True


def load(name: str, data_dir: str | os.PathLike[str] | None = None, **options: object) -> Table:
    """Load a data set by name.

    Parameters
    ----------
    name : str
        One of the names that `describe` lists.
    data_dir : path, optional
        Directory with the original files; without it the environment variable WEFT_DATA
        names the directory. Data sets that come with scikit-learn need none.
    **options
        What the data set's loader takes besides, such as ``part="test"`` for mnist.

    Returns
    -------
    Table
        The central table.
    """
    loader = DATA_SETS.find(name, "data set").loader
    return load_with(loader, DataFolder.of(name, data_dir), options, f"data set {name!r}")


def describe() -> list[DataSet]:
    """List the named data sets, those that come with scikit-learn first."""
    return list(DATA_SETS.values())


def row_ids(count: int) -> Names:
    """Sample ids "0", "1", … of a data set that has none of its own."""
    return np.array([str(row) for row in range(count)], dtype=object)


def pixel_names(side: int) -> Names:
    """Names r0c0, r0c1, … of the pixels of a side × side image, row by row."""
    return np.array([f"r{row}c{col}" for row in range(side) for col in range(side)], dtype=object)


def _bundled(name: str, task: Task, folder: DataFolder) -> Table:
    # Copies: whoever loads a table may write into it.
    ids, features, block, labels = _from_scikit_learn(name)
    return Table(ids.copy(), features.copy(), block.copy(), labels.copy(), task, name)


@cache
def _from_scikit_learn(name: str) -> tuple[Names, Names, Floats, NDArray[Any]]:
    """Ids, features, values and labels: reading the file takes longer than many a training."""
    # Imported late: scikit-learn takes a second to load and most runs do not need it here.
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    features = np.array(list(map(str, bunch.feature_names)), dtype=object)
    if name == "digits":
        features = pixel_names(8)
    block = np.ascontiguousarray(bunch.data, dtype=np.float64)
    return row_ids(len(block)), features, block, bunch.target


#: What comes with scikit-learn: name, samples, features, task and a line on it.
_BUNDLED: tuple[tuple[str, int, int, Task, str], ...] = (
    ("digits", 1797, 64, "classification", "8 × 8 images of digits, values 0 to 16, ten classes"),
    (
        "breast_cancer",
        569,
        30,
        "classification",
        "Wisconsin diagnostic, label 1 = benign, 0 = malignant",
    ),
    ("diabetes", 442, 10, "regression", "columns centred and scaled as scikit-learn ships them"),
)

DATA_SETS = Registry(
    "data_sets",
    {
        name: DataSet(
            name=name,
            rows=rows,
            columns=columns,
            task=task,
            source="scikit-learn",
            note=note,
            loader=partial(_bundled, name, task),
            needs_data_dir=False,
        )
        for name, rows, columns, task, note in _BUNDLED
    },
    lambda value: isinstance(value, DataSet),
)
