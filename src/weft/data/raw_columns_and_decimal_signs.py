"""Columns as a file has them, and what commas and points mean in those that are texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute

from weft.data.findings_with_config_fixes import MOST_EXAMPLES, Findings, shown
from weft.data.number_texts import Signs, find_usage, plain_numbers
from weft.data.reading_options import ReadingOptions

#: Texts of a column that are looked at, where all of them are numbers in the same way.
_ENOUGH = 1000


class Columns(Protocol):
    """Columns by name: a table in memory, or one whose columns are read when they are asked for."""

    def __getitem__(self, name: str, /) -> pa.ChunkedArray: ...


@dataclass(frozen=True)
class RenamedColumns:
    """Columns under other names; ``names`` has those in the file."""

    columns: Columns
    names: Mapping[str, str]

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self.columns[self.names[name]]


class RawColumns(NamedTuple):
    """Columns as a file has them, typed where it says how; the signs of those that are texts."""

    columns: Columns
    signs: Signs


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds texts."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _telling(column: pa.ChunkedArray, options: ReadingOptions) -> list[str]:
    """Texts that tell how numbers are written: all that differ, or some if they are all alike."""
    texts = pyarrow.compute.unique(pyarrow.compute.utf8_trim_whitespace(column.cast(pa.string())))
    texts = pa.chunked_array([texts.drop_null()])
    if any(plain_numbers(texts, sign, options.blanks or ()) is not None for sign in ".,"):
        texts = texts.slice(0, _ENOUGH)
    told: list[str] = texts.to_pylist()
    return told


def signs_of(
    columns: pa.Table, texts: Sequence[str], options: ReadingOptions, found: Findings
) -> Signs:
    """What commas and points mean in a table; what was found and not said goes into a note.

    ``texts`` are columns that need not be numbers, and say nothing about it.
    """
    asked = [
        column
        for name, column in zip(columns.column_names, columns.columns, strict=True)
        if name not in texts and is_text(column.type)
    ]
    if not asked:
        return Signs(options.decimal or ".", options.thousands or "")
    usage = find_usage(text for column in asked for text in _telling(column, options))
    if options.decimal is not None:
        other = "," if options.decimal == "." else "."
        return Signs(options.decimal, options.thousands or other)
    if options.thousands in (",", "."):
        return Signs("," if options.thousands == "." else ".", options.thousands)
    if usage.decimal is None:
        first = usage.doubtful[:MOST_EXAMPLES]
        found.add(
            "doubt",
            f"numbers such as {shown(usage.doubtful)} may have a decimal comma or thousands",
            'say which, with decimal = "," or thousands = ","',
            count=len(usage.doubtful),
            examples=tuple(first),
            setting=("decimal", ","),
        )
        return Signs(",", "")
    if usage.decimal == ",":
        found.add("note", 'the decimal sign is a comma (decimal = ",")')
    if usage.thousands:
        found.add("note", f"numbers are grouped by {usage.thousands!r} (thousands)")
    return Signs(usage.decimal, usage.thousands)
