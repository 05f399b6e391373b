"""How fine a table of losses may be, and how much rounding may spoil a certificate."""

from __future__ import annotations

import math

from weft.matching.holding_map import HoldingMap
from weft.solvers.settings import Settings
from weft.sums.fixed_point_bounds import Bounds

#: Points at which losses, or dual vectors, may be asked for at once: finer tables say more about
#: single samples.
MOST_STEPS = 32
#: To stay, to go all the way, and one between: fewer say nothing.
_FEWEST = 3


def most_steps(samples: int, min_batch: int) -> int:
    """Points at which a party tells the losses of so many samples.

    Where the slope of their sum changes between two points, a sample passed its kink there; so
    that ``min_batch`` of them may have, tables of few samples are coarse. A party that counts no
    sample's loss tells nothing.
    """
    if min_batch == 1 or not samples:
        return MOST_STEPS
    return max(_FEWEST, min(MOST_STEPS, samples // min_batch))


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
