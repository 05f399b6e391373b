"""How much rounding may spoil a certificate, and where vectors are kept in fewer digits."""

from __future__ import annotations

import math

from weft.matching.holding_map import HoldingMap
from weft.solvers.run_settings import Settings
from weft.sums.largest_possible_sums import Bounds

#: Relative rounding of fixed point within its range.
FIXED_POINT = 2.0**-48
#: That of single precision.
SINGLE = 2.0**-24
#: The gap that rounding must not spoil where none is asked for.
FINEST = 1e-6
#: Samples from which vectors over them are kept in fewer digits, and the gap that these do for.
MANY_SAMPLES, COARSE = 500_000, 1e-4
#: What share of gap and loss at zero the rounding of inner products may make up.
_BEARABLE = 1e-4


def rows_give_products(holdings: HoldingMap, settings: Settings, bounds: Bounds) -> bool:
    """Whether Zᵀa/N is cheaper than b·b, and exact enough to bound P* by."""
    error = bounds.products * FIXED_POINT * bounds.alpha
    error /= settings.smallest_lam * math.sqrt(holdings.n_samples)
    bearable = _BEARABLE * (settings.gap or FINEST) * bounds.at_zero
    if in_few_digits(holdings.n_samples, settings):
        return False
    return holdings.n_samples < holdings.columns.n_slots and error < bearable


def in_few_digits(n_samples: int, settings: Settings) -> bool:
    """Whether parties keep Z of directions, and what guards have seen, in fewer digits.

    Of many samples that is most of what a run keeps besides the tables. All holders of a sample
    must decide alike, so the rule knows nothing but what all know. A direction that is a little off
    is another direction: models are measured afresh before they are certified.
    """
    return n_samples >= MANY_SAMPLES and (settings.gap or 0.0) >= COARSE
