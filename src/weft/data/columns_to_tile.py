"""From the columns of a table to a tile: ids, numbers, labels, and all that is wrong in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from weft.data.columns.category_and_date_cells import category_cells, date_cells
from weft.data.columns.column_rules import ColumnRule
from weft.data.columns.column_to_numbers import SettledColumn
from weft.data.columns.raw_column_cells import Cells, DeclaredColumns, NumberCells
from weft.data.findings_with_config_fixes import MOST_EXAMPLES, Findings, Setting, shown
from weft.data.number_texts import BLANKS, ReadNumbers, Signs, number, read_numbers
from weft.data.raw_columns_and_decimal_signs import RawColumns, is_text
from weft.data.reading_options import ReadingOptions
from weft.data.tile import Labels, Names, Tile, as_labels
from weft.errors import DataError

Rows = NDArray[np.int64]
#: A column with more different texts than these is hardly a category.
MOST_LEVELS = 50


def tile_of_columns(
    raw: RawColumns,
    id_column: str,
    label_column: str | None,
    features: Sequence[str],
    options: ReadingOptions,
    found: Findings,
) -> Tile:
    """A tile of what can be used; findings say what cannot."""
    ids = _ids(raw.columns[id_column], options, found)
    plain = [feature for feature in features if feature not in (options.columns or ())]
    block = np.empty((len(ids), len(plain)))
    for position, feature in enumerate(plain):
        column = raw.columns[feature]
        block[:, position] = _numbers(column, feature, ids, raw.signs, options, found)
    declared = _declared(raw, features, ids, options, found)
    labels = None
    if label_column is not None:
        labels = _labels(raw.columns[label_column], raw.signs, options, found)
    kept = _with_own_id(ids, options, found)
    if len(kept) < len(ids):
        ids, block = ids[kept], np.ascontiguousarray(block[kept])
        labels = None if labels is None else labels[kept]
        declared = None if declared is None else declared.rows(kept)
    names = np.array(plain, dtype=object)
    named = label_column or ""
    return Tile(ids, names, block, labels, found.file, declared, label_column=named)


# ── ids ───────────────────────────────────────────────────────────────────────────────────────


def _ids(column: pa.ChunkedArray, options: ReadingOptions, found: Findings) -> Names:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_floating(kind) and _whole(column):
        # A program that knows no missing whole number has made fractions of them.
        column = column.cast(pa.int64())
    elif not (pa.types.is_integer(kind) or is_text(kind)):
        raise DataError(
            f"{found.file}: the ids are of type {kind}; store them as text or whole numbers."
        )
    text = pyarrow.compute.utf8_trim_whitespace(column.cast(pa.string()))
    ids = np.asarray(text.fill_null("").to_numpy(zero_copy_only=False), dtype=object)
    if options.id_prefix is None and options.id_width is None:
        return ids
    return _mended_ids(ids, options, found)


def _whole(column: pa.ChunkedArray) -> bool:
    values = column.drop_null().to_numpy()
    return bool(np.isfinite(values).all() and (values == np.floor(values)).all())


def _mended_ids(ids: Names, options: ReadingOptions, found: Findings) -> Names:
    prefix, width = options.id_prefix or "", options.id_width or 0
    mended = ids.copy()
    for row, name in enumerate(ids.tolist()):
        bare = name.removeprefix(prefix)
        mended[row] = bare.zfill(width) if bare.isdigit() else bare
    changed = int((mended != ids).sum())
    found.add(
        "note",
        f"{changed} of {len(ids)} ids were changed by id_prefix or id_width",
        harmless="changes ids by id_prefix or id_width",
    )
    return mended


def _with_own_id(ids: Names, options: ReadingOptions, found: Findings) -> Rows:
    """Rows that have an id which no other row has, or which is the one that counts."""
    empty = np.flatnonzero(ids == "")
    if len(empty):
        places = [str(row + 1) for row in empty[:MOST_EXAMPLES].tolist()]
        more = "" if len(empty) == 1 else f" ({len(empty)} in all)"
        found.add(
            "error",
            f"the sample id at position {places[0]} is empty{more}",
            "give every row one, or take these rows out",
            harmless="has rows without a sample id",
            count=len(empty),
            examples=tuple(places),
        )
    first = ~pd.Series(ids).duplicated(keep=options.duplicates or "first").to_numpy()
    first[empty] = False
    twice = ids[~first & (ids != "")]
    if len(twice):
        names = tuple(pd.unique(twice)[:MOST_EXAMPLES].tolist())
        many = "" if len(twice) == 1 else f" ({len(twice)} such rows in all: {shown(names)})"
        if options.duplicates is not None:
            found.add(
                "note",
                f"{len(twice)} rows were left out, whose ids occur more than once (duplicates = "
                f"{options.duplicates!r})",
                harmless="leaves out rows whose ids occur more than once",
                count=len(twice),
            )
        else:
            found.add(
                "error",
                f"the sample id {names[0]!r} occurs more than once{many}",
                'keep one of each or rename, or say which counts with duplicates = "first" or '
                '"last"',
                harmless="has sample ids more than once",
                count=len(twice),
                examples=names,
                setting=("duplicates", "first"),
            )
    return np.flatnonzero(first)


# ── numbers ───────────────────────────────────────────────────────────────────────────────────


def _numbers(
    column: pa.ChunkedArray,
    name: str,
    ids: Names,
    signs: Signs,
    options: ReadingOptions,
    found: Findings,
) -> NDArray[np.float64]:
    """Values of a feature column; blanks are NaN and truth values 0 or 1.

    Cells that are no numbers count as 0, for they are no blanks; findings name them.
    """
    kind = column.type
    if is_text(kind):
        read = read_numbers(column, signs, options.blanks or ())
        _tell(read, column, name, ids, found)
        values = read.values
        values[read.bad] = 0.0
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        known = np.flatnonzero(np.asarray(column.is_valid()))
        values = np.full(len(column), np.nan)
        values[known] = 0.0
        _tell(ReadNumbers("dates", values, known), column, name, ids, found)
    elif (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
        or pa.types.is_boolean(kind)
    ):
        if pa.types.is_boolean(kind):
            column = column.cast(pa.int8())
        values = column.cast(pa.float64(), safe=False).to_numpy()
    else:
        values = np.zeros(len(column))
        _tell(ReadNumbers("text", values, np.arange(len(column))), column, name, ids, found)
    return _finite(values, name, ids, found)


def _tell(
    read: ReadNumbers, column: pa.ChunkedArray, name: str, ids: Names, found: Findings
) -> None:
    if read.kind == "percent":
        said = f"column {name!r} has percent signs: 12 % counts as 0.12"
        found.add("note", said, column=name, harmless=f"its {said}")
    if read.kind == "truth":
        said = f"column {name!r} has words for true (1) and false (0)"
        found.add("note", said, column=name, harmless=f"its {said}")
    if not len(read.bad):
        return
    texts = [str(value) for value in column.take(read.bad).to_pylist()]
    different = list(dict.fromkeys(texts))
    many = f"{len(texts)} of {len(column)} cells: {shown(different)}"
    what = "holds dates" if read.kind == "dates" else "is not numeric"
    found.add(
        "error",
        f"column {name!r} {what}, its first such value is {texts[0]!r} for sample "
        f"{ids[read.bad[0]]!r} ({many})",
        f'leave the column out with drop = ["{name}"], or declare what becomes of it with columns',
        harmless=f"its column {name!r} {what}",
        declarable=True,
        column=name,
        count=len(texts),
        examples=tuple(different[:MOST_EXAMPLES]),
        setting=_proposed(name, read, len(column), len(different)),
    )


def _proposed(name: str, read: ReadNumbers, cells: int, different: int) -> Setting:
    """What probably becomes of a column that is no numbers: texts that come again are levels."""
    if read.kind == "dates":
        return "columns", {name: {"kind": "date", "since": "2000-01-01"}}
    if different <= MOST_LEVELS and 2 * different <= len(read.bad) and 2 * len(read.bad) > cells:
        return "columns", {name: {"kind": "category"}}
    return "drop", [name]


def _finite(
    values: NDArray[np.float64], name: str, ids: Names, found: Findings
) -> NDArray[np.float64]:
    infinite = np.flatnonzero(np.isinf(values))
    if not len(infinite):
        return values
    more = "" if len(infinite) == 1 else f" ({len(infinite)} cells in all)"
    found.add(
        "error",
        f"column {name!r} is infinite for sample {ids[infinite[0]]!r}{more}",
        "correct the value or leave the cell blank",
        harmless=f"its column {name!r} has infinite numbers",
        column=name,
        count=len(infinite),
        examples=tuple(str(ids[row]) for row in infinite[:MOST_EXAMPLES]),
        setting=("drop", [name]) if len(infinite) == len(values) else None,
    )
    values = values.copy()
    values[infinite] = 0.0
    return values


# ── declared columns ──────────────────────────────────────────────────────────────────────────


def _declared(
    raw: RawColumns, features: Sequence[str], ids: Names, options: ReadingOptions, found: Findings
) -> DeclaredColumns | None:
    """Cells of the columns that rules are declared for; None: there are none."""
    rules = {name: options.rule_of(name) for name in features if name in (options.columns or ())}
    pairs = [
        (min(pair), max(pair))
        for pair in options.interactions or ()
        if pair[0] in features and pair[1] in features
    ]
    if not rules and not pairs:
        return None
    cells: dict[str, Cells] = {}
    for name, rule in rules.items():
        column, blanks = raw.columns[name], options.blanks or ()
        if rule.kind == "category":
            cells[name] = category_cells(column, rule, blanks)
        elif rule.kind == "date":
            cells[name] = date_cells(column, name, rule, blanks, ids, found)
        else:
            values = _numbers(column, name, ids, raw.signs, options, found)
            cells[name] = NumberCells(values * (options.scale or {}).get(name, 1.0))
            _tell_outside(name, rule, cells[name], ids, found)
    return DeclaredColumns(rules, cells, tuple(dict.fromkeys(pairs)))


def _tell_outside(name: str, rule: ColumnRule, cells: Cells, ids: Names, found: Findings) -> None:
    """Numbers that have no place by what is declared, wherever curves bend."""
    bare = msgspec.structs.replace(rule, bins=None, spline=None)
    _, misfits = SettledColumn(name=name, rule=bare).numbers(cells)
    if len(misfits.outside):
        samples = tuple(str(ids[row]) for row in misfits.outside[:MOST_EXAMPLES])
        found.add(
            "error",
            f"column {name!r} has {len(misfits.outside)} number(s) outside of what is declared, "
            f"the first for sample {samples[0]!r}",
            'correct them or widen the range, or set outside = "clip", or clip, for this column',
            harmless=f"its column {name!r} has numbers outside of the range that is declared",
            column=name,
            count=len(misfits.outside),
            examples=samples,
        )
    elif misfits.clipped:
        found.add(
            "note",
            f"column {name!r}: {misfits.clipped} number(s) outside of its range count as its ends",
            # Nothing for others: a study may set the range, and ask again with another one.
            column=name,
            count=misfits.clipped,
        )


# ── labels ────────────────────────────────────────────────────────────────────────────────────


def _labels(
    column: pa.ChunkedArray, signs: Signs, options: ReadingOptions, found: Findings
) -> Labels:
    """Labels as numbers where all are, else as text; blanks are missing."""
    kind = column.type
    if not (is_text(kind) or options.classes):
        return _typed_labels(column)
    text = pyarrow.compute.utf8_trim_whitespace(column.cast(pa.string()))
    labels = np.asarray(text.fill_null("").to_numpy(zero_copy_only=False), dtype=object)
    if options.classes:
        labels = _renamed(labels, options.classes, found)
    different = [name for name in pd.unique(labels).tolist() if name]
    blank = {*BLANKS, *(options.blanks or ())}
    told = [name for name in different if name not in blank]
    if told and all(name.lower() in ("true", "false") for name in told):
        truths: dict[str, Any] = {name: name.lower() == "true" for name in told}
        return as_labels(np.array([truths.get(name) for name in labels.tolist()], dtype=object))
    read = {name: number(name, signs) for name in told if not name.endswith("%")}
    if told and len(read) == len(told) and all(value is not None for value in read.values()):
        numbers = np.array([read.get(name, np.nan) for name in labels.tolist()], dtype=np.float64)
        whole = bool(np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all())
        return numbers.astype(np.int64) if whole else numbers
    return as_labels(labels)


def _typed_labels(column: pa.ChunkedArray) -> Labels:
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        column = column.cast(pa.string())
    return as_labels(column.to_numpy())


def _renamed(labels: Names, classes: dict[str, str], found: Findings) -> Names:
    unknown = [name for name in pd.unique(labels).tolist() if name and name not in classes]
    if unknown:
        found.add(
            "doubt",
            f"the labels {shown(unknown)} are none that 'classes' names",
            "name all labels there, those that stay as they are too",
            count=int(np.isin(labels.astype(str), unknown).sum()),
            examples=tuple(unknown[:MOST_EXAMPLES]),
            setting=("classes", {**classes, **{name: name for name in unknown}}),
        )
    return np.array([classes.get(name, name) for name in labels.tolist()], dtype=object)
