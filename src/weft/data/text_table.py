"""Tables in text files: read in one pass where all is as expected, and with care where not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from weft.data.findings_with_config_fixes import MOST_EXAMPLES, Findings
from weft.data.number_texts import BLANKS, Signs, find_usage
from weft.data.raw_columns_and_decimal_signs import RawColumns, signs_of
from weft.data.reading_options import ReadingOptions
from weft.data.text_file_layout import TextLayout, find_layout, opened


@dataclass(frozen=True)
class TextTable:
    """A text file whose layout is known."""

    path: Path
    layout: TextLayout
    options: ReadingOptions

    @classmethod
    def opened(cls, path: Path, options: ReadingOptions, found: Findings) -> TextTable:
        """Look at a file."""
        return cls(path, find_layout(path, options, found), options)

    @property
    def header(self) -> list[str]:
        return self.layout.header

    def read(self, wanted: Sequence[str], texts: Sequence[str], found: Findings) -> RawColumns:
        numbers = [name for name in wanted if name not in texts]
        decimal = self.options.decimal or self._decimal(numbers)
        types = {name: pa.float64() for name in numbers}
        try:
            columns = self._parsed(wanted, types | {name: pa.string() for name in texts}, decimal)
        except pa.ArrowInvalid:
            # Some rows or cells are not as expected. Looking at all of them as texts takes the
            # whole file in memory, so it is only done then.
            return self._read_with_care(wanted, texts, found)
        if decimal == "," and self.options.decimal is None:
            found.add("note", 'the decimal sign is a comma (decimal = ",")')
        return RawColumns(columns, Signs(decimal))

    def _decimal(self, numbers: Sequence[str]) -> str:
        """The decimal sign of the first lines; the whole file is looked at if it does not fit."""
        places = [self.header.index(name) for name in numbers]
        cells = (row[place] for row in self.layout.sample for place in places if place < len(row))
        return find_usage(cells).decimal or "."

    def _read_with_care(
        self, wanted: Sequence[str], texts: Sequence[str], found: Findings
    ) -> RawColumns:
        odd = _OddRows()
        columns = self._parsed(wanted, dict.fromkeys(wanted, pa.string()), ".", odd)
        odd.tell(found)
        return RawColumns(columns, signs_of(columns, texts, self.options, found))

    def _parsed(
        self,
        wanted: Sequence[str],
        types: Mapping[str, pa.DataType],
        decimal: str,
        odd: _OddRows | None = None,
    ) -> pa.Table:
        # Blanks are missing numbers, but in a text column they stay as written: "NA" may be an
        # id or a class.
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict(types),
            include_columns=list(wanted),
            null_values=[*BLANKS, *(self.options.blanks or ())],
            strings_can_be_null=False,
            decimal_point=decimal,
        )
        parse = pyarrow.csv.ParseOptions(
            delimiter=self.layout.separator,
            newlines_in_values=odd is not None,
            invalid_row_handler=odd,
        )
        # Reader threads that outlive a refusal can abort the interpreter at its exit.
        read = pyarrow.csv.ReadOptions(use_threads=False, encoding=self.layout.encoding)
        with opened(self.path) as stream:
            return pyarrow.csv.read_csv(stream, read, parse, convert)


class _OddRows:
    """Rows with more or fewer cells than the header: they are left out and told."""

    def __init__(self) -> None:
        self.count = 0
        self.rows: list[str] = []
        self.first = ""

    def __call__(self, row: Any) -> str:
        self.count += 1
        if not self.rows:
            self.first = f"Expected {row.expected_columns} columns, got {row.actual_columns}"
        if len(self.rows) < MOST_EXAMPLES:
            self.rows.append(str(row.number))
        return "skip"

    def tell(self, found: Findings) -> None:
        """A finding, if there were any."""
        if self.count:
            found.add(
                "error",
                f"cannot be read as it is ({self.first} in row {self.rows[0]}; {self.count} such "
                f"row{'s' * (self.count > 1)} in all)",
                "put cells that hold the separator in quotes, or export the file again",
                count=self.count,
                examples=tuple(self.rows),
            )
