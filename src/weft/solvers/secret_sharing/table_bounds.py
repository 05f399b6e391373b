"""What parties tell of their tables before anything is masked, in totals, and never exactly.

Every figure is rounded up to the next eighth of a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.matching.holding_map import HoldingMap
from weft.numba_options import OUTER
from weft.solvers.secret_sharing.digit_widths import CELL_BITS, TableBounds
from weft.solvers.secret_sharing.gamma_as_poisson import GAMMA, reach_of
from weft.solvers.secret_sharing.sample_weight_digit_widths import (
    COUNT_WEIGHT_DIGITS,
    WEIGHT_DIGITS,
    Weighing,
)
from weft.solvers.secret_sharing.supported_losses import EXPONENTIAL_LOSSES

#: Numbers that a party tells: those of its table, two of the weights of its samples, and of
#: responses of a gamma model.
BOUNDS = 10
#: Shorter sides of a table up to which its largest singular value is computed.
_SMALL_SIDE = 2048
#: Rows that are multiplied at once: no second table of the same size is made.
_BAND = 4096
#: Squares of columns' sums and norms are told in units of 2^32.
_UNIT = 2.0**-16


def own_bounds(
    block: Floats, moved: NDArray[np.float32], squares: Floats, labels: Floats | None
) -> list[float]:
    """One party's part of the bounds.

    Parameters
    ----------
    block
        Its rounded cells.
    moved
        By how many units each was rounded.
    labels
        Those it counts, for a squared loss.
    """
    columns, norms = column_totals(block)
    told = [
        _square(float(columns.max(initial=0.0))),
        float(squares.max(initial=0.0)),
        float(squares.sum()),
        largest_square(block),
        largest_square(moved) * 4.0**-CELL_BITS,
        _square(math.sqrt(norms.max(initial=0.0))),
    ]
    square = 0.0 if labels is None else float((labels**2).sum())
    return [*(rounded_up(value) for value in told), rounded_off(square)]


def table_bounds(
    totals: Sequence[float], holdings: HoldingMap, loss: str, weight: float, label: float
) -> TableBounds:
    """Bounds of the whole table from totals over all parties; no weight or label is larger.

    X is the sum of the parties' tables, each with zeros where it holds nothing. By Cauchy's
    inequality ‖Xw‖² ≤ Σ‖X_q‖² · Σ‖w_q‖², and no weight counts more often in the last sum than a
    column has holders; the same for rows. What h parties hold of a column adds up to √(h Σ m²) at
    most, if party q holds no more than m_q of any: less than Σ m where columns lie apart.
    """
    column_sums, row, squares, blocks, roundings, column_norms, labels, *others = totals
    rounding, weights, reach = others
    samples = holdings.n_samples
    holders = min(holdings.row_holders, holdings.column_holders)
    mean_square = squares / samples
    apart = math.sqrt(holdings.column_holders)
    cells = 2.0**-CELL_BITS * math.sqrt(holdings.columns.n_slots)
    return TableBounds(
        samples=samples,
        rows=holdings.rows.n_slots,
        column_sum=apart * math.sqrt(column_sums) / _UNIT,
        row_norm=math.sqrt(row) * (1 + 1e-6) + cells,
        mean_square=mean_square,
        spread=math.sqrt(min(mean_square, holders * blocks / samples)),
        cell_rounding=math.sqrt(holders * roundings / samples),
        label_square=labels / samples if loss in ("squared", *EXPONENTIAL_LOSSES) else 1.0,
        largest_label=1.0 if loss == GAMMA else label,
        response_reach=reach_of(reach),
        column_norm=apart * math.sqrt(column_norms) / _UNIT,
        weighing=_weighing(weight, rounding, weights, samples, digits_of_weights(loss)),
    )


def digits_of_weights(loss: str) -> int:
    return COUNT_WEIGHT_DIGITS if loss in EXPONENTIAL_LOSSES else WEIGHT_DIGITS


def _weighing(
    most: float, rounding: float, squares: float, samples: int, digits: int
) -> Weighing | None:
    if rounding == 0:
        return None
    return Weighing(most, math.sqrt(rounding), math.sqrt(squares / samples), digits)


def largest_square(block: NDArray[Any]) -> float:
    """Above the square of the largest singular value."""
    rows, columns = block.shape
    if not block.size:
        return 0.0
    if min(rows, columns) > _SMALL_SIDE:
        return float((block**2).sum(dtype=float))
    tall = block if columns <= rows else block.T
    product = np.zeros((min(rows, columns),) * 2)
    for begin in range(0, len(tall), _BAND):
        band = tall[begin : begin + _BAND].astype(float)
        product += band.T @ band
    return float(np.linalg.eigvalsh(product)[-1]) * (1 + 1e-9)


@numba.njit(**OUTER)
def column_totals(block: Any) -> Any:
    """Σ|x| and Σx² of every column."""
    sums, squares = np.zeros(block.shape[1]), np.zeros(block.shape[1])
    for i in range(block.shape[0]):
        for j in range(block.shape[1]):
            sums[j] += abs(block[i, j])
            squares[j] += block[i, j] ** 2
    return sums, squares


def _square(value: float) -> float:
    """In larger units: squares of what no table should hold must still be told, to be refused."""
    return (_UNIT * value) ** 2


def rounded_up(value: float) -> float:
    return 2.0 ** (math.ceil(8 * math.log2(value)) / 8) if value > 0 else 0.0


def rounded_off(value: float) -> float:
    """To 22 binary digits."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * 2.0**22) / 2.0**22, exponent)
