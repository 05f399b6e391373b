"""The scene of HeriGraph: text and image features of posts, which not every post has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.data.named_data_set_files import DataFolder
from weft.errors import DataError
from weft_papers.hyfem.scenes.blocks_and_classes_per_party import pair_deal
from weft_papers.hyfem.scenes.image_files import subfolder
from weft_papers.hyfem.scenes.quadrants_and_stratified_rows import part, thin
from weft_papers.hyfem.scenes.scene import Scene
from weft_papers.hyfem.scenes.standardise_vectors import standardised

Values = NDArray[np.float64]

#: Its authors publish no parts for this task.
_TEST_SHARE = 0.2
_CLASSES = 9


def herigraph(
    folder: DataFolder,
    *,
    samples: int | None = None,
    test_samples: int | None = None,
    seed: int = 0,
) -> Scene:
    """Two to four feature blocks; a post without a block is at no party that needs it.

    The folder herigraph has either herigraph.npz, with ``labels`` (n) and an array (n, features)
    for each block in which rows of NaN are missing, or labels.csv (columns id and label) and for
    each block a CSV file of its name, with a column id.
    """
    found, names, tables = _read(subfolder(folder, "herigraph", "herigraph.npz, or labels.csv"))
    rows, test_rows = part(found, _TEST_SHARE, seed)
    rows = rows[thin(found[rows], samples, seed, "samples")]
    test_rows = test_rows[thin(found[test_rows], test_samples, seed, "test_samples")]
    having = {name: np.isfinite(values.sum(axis=1)) for name, values in tables.items()}
    for name, flags in having.items():
        if not flags[rows].any():
            raise DataError(f"herigraph: no training sample has the block '{name}'; leave it out.")
    scaled = {
        name: standardised(values[rows], values[test_rows]) for name, values in tables.items()
    }
    return Scene(
        "herigraph",
        {name: train for name, (train, _) in scaled.items()},
        found[rows],
        {name: test for name, (_, test) in scaled.items()},
        found[test_rows],
        names,
        pair_deal(list(tables)),
        {name: flags[rows] for name, flags in having.items()},
        {name: flags[test_rows] for name, flags in having.items()},
    )


def _read(folder: Path) -> tuple[Ints, tuple[str, ...], dict[str, Values]]:
    """Labels from 0, names of classes, and blocks with rows of NaN where there is nothing."""
    archive = folder / "herigraph.npz"
    raw, tables = _from_archive(archive) if archive.is_file() else _from_tables(folder)
    if not 2 <= len(tables) <= 4:
        raise DataError(f"{folder} has {len(tables)} feature blocks; put two to four there.")
    classes, labels = np.unique(raw, return_inverse=True)
    if len(classes) != _CLASSES:
        raise DataError(f"{folder}: the labels have {len(classes)} classes instead of {_CLASSES}.")
    return labels.astype(np.int64), tuple(str(name) for name in classes.tolist()), tables


def _from_archive(path: Path) -> tuple[NDArray[np.generic], dict[str, Values]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            labels = arrays["labels"]
            tables = {n: np.asarray(arrays[n], dtype=float) for n in arrays.files if n != "labels"}
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); write it as numpy.savez.") from error
    for name, values in tables.items():
        if values.ndim != 2 or len(values) != len(labels):
            raise DataError(
                f"{path}: block '{name}' has the shape {list(values.shape)}, but there are "
                f"{len(labels)} labels; give it a row for each."
            )
    return labels, tables


def _from_tables(folder: Path) -> tuple[NDArray[np.generic], dict[str, Values]]:
    if not (folder / "labels.csv").is_file():
        raise DataError(
            f"scene 'herigraph' needs {folder / 'herigraph.npz'}, or labels.csv and a CSV file for "
            "each block there; put them there."
        )
    labels = _indexed(folder / "labels.csv")
    if "label" not in labels.columns:
        raise DataError(f"{folder / 'labels.csv'}: there is no column label; give it one.")
    tables = {}
    for path in sorted(folder.glob("*.csv")):
        if path.name != "labels.csv":
            # Samples that the file does not list get a row of NaN.
            values = _indexed(path).reindex(labels.index)
            try:
                tables[path.stem] = values.to_numpy(dtype=np.float64)
            except ValueError as error:
                raise DataError(f"{path}: a feature is no number ({error}).") from error
    return labels["label"].to_numpy(), tables


def _indexed(path: Path) -> pd.DataFrame:
    frame = pd.read_csv(path)
    if "id" not in frame.columns:
        raise DataError(f"{path}: there is no column id; give it one.")
    frame = frame.set_index("id")
    if not frame.index.is_unique:
        raise DataError(f"{path}: an id is there twice; leave one of the rows out.")
    return frame
