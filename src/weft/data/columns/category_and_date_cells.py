"""From a column of a file to the cells of a category or of dates, and what is wrong in them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute

from weft.data.cells_to_arrow import text_of_cell
from weft.data.columns.column_rules import ColumnRule
from weft.data.columns.date_texts import days_of, read_dates
from weft.data.columns.raw_column_cells import CategoryCells, NumberCells
from weft.data.findings_with_config_fixes import MOST_EXAMPLES, Findings, shown
from weft.data.number_texts import BLANKS
from weft.data.tile import Names


def category_cells(
    column: pa.ChunkedArray, rule: ColumnRule, blanks: Sequence[str]
) -> CategoryCells:
    """Levels as they are compared: without blanks around them, and as the rule maps them."""
    codes, texts = _different_texts(column)
    named = rule.map or {}
    levels = [named.get(text, text) for text in texts]
    skipped = {*BLANKS, *blanks}
    known: dict[str, int] = {}
    place = np.full(len(texts) + 1, -1, np.int64)
    for number, (text, level) in enumerate(zip(texts, levels, strict=True)):
        if text not in skipped or text in named:
            place[number] = known.setdefault(level, len(known))
    return CategoryCells(tuple(known), place[codes])


def date_cells(
    column: pa.ChunkedArray,
    name: str,
    rule: ColumnRule,
    blanks: Sequence[str],
    ids: Names,
    found: Findings,
) -> NumberCells:
    """Dates as days since 1970; findings name what is none, or could be two."""
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        times = column.cast(pa.timestamp("us")).to_numpy()
        return NumberCells(days_of(np.asarray(times, "datetime64[us]")))
    codes, texts = _different_texts(column)
    read = read_dates(texts, rule.format)
    if read.doubtful:
        found.add(
            "doubt",
            f"column {name!r} has dates such as {shown(read.doubtful)}, whose day and month could "
            "be either way round",
            f'say which, with format = "%d/%m/%Y" or format = "%m/%d/%Y" for column {name!r}',
            harmless=f"its column {name!r} has dates that can be read in two ways",
            column=name,
            count=len(read.doubtful),
            examples=tuple(read.doubtful[:MOST_EXAMPLES]),
        )
    skipped = {*BLANKS, *blanks}
    wrong = np.isnan(read.days) & np.array([text not in skipped for text in texts], bool)
    bad = np.flatnonzero(np.append(wrong, False)[codes])
    if len(bad):
        strange = list(dict.fromkeys(texts[code] for code in codes[bad].tolist()))
        found.add(
            "error",
            f"column {name!r} is declared to hold dates, but {strange[0]!r} is none for sample "
            f"{ids[bad[0]]!r} ({len(bad)} of {len(codes)} cells: {shown(strange)})",
            "correct the cells, leave them blank, or say how they are written with format",
            harmless=f"its column {name!r} has cells that are no dates",
            column=name,
            count=len(bad),
            examples=tuple(strange[:MOST_EXAMPLES]),
        )
    return NumberCells(np.append(read.days, np.nan)[codes])


def _different_texts(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """Per row which text it has, −1 where there is none; and the texts, in one form of Unicode."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        cells = pyarrow.compute.utf8_trim_whitespace(column).to_numpy(zero_copy_only=False)
    else:
        cells = np.array([text_of_cell(cell) for cell in column.to_pylist()], dtype=object)
    codes, different = pd.factorize(np.asarray(cells, dtype=object))
    return codes, [" ".join(unicodedata.normalize("NFC", t).split()) for t in different.tolist()]
