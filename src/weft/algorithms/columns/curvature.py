"""How curved the loss is along one party's columns."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from weft.losses import Loss
from weft.sums.local_table import LocalTable

Floats = NDArray[np.float64]

_PASSES = 50
_CLOSE = 1e-3
#: Power iteration comes from below.
_MARGIN = 1.05


def curvatures(table: LocalTable, loss: Loss, samples: int, draws: np.random.Generator) -> Floats:
    """The largest curvature of one sample's loss along these columns, and that of the mean loss.

    With parties k, ‖X‖² ≤ Σ_k ‖X_k‖², so that the number of parties times the largest of either
    bounds the curvature along all columns. A loss with kinks counts as if its slope were 1.
    """
    smooth = loss.smoothness if math.isfinite(loss.smoothness) else 1.0
    one = float(table.squares.max(initial=0.0))
    return smooth * np.array([one, _square_norm(table, draws) / samples])


def _square_norm(table: LocalTable, draws: np.random.Generator) -> float:
    """‖X_k‖², by power iteration."""
    u = draws.standard_normal((table.n_columns, 1))
    found = 0.0
    for _ in range(_PASSES):
        u /= max(float(np.linalg.norm(u)), 1e-300)
        z = table.products(None, u)
        u = np.zeros_like(u)
        table.accumulate(None, z, u)
        before, found = found, float(np.linalg.norm(u))
        if abs(found - before) <= _CLOSE * found:
            break
    return _MARGIN * found
