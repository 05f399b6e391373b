"""Data sets that come with scikit-learn, and names for rows and pixels that have none."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.data.data_folder import DataFolder
from weft.data.tile import Names, Table


def row_ids(count: int) -> Names:
    """Sample ids "0", "1", … of a data set that has none of its own."""
    return np.array([str(row) for row in range(count)], dtype=object)


def pixel_names(side: int) -> Names:
    """Names r0c0, r0c1, … of the pixels of a side × side image, row by row."""
    return np.array([f"r{row}c{col}" for row in range(side) for col in range(side)], dtype=object)


def digits(folder: DataFolder) -> Table:
    bunch = _bundled("digits")
    block = np.ascontiguousarray(bunch.data, dtype=np.float64)
    return Table(
        row_ids(len(block)), pixel_names(8), block, bunch.target, "classification", "digits"
    )


def breast_cancer(folder: DataFolder) -> Table:
    bunch = _bundled("breast_cancer")
    return Table(
        row_ids(len(bunch.data)),
        np.array(bunch.feature_names.tolist(), dtype=object),
        np.ascontiguousarray(bunch.data, dtype=np.float64),
        bunch.target,
        "classification",
        "breast_cancer",
    )


def diabetes(folder: DataFolder) -> Table:
    bunch = _bundled("diabetes")
    return Table(
        row_ids(len(bunch.data)),
        np.array(list(bunch.feature_names), dtype=object),
        np.ascontiguousarray(bunch.data, dtype=np.float64),
        bunch.target,
        "regression",
        "diabetes",
    )


def _bundled(name: str) -> Any:
    # Imported late: scikit-learn takes a second to load and most runs do not need it here.
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")()
