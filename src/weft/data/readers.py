"""Reading a party's tile from the file it has.

Ids are read as text, exactly as written ("007" is not "7") but for surrounding blanks, which
are stripped, as they are from column names. A blank cell is a missing cell.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
import scipy.sparse as sp

from weft.data.tile import Labels, Names, Tile, as_labels
from weft.errors import DataError

_BLANKS = ["", "NA", "N/A", "#N/A", "NaN", "nan", "NULL", "null", "None"]
#: Suffixes of tables with a header.
TABLES = (".csv", ".csv.gz", ".csv.xz", ".parquet")
_READ_FAILURES = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, lzma.LZMAError)


def read_tile(
    path: str | Path,
    *,
    id_column: str = "id",
    label_column: str | None = None,
    features: Sequence[str] | None = None,
    party: str = "",
) -> Tile:
    """Read one party's tile; the suffix of the file says how.

    Parameters
    ----------
    path : path
        ``.csv``, ``.csv.gz``, ``.csv.xz`` or ``.parquet``: a table with a header.
        ``.libsvm`` or ``.svm``: the label comes first in each line, features are called "1",
        "2", … after their 1-based index, and the ids are the lines of a text file beside it
        called like it with ``.ids`` at the end, or else the row numbers "1", "2", ….
        ``.npz``: arrays ``ids``, ``features`` and ``X``, or for a sparse tile ``data``,
        ``indices``, ``indptr`` and ``shape`` of its CSR form, and labels ``y`` if any.
    id_column : str
        Column of the sample ids (tables only).
    label_column : str, optional
        Column of the labels (tables only); without it no column is taken as labels.
    features : sequence of str, optional
        Feature columns to read; by default all columns but ids and labels.
    party : str
        Name of the party, for error messages.

    Returns
    -------
    Tile
        With the file's name as its source.

    Raises
    ------
    DataError
        When the file cannot be used as it is; the message names the column or the sample.
    """
    path = Path(path)
    name = path.name.lower()
    try:
        if not path.is_file():
            raise DataError(f"{path}: there is no such file; check the path.")
        if name.endswith(TABLES):
            tile = _read_table(path, id_column, label_column, features)
        elif name.endswith((".libsvm", ".svm")):
            tile = _some_features(_read_libsvm(path), features)
        elif name.endswith(".npz"):
            tile = _some_features(_read_npz(path), features)
        else:
            raise DataError(
                f"{path.name}: the suffix {path.suffix!r} is unknown; use {', '.join(TABLES)}, "
                ".libsvm, .svm or .npz."
            )
        if not tile.n:
            raise DataError(f"{path.name}: the file has no rows; export it again with its data.")
        if not tile.m:
            raise DataError(
                f"{path.name}: no feature columns are left besides ids and labels; add at least "
                "one or check 'features'."
            )
        return tile
    except DataError as error:
        if party:
            raise DataError(f"party {party!r}, {error}") from error
        raise


def _read_table(
    path: Path, id_column: str, label_column: str | None, features: Sequence[str] | None
) -> Tile:
    """A tile from a CSV or Parquet file; only the columns asked for are parsed."""
    header = column_names(path)
    raw = {name.strip(): name for name in header}
    if len(raw) < len(header):
        stripped = [name.strip() for name in header]
        twice = next(name for name in stripped if stripped.count(name) > 1)
        raise DataError(f"{path.name}: column {twice!r} occurs more than once; rename one of them.")
    _require([id_column], raw, "id column", path.name)
    if label_column is not None:
        _require([label_column], raw, "label column", path.name)
    if features is None:
        features = [name for name in raw if name not in (id_column, label_column)]
    else:
        _require(features, raw, "feature column", path.name)
        for name in (id_column, label_column):
            if name in features:
                raise DataError(
                    f"{path.name}: column {name!r} cannot be a feature, since it holds the ids or "
                    "the labels; take it out of 'features'."
                )
    labelled = [] if label_column is None else [label_column]
    wanted = list(dict.fromkeys([id_column, *features, *labelled]))
    numeric = [raw[name] for name in features]
    columns = _read_columns(path, [raw[name] for name in wanted], raw[id_column], numeric)
    columns = columns.rename_columns(wanted)
    ids = _ids(columns[id_column], path.name)
    block = np.empty((len(ids), len(features)))
    for position, feature in enumerate(features):
        block[:, position] = _numbers(columns[feature], feature, ids, path.name)
    labels = None if label_column is None else _labels(columns[label_column])
    return Tile(ids, np.array(features, dtype=object), block, labels, path.name)


def column_names(path: Path) -> list[str]:
    """Column names of a CSV or Parquet table, as the file has them."""
    try:
        if path.name.lower().endswith(".parquet"):
            return list(pyarrow.parquet.read_schema(path).names)
        with _open(path) as stream:
            lines = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
            return next(csv.reader(lines), [])
    except (*_READ_FAILURES, csv.Error) as error:
        raise _unreadable(path, error) from error


def table_columns(path: Path) -> list[str] | None:
    """Stripped column names of a table; None: the file is none, or not there."""
    if not (path.is_file() and path.name.lower().endswith(TABLES)):
        return None
    return [name.strip() for name in column_names(path)]


def _read_columns(path: Path, wanted: list[str], id_column: str, numeric: list[str]) -> pa.Table:
    """The wanted columns; `numeric` ones are expected, not guaranteed, to be numbers."""
    try:
        if path.name.lower().endswith(".parquet"):
            return pyarrow.parquet.read_table(path, columns=wanted)
        types = {name: pa.float64() for name in numeric} | {id_column: pa.string()}
        try:
            return _read_csv(path, wanted, types)
        except pa.ArrowInvalid:
            # Finding the types out takes the whole file in memory, so it is only done for a
            # file with truth values, or with text that the caller then names.
            return _read_csv(path, wanted, {id_column: pa.string()})
    except _READ_FAILURES as error:
        raise _unreadable(path, error) from error


def _read_csv(path: Path, wanted: list[str], types: dict[str, pa.DataType]) -> pa.Table:
    # Blanks are missing numbers, but in a text column they stay as written: "NA" may be an
    # id or a class.
    options = pyarrow.csv.ConvertOptions(
        column_types=types,
        include_columns=wanted,
        null_values=_BLANKS,
        strings_can_be_null=False,
    )
    with _open(path) as stream:
        # Reader threads that outlive a refusal can abort the interpreter at its exit.
        alone = pyarrow.csv.ReadOptions(use_threads=False)
        return pyarrow.csv.read_csv(stream, read_options=alone, convert_options=options)


def _open(path: Path) -> Any:
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
    return openers.get(path.suffix.lower(), open)(path, "rb")


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = str(error).strip().partition("\n")[0].rstrip(".")
    return DataError(
        f"{path.name}: cannot be read as it is ({reason}); repair it or export it again."
    )


def _require(names: Iterable[str], available: Collection[str], kind: str, where: str) -> None:
    for name in names:
        if name not in available:
            near = get_close_matches(name, available, n=3, cutoff=0.6)
            listed = ", ".join(repr(column) for column in (near or list(available)[:5]))
            found = f"the closest is {listed}" if near else f"its columns begin with {listed}"
            advice = "correct the name or the file"
            if kind == "label column":
                advice += ", or set label = false where a party has no labels"
            elif kind == "id column":
                advice += ", or name another id column (id = … in a config, --id on a command line)"
            raise DataError(
                f"{where}: the {kind} {name!r} is not there; {found if listed else 'it is empty'}; "
                f"{advice}."
            )


def _ids(column: pa.ChunkedArray, where: str) -> Names:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ):
        raise DataError(
            f"{where}: the ids are of type {kind}; store them as text or whole numbers."
        )
    text = pyarrow.compute.utf8_trim_whitespace(column.cast(pa.string()))
    return np.asarray(text.to_numpy(zero_copy_only=False), dtype=object)


def _numbers(column: pa.ChunkedArray, name: str, ids: Names, where: str) -> Any:
    """Values of a feature column; blanks are NaN and truth values 0 or 1."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    ):
        values = [str(value) for value in column.to_pylist()]
        offending = (row for row, value in enumerate(values) if not _is_number(value))
        row = next(offending, 0)
        raise DataError(
            f"{where}: column {name!r} is not numeric, its first such value is "
            f"{values[row]!r} for sample {ids[row]!r}; leave the column out with 'features' or "
            "encode it as numbers."
        )
    return column.cast(pa.float64(), safe=False).to_numpy()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.strip() in _BLANKS
    return True


def _labels(column: pa.ChunkedArray) -> Labels:
    """Labels as numbers where all are, else as text; blanks are missing."""
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        column = pyarrow.compute.utf8_trim_whitespace(column.cast(pa.string()))
    return as_labels(column.to_numpy())


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


def _some_features(tile: Tile, features: Sequence[str] | None) -> Tile:
    if features is None:
        return tile
    place = {name: position for position, name in enumerate(tile.features.tolist())}
    _require(features, place, "feature column", tile.source)
    return tile.columns(np.array([place[name] for name in features], dtype=np.int64))
