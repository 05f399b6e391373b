"""What parties tell of their tables before anything is masked, in totals, and never exactly.

Every figure is rounded up to the next eighth of a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weft.array_types import Floats
from weft.matching.holding_map import HoldingMap
from weft.solvers.sealed.widths import CELL_BITS, TableBounds

#: Numbers that a party tells.
BOUNDS = 7
#: Shorter sides of a table up to which its largest singular value is computed.
_SMALL_SIDE = 2048


def own_bounds(block: Floats, squares: Floats, labels: Floats | None) -> list[float]:
    """One party's part of the bounds; ``labels``: those it counts, for a squared loss."""
    rounded = np.rint(block * 2.0**CELL_BITS) / 2.0**CELL_BITS
    columns = np.abs(rounded).sum(axis=0)
    norms = np.sqrt((rounded**2).sum(axis=0))
    told = [
        float(columns.max(initial=0.0)),
        float(squares.max(initial=0.0)),
        float(squares.sum()),
        largest_square(rounded),
        largest_square(rounded - block),
        float(norms.max(initial=0.0)),
    ]
    square = 0.0 if labels is None else float((labels**2).sum())
    return [*(_rounded_up(value) for value in told), _rounded_off(square)]


def table_bounds(totals: Sequence[float], holdings: HoldingMap, squared: bool) -> TableBounds:
    """Bounds of the whole table from totals over all parties.

    X is the sum of the parties' tables, each with zeros where it holds nothing. By Cauchy's
    inequality ‖Xw‖² ≤ Σ‖X_q‖² · Σ‖w_q‖², and no weight counts more often in the last sum than a
    column has holders; the same for rows.
    """
    column_sum, row, squares, blocks, roundings, column_norm, labels = totals
    samples = holdings.n_samples
    holders = min(holdings.row_holders, holdings.column_holders)
    mean_square = squares / samples
    rounding = 2.0**-CELL_BITS * math.sqrt(holdings.columns.n_slots)
    return TableBounds(
        samples=samples,
        rows=holdings.rows.n_slots,
        column_sum=column_sum,
        row_norm=math.sqrt(row) * (1 + 1e-6) + rounding,
        mean_square=mean_square,
        spread=math.sqrt(min(mean_square, holders * blocks / samples)),
        cell_rounding=math.sqrt(holders * roundings / samples),
        label_square=labels / samples if squared else 1.0,
        column_norm=column_norm,
    )


def largest_square(block: Floats) -> float:
    """Above the square of the largest singular value."""
    rows, columns = block.shape
    if not block.size:
        return 0.0
    if min(rows, columns) > _SMALL_SIDE:
        return float((block**2).sum())
    product = block.T @ block if columns <= rows else block @ block.T
    return float(np.linalg.eigvalsh(product)[-1]) * (1 + 1e-9)


def _rounded_up(value: float) -> float:
    return 2.0 ** (math.ceil(8 * math.log2(value)) / 8) if value > 0 else 0.0


def _rounded_off(value: float) -> float:
    """To 22 binary digits."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * 2.0**22) / 2.0**22, exponent)
