"""Tables in Excel's workbooks, through openpyxl: ``pip install 'weft[excel]'``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from weft.data.cells_to_arrow import column_of_cells, text_of_cell
from weft.data.findings_with_config_fixes import Findings
from weft.data.reading_options import ReadingOptions
from weft.errors import DataError

WORKBOOKS = (".xlsx", ".xlsm")
#: A number format that shows leading zeros, which the number itself does not have.
_ZEROS = re.compile(r"0+")


def read_workbook(path: Path, options: ReadingOptions, found: Findings) -> pa.Table:
    """The table of a sheet; whole numbers that are shown with leading zeros are texts with them."""
    cells = _cells(path, options, found)
    rows = [row for row in cells if any(value is not None for value in row)]
    if not rows:
        return pa.table({})
    names = [(text_of_cell(name) or "").strip() for name in rows[0]]
    while (
        names
        and not names[-1]
        and all(len(row) < len(names) or row[len(names) - 1] is None for row in rows)
    ):
        names.pop()
    columns = [
        column_of_cells([row[place] if place < len(row) else None for row in rows[1:]])
        for place in range(len(names))
    ]
    return pa.Table.from_arrays(columns, names=names)


def _cells(path: Path, options: ReadingOptions, found: Findings) -> list[list[object]]:
    try:
        import openpyxl
    except ImportError:
        raise DataError(
            f"{path.name}: workbooks need openpyxl; install it with pip install 'weft[excel]', or "
            "save the sheet as CSV."
        ) from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:
        raise DataError(
            f"{path.name}: cannot be read as a workbook ({type(error).__name__}); open it and save "
            "it again."
        ) from None
    try:
        sheet = _sheet(book, path, options, found)
        return [[_shown(cell) for cell in row] for row in sheet.iter_rows()]
    finally:
        book.close()


def _sheet(book: Any, path: Path, options: ReadingOptions, found: Findings) -> Any:
    names = list(book.sheetnames)
    if options.sheet is not None:
        if options.sheet not in names:
            raise DataError(
                f"{path.name}: there is no sheet {options.sheet!r}; choose one of "
                f"{', '.join(map(repr, names))}."
            )
        return book[options.sheet]
    full = [name for name in names if book[name].max_row and any(True for _ in _first(book[name]))]
    if len(full) > 1:
        raise DataError(
            f"{path.name}: there are several sheets; name one of "
            f"{', '.join(map(repr, full))} with sheet = {full[0]!r}."
        )
    if len(names) > 1 and full:
        found.add("note", f"the sheet {full[0]!r} was read, the only one with cells")
    return book[full[0] if full else names[0]]


def _first(sheet: Any) -> list[object]:
    """Cells of the first row that has any."""
    for row in sheet.iter_rows(values_only=True):
        filled = [cell for cell in row if cell is not None]
        if filled:
            return filled
    return []


def _shown(cell: Any) -> object:
    value = cell.value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        shape = cell.number_format or ""
        if _ZEROS.fullmatch(shape) and len(shape) > 1:
            return str(value).zfill(len(shape))
    return value
