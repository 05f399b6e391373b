"""How curved the loss of one party's rows is along its columns."""

from __future__ import annotations

import math

import numpy as np

from weft.array_types import Slots
from weft.losses import Loss
from weft.sums.party_table_products import LocalTable

_PASSES = 50
_CLOSE = 1e-3
#: Power iteration comes from below.
_MARGIN = 1.05


def sample_curvature(table: LocalTable, loss: Loss, rows: Slots | None = None) -> float:
    """The largest curvature of one sample's loss; with kinks, as if its slope were 1."""
    squares = table.squares if rows is None else table.squares[rows]
    return _smoothness(loss) * float(squares.max(initial=0.0))


def mean_curvature(
    table: LocalTable,
    loss: Loss,
    samples: int,
    draws: np.random.Generator,
    rows: Slots | None = None,
) -> float:
    """That of the mean loss over ``samples``, of which these rows are a part.

    With parties k, ‖X‖² ≤ Σ_k ‖X_k‖², so that the number of parties times the largest of theirs
    bounds the curvature along all columns.
    """
    return _smoothness(loss) * _square_norm(table, rows, draws) / max(samples, 1)


def _smoothness(loss: Loss) -> float:
    return loss.smoothness if math.isfinite(loss.smoothness) else 1.0


def _square_norm(table: LocalTable, rows: Slots | None, draws: np.random.Generator) -> float:
    """‖X_k‖², by power iteration."""
    u = draws.standard_normal((table.n_columns, 1))
    found = 0.0
    for _ in range(_PASSES):
        u /= max(float(np.linalg.norm(u)), 1e-300)
        z = table.products(rows, u)
        u = np.zeros_like(u)
        table.accumulate(rows, z, u)
        before, found = found, float(np.linalg.norm(u))
        if abs(found - before) <= _CLOSE * found:
            break
    return _MARGIN * found
