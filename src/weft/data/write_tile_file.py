"""Writing a tile to a file that `read_tile` reads back to the same tile."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from weft.data.tile import Labels, Tile, present
from weft.errors import DataError
from weft.storage.atomic_files import replacing

#: Suffixes of tables that can be written.
_TABLES = (".csv", ".csv.gz", ".csv.xz", ".parquet")
# A sparse tile is written as a table only up to this many cells (400 MB in memory).
_MOST_CELLS = 50_000_000


def write_tile(
    tile: Tile, path: str | Path, *, id_column: str = "id", label_column: str = "label"
) -> None:
    """Write a tile; the suffix of the file says how.

    The file is written beside its place and moved there when complete, so that no reader
    ever sees half of it.

    Parameters
    ----------
    tile : Tile
        What to write.
    path : path
        ``.csv``, ``.csv.gz``, ``.csv.xz``, ``.parquet`` (tables; sparse tiles are written with
        their zeros) or ``.npz`` (dense and sparse as they are).
    id_column, label_column : str
        Names of those columns in a table; the label column is left out when the tile has no
        labels. Missing cells and labels are blank.
    """
    path = Path(path)
    name = path.name.lower()
    if not name.endswith((*_TABLES, ".npz")):
        raise DataError(
            f"{path.name}: tiles cannot be written with the suffix {path.suffix!r}; use "
            f"{', '.join(_TABLES)} or .npz."
        )
    if name.endswith(".npz"):
        with replacing(path) as draft, draft.open("wb") as stream:
            np.savez(stream, **_arrays(tile))
        return
    columns = _columns(tile, path.name, id_column, label_column)
    with replacing(path) as draft:
        if name.endswith(".parquet"):
            pyarrow.parquet.write_table(columns, draft)
            return
        openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
        with openers.get(path.suffix.lower(), open)(draft, "wb") as stream:
            pyarrow.csv.write_csv(columns, stream)


def _columns(tile: Tile, where: str, id_column: str, label_column: str) -> pa.Table:
    """The tile as Arrow columns: ids, labels if any, features."""
    if tile.is_sparse and tile.n * tile.m > _MOST_CELLS:
        raise DataError(
            f"{where}: a sparse tile of {tile.n} × {tile.m} is too large for a table with all its "
            "zeros; write it as .npz."
        )
    reserved = [id_column] if tile.labels is None else [id_column, label_column]
    for name in tile.features.tolist():
        if name in reserved:
            raise DataError(
                f"{where}: the feature {name!r} has the name of the id or label column; choose "
                "another id_column or label_column."
            )
    columns: dict[str, pa.Array] = {id_column: pa.array(tile.ids, type=pa.string())}
    if tile.labels is not None:
        columns[label_column] = _label_column(tile.labels)
    dense = tile.block if isinstance(tile.block, np.ndarray) else tile.block.toarray()
    for position, name in enumerate(tile.features.tolist()):
        columns[name] = pa.array(np.ascontiguousarray(dense[:, position]), from_pandas=True)
    return pa.table(columns)


def _label_column(labels: Labels) -> pa.Array:
    if labels.dtype.kind in "biuf":
        return pa.array(labels, from_pandas=True)
    known = present(labels)
    return pa.array(
        [str(label) if given else None for label, given in zip(labels, known, strict=True)],
        type=pa.string(),
    )


def _arrays(tile: Tile) -> dict[str, Any]:
    """Arrays of an npz file, none of which needs pickling."""
    arrays: dict[str, Any] = {
        "ids": np.array(tile.ids.tolist(), dtype=str),
        "features": np.array(tile.features.tolist(), dtype=str),
    }
    if isinstance(tile.block, np.ndarray):
        arrays["X"] = tile.block
    else:
        arrays |= {
            "data": tile.block.data,
            "indices": tile.block.indices,
            "indptr": tile.block.indptr,
            "shape": np.array(tile.block.shape),
        }
    if tile.labels is not None:
        arrays["y"] = tile.labels
        if tile.labels.dtype.kind not in "biuf":
            texts = np.where(present(tile.labels), tile.labels, "")
            arrays["y"] = np.array(texts.tolist(), dtype=str)
    return arrays
