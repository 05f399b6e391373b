"""Data sets by name: three that come with scikit-learn, and those that plug-ins add."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from weft.data.bundled import breast_cancer, diabetes, digits
from weft.data.data_folder import DataFolder, load_with
from weft.data.tile import Table, Task
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


_BUNDLED = (
    DataSet(
        name="digits",
        rows=1797,
        columns=64,
        task="classification",
        source="scikit-learn",
        note="8 × 8 images of digits, values 0 to 16, ten classes",
        loader=digits,
        needs_data_dir=False,
    ),
    DataSet(
        name="breast_cancer",
        rows=569,
        columns=30,
        task="classification",
        source="scikit-learn",
        note="Wisconsin diagnostic, label 1 = benign, 0 = malignant",
        loader=breast_cancer,
        needs_data_dir=False,
    ),
    DataSet(
        name="diabetes",
        rows=442,
        columns=10,
        task="regression",
        source="scikit-learn",
        note="columns centred and scaled as scikit-learn ships them",
        loader=diabetes,
        needs_data_dir=False,
    ),
)

DATA_SETS = Registry(
    "data_sets",
    {entry.name: entry for entry in _BUNDLED},
    lambda value: isinstance(value, DataSet),
)
