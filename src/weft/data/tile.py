"""The two shapes data has in Weft: a party's `Tile` and a data set's central `Table`.

A cell that no party holds counts as zero. A cell that a party holds but left blank is NaN
inside the tile, and `blank_cells.settle_missing` decides what becomes of it before training.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from weft.data.float32_conversion import in_single
from weft.errors import DataError

# Loaded with the first cells: whoever only names a tile waits for no data frames.
if TYPE_CHECKING:
    import pandas as pd

    from weft.data.columns.raw_column_cells import DeclaredColumns

Names: TypeAlias = NDArray[np.object_]
Labels: TypeAlias = NDArray[Any]
Sparse: TypeAlias = "sp.csr_array[np.float64, tuple[int, int]]"
Block: TypeAlias = "NDArray[np.float64] | Sparse"
Index: TypeAlias = "slice | NDArray[np.integer[Any]] | NDArray[np.bool_]"
Task: TypeAlias = Literal["classification", "regression"]
MissingPolicy: TypeAlias = Literal["error", "zero", "mean"]

#: What cells of a dense block may be.
_DENSE = (np.dtype(np.float64), np.dtype(np.float32))


class _Cells:
    """A block with the names of its rows and columns."""

    ids: Names
    features: Names
    block: Block

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.ids)

    @property
    def m(self) -> int:
        """Number of features."""
        return len(self.features)

    @property
    def is_sparse(self) -> bool:
        """Whether the block is a CSR array."""
        return not isinstance(self.block, np.ndarray)


@dataclass(frozen=True, eq=False)
class Tile(_Cells):
    """One rectangular block of the table: some samples × some features, held by one party.

    The constructor takes the arrays as they are, checks them and copies nothing; `Tile.make`
    first brings lists, Series, data frames and other sparse formats into this form.

    Parameters
    ----------
    ids : array of str objects, shape (n,)
        Sample ids, unique.
    features : array of str objects, shape (m,)
        Feature names, unique.
    block : float64 array (C-contiguous) or csr_array (sorted, no duplicates), shape (n, m)
        The values. NaN is a missing cell; infinite values are refused. A dense block may be of
        float32, as `in_single_precision` makes it: all that is computed of it is float64.
    labels : array of shape (n,), optional
        Labels of the samples. NaN, None or "" marks an unlabelled sample.
    source : str
        File or data set the tile came from, for error messages.
    declared : DeclaredColumns, optional
        Columns that become numbers by rules; they are in the block once they are.
    label_column : str
        What the column of labels is called there, for error messages.
    offset, weight : float64 arrays, shape (n,), optional
        What is added to the score of a sample, and how often its loss counts, where it has a label;
        `SampleColumns` takes them off the block.
    """

    ids: Names
    features: Names
    block: Block
    labels: Labels | None = None
    source: str = ""
    declared: DeclaredColumns | None = None
    offset: NDArray[np.float64] | None = None
    weight: NDArray[np.float64] | None = None
    label_column: str = ""

    def __post_init__(self) -> None:
        _check(self.ids, self.features, self.block, self.labels, self.source or "the tile")

    @property
    def labels_in_words(self) -> str:
        """Where its labels are, for error messages."""
        named = f" '{self.label_column}'" if self.label_column else ""
        return f"the label column{named} of {self.source or 'its tile'}"

    @classmethod
    def make(
        cls,
        ids: Iterable[object],
        features: Iterable[object],
        block: ArrayLike | pd.DataFrame | Sparse,
        labels: ArrayLike | None = None,
        source: str = "",
    ) -> Tile:
        """Build a tile from anything array-like; arrays already in Weft's form are not copied.

        Whole numbers used as ids or feature names become their decimal text.
        """
        where = source or "the tile"
        return cls(
            as_names(ids, "sample id", where),
            as_names(features, "feature name", where),
            as_block(block, where),
            None if labels is None else as_labels(labels),
            source,
        )

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Mask of the samples whose label this tile holds."""
        return np.zeros(self.n, dtype=bool) if self.labels is None else present(self.labels)

    def rows(self, index: Index) -> Tile:
        """Sub-tile of some samples; a slice of a dense block is a view, not a copy."""
        labels = None if self.labels is None else self.labels[index]
        declared = None if self.declared is None else self.declared.rows(index)
        return replace(
            self,
            ids=self.ids[index],
            block=block_rows(self.block, index),
            labels=labels,
            declared=declared,
            offset=None if self.offset is None else self.offset[index],
            weight=None if self.weight is None else self.weight[index],
        )

    def in_single_precision(self) -> Tile:
        """The same values in half the memory, rounded to 24 bits; a sparse tile stays as it is.

        Raises
        ------
        DataError
            It would lose too much of a column (:func:`weft.data.float32_conversion.in_single`).
        """
        if not isinstance(self.block, np.ndarray):
            return self
        block = in_single(self.block, self.features.tolist(), self.source or "the tile")
        return replace(self, block=cast("Block", block))

    def columns(self, index: Index) -> Tile:
        """Sub-tile of some features."""
        return replace(self, features=self.features[index], block=block_columns(self.block, index))


@dataclass(frozen=True, eq=False)
class Table(_Cells):
    """The central table of a data set: what nobody has, and what tests and demos cut up.

    Fields are those of `Tile`, with labels always present, and besides:

    Parameters
    ----------
    task : {"classification", "regression"}
        What the labels are for.
    name : str
        Name of the data set.
    """

    ids: Names
    features: Names
    block: Block
    labels: Labels
    task: Task
    name: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        _check(self.ids, self.features, self.block, self.labels, self.source or "the table")

    def rows(self, index: Index) -> Table:
        """Table of some of the samples."""
        return replace(
            self,
            ids=self.ids[index],
            block=block_rows(self.block, index),
            labels=self.labels[index],
        )

    def to_tile(self) -> Tile:
        """The whole table as one party's tile; shares the arrays."""
        return Tile(self.ids, self.features, self.block, self.labels, self.source or self.name)


def present(labels: Labels) -> NDArray[np.bool_]:
    """Mask of the labels that are neither NaN, None nor ""."""
    if labels.dtype.kind == "f":
        return cast("NDArray[np.bool_]", ~np.isnan(labels))
    if labels.dtype == object:
        import pandas as pd

        return cast("NDArray[np.bool_]", ~pd.isna(labels) & (labels != ""))
    if labels.dtype.kind == "U":
        return np.asarray(labels != "", dtype=bool)
    return np.ones(len(labels), dtype=bool)


def block_rows(block: Block, index: Index) -> Block:
    """Rows of a block, in Weft's form; a slice of a dense block stays a view."""
    if isinstance(block, np.ndarray):
        return np.ascontiguousarray(block[index])
    return block[index]


def block_columns(block: Block, index: Index) -> Block:
    """Columns of a block, in Weft's form."""
    if isinstance(block, np.ndarray):
        return np.ascontiguousarray(block[:, index])
    part = cast("Sparse", cast("Any", block)[:, index])
    part.sort_indices()
    return part


def with_data(block: Sparse, data: NDArray[np.float64]) -> Sparse:
    """Same sparsity pattern, other values; the index arrays are shared."""
    return sp.csr_array((data, block.indices, block.indptr), shape=block.shape)


def as_names(values: Iterable[object], kind: str, where: str) -> Names:
    """1-D array of str objects; whole numbers become their decimal text."""
    if isinstance(values, str):
        raise DataError(f"{where}: {kind}s must be a list, not the single text {values!r}.")
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise DataError(f"{where}: {kind}s have shape {values.shape}; give them as a flat list.")
    items = values.tolist() if isinstance(values, np.ndarray) else list(values)
    names = np.empty(len(items), dtype=object)
    names[:] = items
    if set(map(type, items)) <= {str}:
        return cast("Names", values) if _is_names(values) else names
    import pandas as pd

    for position, item in enumerate(items):
        if isinstance(item, str):
            names[position] = str(item)
        elif isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            names[position] = str(int(item))
        elif item is None or item is pd.NA or item != item:
            raise DataError(f"{where}: the {kind} at position {position + 1} is missing; give one.")
        else:
            raise DataError(
                f"{where}: the {kind} {item!r} at position {position + 1} is neither text nor a "
                "whole number; turn it into text first."
            )
    return names


def as_block(block: ArrayLike | pd.DataFrame | Sparse, where: str) -> Block:
    """float64 C-contiguous array or canonical csr_array; no copy where the input is one."""
    import pandas as pd

    try:
        if sp.issparse(block):
            sparse: Sparse = cast("Any", sp.csr_array)(block, dtype=np.float64)
            if not sparse.has_canonical_format:
                sparse = sparse.copy()
                sparse.sum_duplicates()
            return sparse
        dense = block.to_numpy(dtype=np.float64) if isinstance(block, pd.DataFrame) else block
        return np.ascontiguousarray(dense, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{where}: the values are not all numbers ({error}); encode or drop text columns."
        ) from error


def as_labels(labels: ArrayLike) -> Labels:
    """1-D array of numbers or str objects; numbers among None become floats with NaN."""
    array = np.asarray(labels)
    if array.dtype.kind in "OUT":
        array = array.astype(object)
        blank = ~present(array)
        if any(isinstance(value, str) for value in array[~blank].tolist()):
            return array
        numbers = np.full(array.shape, np.nan)
        numbers[~blank] = array[~blank]
        return numbers
    return array


def _is_names(values: object) -> bool:
    return isinstance(values, np.ndarray) and values.dtype == object and values.ndim == 1


def _values(block: Block) -> NDArray[np.float64]:
    return block if isinstance(block, np.ndarray) else block.data


def _cell(block: Block, mask: NDArray[np.bool_]) -> tuple[int, int]:
    """Row and column of the first value that `mask`, shaped like the values, marks."""
    first = int(mask.argmax())
    if isinstance(block, np.ndarray):
        row, column = divmod(first, block.shape[1])
        return int(row), int(column)
    return int(np.searchsorted(block.indptr, first, side="right")) - 1, int(block.indices[first])


def _check(ids: Names, features: Names, block: Block, labels: Labels | None, where: str) -> None:
    _check_names(ids, "sample id", where)
    _check_names(features, "feature name", where)
    if isinstance(block, np.ndarray):
        sound = block.dtype in _DENSE and block.ndim == 2 and block.flags.c_contiguous
    else:
        sound = (
            isinstance(block, sp.csr_array)
            and block.dtype == np.float64
            and bool(block.has_canonical_format)
        )
    if not sound:
        raise DataError(
            f"{where}: the values must form a table of float64 (dense ones also of float32), "
            "C-contiguous or canonical CSR; "
            "give rows and columns, as a nested list or an array, to Tile.make, which converts."
        )
    if block.shape != (len(ids), len(features)):
        raise DataError(
            f"{where}: {len(ids)} sample ids and {len(features)} feature names do not fit values "
            f"of shape {block.shape}; give one id per row and one name per column."
        )
    _check_finite(ids, features, block, where)
    if labels is not None:
        _check_labels(ids, labels, where)


def _check_names(names: Names, kind: str, where: str) -> None:
    if not _is_names(names):
        raise DataError(f"{where}: {kind}s must be a 1-D object array of text; use Tile.make.")
    items = names.tolist()
    # Sets of the items and of their types: a few microseconds for a small tile, and thousands
    # of tiles are made in one go.
    distinct = set(items)
    if len(distinct) == len(items) and "" not in distinct and set(map(type, items)) <= {str}:
        return
    seen: set[object] = set()
    for position, item in enumerate(items, start=1):
        if item is None or item != item or (isinstance(item, str) and not item):
            raise DataError(f"{where}: the {kind} at position {position} is empty; give one.")
        if type(item) is not str:
            raise DataError(f"{where}: the {kind} {item!r} is not text; use Tile.make.")
        if item in seen:
            raise DataError(
                f"{where}: the {kind} {item!r} occurs more than once; keep one of them or rename."
            )
        seen.add(item)


def _check_finite(ids: Names, features: Names, block: Block, where: str) -> None:
    values = _values(block)
    with np.errstate(over="ignore", invalid="ignore"):
        # A finite sum proves finite values without a temporary array.
        if np.isfinite(values.sum()):
            return
    infinite = np.isinf(values)
    if infinite.any():
        row, column = _cell(block, infinite)
        raise DataError(
            f"{where}: column {features[column]!r} is infinite for sample {ids[row]!r}; "
            "correct the value or leave the cell blank."
        )


def _check_labels(ids: Names, labels: Labels, where: str) -> None:
    if not isinstance(labels, np.ndarray) or labels.shape != (len(ids),):
        raise DataError(
            f"{where}: labels of shape {np.shape(labels)} do not fit {len(ids)} samples; give one "
            "label per sample, blank where it is not known."
        )
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        row = int(np.isinf(labels).argmax())
        raise DataError(f"{where}: the label of sample {ids[row]!r} is infinite; correct it.")


#: What `two_classes` makes of labels.
TWO_CLASSES = (-1.0, 1.0)


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
    labels[known] = np.where(inside, *reversed(TWO_CLASSES))
    return replace(tile, labels=labels)
