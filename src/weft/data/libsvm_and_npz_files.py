"""Files that hold numbers only: libsvm's text, and NumPy's arrays."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from weft.data.tile import Tile
from weft.errors import DataError

NUMBER_FILES = (".libsvm", ".svm", ".npz")


def read_number_file(path: Path) -> Tile:
    """A tile with all that the file has."""
    return _read_npz(path) if path.name.lower().endswith(".npz") else _read_libsvm(path)


def _read_libsvm(path: Path) -> Tile:
    # Imported late: scikit-learn takes a second to load and other formats do not need it.
    from sklearn.datasets import load_svmlight_file

    try:
        matrix, labels = load_svmlight_file(str(path), dtype=np.float64, zero_based=False)
    except ValueError as error:
        raise DataError(
            f"{path.name}: not a libsvm file with indices from 1 on ({error}); write every line as "
            "'label index:value …'."
        ) from error
    companion = path.with_name(f"{path.name}.ids")
    if companion.is_file():
        ids = [line.strip() for line in companion.read_text(encoding="utf-8").splitlines()]
        if len(ids) != matrix.shape[0]:
            raise DataError(
                f"{companion.name}: {len(ids)} ids do not fit the {matrix.shape[0]} rows of "
                f"{path.name}; write one id per row."
            )
    else:
        ids = [str(row) for row in range(1, matrix.shape[0] + 1)]
    features = [str(index) for index in range(1, matrix.shape[1] + 1)]
    return Tile.make(ids, features, matrix, labels, path.name)


def _read_npz(path: Path) -> Tile:
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise _unreadable(path, error) from error
    pieces = ("data", "indices", "indptr", "shape")
    sparse = "X" not in arrays and all(piece in arrays for piece in pieces)
    for name in ("ids", "features") if sparse else ("ids", "features", "X"):
        if name not in arrays:
            raise DataError(
                f"{path.name}: the array {name!r} is missing; store ids, features and X (or data, "
                "indices, indptr and shape of a CSR matrix)."
            )
    block: Any = arrays.get("X")
    if sparse:
        try:
            shape = tuple(arrays["shape"].tolist())
            block = sp.csr_array(tuple(arrays[piece] for piece in pieces[:3]), shape=shape)
            block.check_format(full_check=True)
        except (TypeError, ValueError) as error:
            raise _unreadable(path, error) from error
    ids = [name.strip() if isinstance(name, str) else name for name in arrays["ids"].tolist()]
    return Tile.make(ids, arrays["features"], block, arrays.get("y"), path.name)


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = str(error).strip().partition("\n")[0].rstrip(".")
    return DataError(
        f"{path.name}: cannot be read as it is ({reason}); repair it or export it again."
    )
