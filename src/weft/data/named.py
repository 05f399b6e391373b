"""Data sets by name: three that come with scikit-learn, the rest from a data directory."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from weft.data.data_folder import DataFolder
from weft.data.tile import Table, Task
from weft.errors import DataError
from weft_papers.data import originals
from weft_papers.data.newsgroups import newsgroups
from weft_papers.data.originals import pixel_names, row_ids


@dataclass(frozen=True)
class DataSetInfo:
    """What there is to know about a named data set before loading it."""

    name: str
    rows: int
    columns: int
    task: Task
    source: str
    needs_data_dir: bool
    note: str


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
        What the data set's loader takes besides: ``part="test"`` for mnist; ``ngrams``,
        ``target`` and ``cache_dir`` for newsgroups.

    Returns
    -------
    Table
        The central table.
    """
    if name not in _SETS:
        near = get_close_matches(name, _SETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(_SETS)}."
        raise DataError(f"there is no data set {name!r}; {hint}")
    _, loader = _SETS[name]
    allowed = [option for option in inspect.signature(loader).parameters if option != "folder"]
    for option in options:
        if option not in allowed:
            raise DataError(
                f"data set {name!r} has no option {option!r}; it takes "
                f"{', '.join(allowed) or 'none'}."
            )
    return loader(DataFolder.of(name, data_dir), **options)


def describe() -> list[DataSetInfo]:
    """List the named data sets, those that come with scikit-learn first."""
    return [info for info, _ in _SETS.values()]


def _bundled(name: str) -> Any:
    # Imported late: scikit-learn takes a second to load and most runs do not need it here.
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")()


def _digits(folder: DataFolder) -> Table:
    bunch = _bundled("digits")
    block = np.ascontiguousarray(bunch.data, dtype=np.float64)
    return Table(
        row_ids(len(block)), pixel_names(8), block, bunch.target, "classification", "digits"
    )


def _breast_cancer(folder: DataFolder) -> Table:
    bunch = _bundled("breast_cancer")
    return Table(
        row_ids(len(bunch.data)),
        np.array(bunch.feature_names.tolist(), dtype=object),
        np.ascontiguousarray(bunch.data, dtype=np.float64),
        bunch.target,
        "classification",
        "breast_cancer",
    )


def _diabetes(folder: DataFolder) -> Table:
    bunch = _bundled("diabetes")
    return Table(
        row_ids(len(bunch.data)),
        np.array(list(bunch.feature_names), dtype=object),
        np.ascontiguousarray(bunch.data, dtype=np.float64),
        bunch.target,
        "regression",
        "diabetes",
    )


def _entry(
    loader: Callable[..., Table],
    name: str,
    shape: tuple[int, int],
    task: Task,
    source: str,
    note: str,
    bundled: bool = False,
) -> tuple[str, tuple[DataSetInfo, Callable[..., Table]]]:
    return name, (DataSetInfo(name, *shape, task, source, not bundled, note), loader)


_SETS: dict[str, tuple[DataSetInfo, Callable[..., Table]]] = dict(
    [
        _entry(
            _digits,
            "digits",
            (1797, 64),
            "classification",
            "scikit-learn",
            "8 × 8 images of digits, values 0 to 16, ten classes",
            bundled=True,
        ),
        _entry(
            _breast_cancer,
            "breast_cancer",
            (569, 30),
            "classification",
            "scikit-learn",
            "Wisconsin diagnostic, label 1 = benign, 0 = malignant",
            bundled=True,
        ),
        _entry(
            _diabetes,
            "diabetes",
            (442, 10),
            "regression",
            "scikit-learn",
            "columns centred and scaled as scikit-learn ships them",
            bundled=True,
        ),
        _entry(
            originals.mnist,
            "mnist",
            (60000, 784),
            "classification",
            "mnist/*-ubyte.gz (LeCun)",
            "28 × 28 images scaled to [0, 1], ten classes; part='test' gives the other 10,000",
        ),
        _entry(
            originals.covtype,
            "covtype",
            (581012, 54),
            "classification",
            "covtype/covtype.csv.xz (UCI)",
            "derived: cover type 2 (+1) against the rest (-1), columns min-max scaled to [0, 1]",
        ),
        _entry(
            newsgroups,
            "newsgroups",
            (19997, 1604992),
            "classification",
            "newsgroups/20_newsgroups.tar.xz (original)",
            "derived: tf-idf of words and word pairs, sparse; comp, misc and rec groups (+1) "
            "against alt, sci, soc and talk (-1); the size of news20.binary but not that data set",
        ),
        _entry(
            originals.mushroom,
            "mushroom",
            (5644, 99),
            "classification",
            "mushroom/agaricus-lepiota.data.gz (UCI)",
            "derived: rows with a missing value dropped, one-hot, a constant column; poisonous "
            "(+1) against edible (-1)",
        ),
        _entry(
            originals.boston,
            "boston",
            (506, 13),
            "regression",
            "boston/boston_house_prices.csv (scikit-learn 1.1)",
            "response MEDV, the median house value in 1000 dollars",
        ),
        _entry(
            originals.mfeat,
            "mfeat",
            (2000, 649),
            "classification",
            "mfeat/*.csv.gz (UCI)",
            "six views of 2,000 digits side by side, ten classes",
        ),
        _entry(
            originals.fate_breast,
            "fate_breast",
            (569, 30),
            "classification",
            "breast/breast_hetero_{guest,host}.csv (FATE)",
            "FATE's vertical example joined: features of guest and host carry their party's name",
        ),
    ]
)
