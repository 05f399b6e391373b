"""Columns of cells of any type, as workbooks and some databases give them, in Arrow's form."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa


def column_of_cells(cells: Sequence[object]) -> pa.ChunkedArray:
    """One typed column where all cells are of one kind, else the texts of the cells."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if not kinds:
        return pa.chunked_array([pa.nulls(len(cells))])
    if kinds <= {bool}:
        return pa.chunked_array([pa.array(cells, pa.bool_())])
    if kinds <= {int} and all(cell is None or -(2**63) <= cell < 2**63 for cell in cells):  # type: ignore[operator]
        return pa.chunked_array([pa.array(cells, pa.int64())])
    if kinds <= {int, float, Decimal}:
        numbers = [None if cell is None else float(cell) for cell in cells]  # type: ignore[arg-type]
        return pa.chunked_array([pa.array(numbers, pa.float64())])
    return pa.chunked_array([pa.array([text_of_cell(cell) for cell in cells], pa.string())])


def text_of_cell(cell: object) -> str | None:
    """A cell as a text file would have it."""
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, datetime):
        return (
            cell.isoformat(sep=" ") if cell.time().isoformat() != "00:00:00" else str(cell.date())
        )
    if isinstance(cell, date):
        return cell.isoformat()
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    return str(cell)
