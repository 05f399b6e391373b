"""How much the rounding of inner products may spoil a certificate."""

from __future__ import annotations

import math

from weft.matching.holding_map import HoldingMap
from weft.solvers.settings import Settings
from weft.sums.fixed_point_bounds import Bounds

#: Relative rounding of fixed point within its range.
FIXED_POINT = 2.0**-48
#: The gap that rounding must not spoil where none is asked for.
FINEST = 1e-6
#: What share of gap and loss at zero the rounding of inner products may make up.
_BEARABLE = 1e-4


def rows_give_products(holdings: HoldingMap, settings: Settings, bounds: Bounds) -> bool:
    """Whether Zᵀa/N is cheaper than b·b, and exact enough to bound P* by."""
    error = bounds.products * FIXED_POINT * bounds.alpha
    error /= settings.smallest_lam * math.sqrt(holdings.n_samples)
    bearable = _BEARABLE * (settings.gap or FINEST) * bounds.at_zero
    return holdings.n_samples < holdings.columns.n_slots and error < bearable
