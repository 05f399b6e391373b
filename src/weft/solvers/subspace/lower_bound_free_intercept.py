"""Lower bounds of P* where λ does not hold the intercept back.

A dual vector a bounds P at every w and every intercept β: P(w, β) ≥ D(a) − s β, with s the entry of
the constant column in b = Xᵀa/N. That is a bound of P* only where s = 0 (dual feasibility, Σ a_i =
0). Mixtures are sought whose entries cancel; what rounding leaves of their sum is paid for with the
farthest intercept that can still be the best one, which the same bounds tell: where D − s β > P(w)
for some w that is known, β is not it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.array_types import Floats
from weft.solvers.subspace.bundle_qp import Master

#: Weight of s² beside inner products in the small problem that finds a mixture: the larger, the
#: fewer times it is solved until the entries cancel, and the more digits that costs.
HOLD = 64.0
#: How often it is solved for one mixture, at most.
_MOST_SOLVES = 4
#: By what share P and bounds may be off, for rounding: bounds that differ by that tell nothing.
DOUBT = 1e-9


class InterceptRange:
    """Where the best intercept can be, per problem; everywhere at first.

    Attributes
    ----------
    low, high
        It is no less, and no more than that.
    """

    def __init__(self, width: int) -> None:
        self.low: Floats = np.full(width, -np.inf)
        self.high: Floats = np.full(width, np.inf)

    def narrow(self, primal: Floats, entries: Floats, bounds: Floats) -> None:
        """Leave out intercepts at which a bound D − s β (both cuts × problems) is above P."""
        room = primal * (1.0 + DOUBT) - bounds
        with np.errstate(divide="ignore", invalid="ignore"):
            edge = -room / entries
        known = np.isfinite(edge)
        lows = np.where(known & (entries > 0), edge, -np.inf)
        highs = np.where(known & (entries < 0), edge, np.inf)
        self.low = np.maximum(self.low, lows.max(axis=0, initial=-np.inf))
        self.high = np.minimum(self.high, highs.min(axis=0, initial=np.inf))

    def price(self, entry: Floats) -> Floats:
        """What a bound loses at most for an entry that is not zero; infinite: it bounds nothing."""
        far = np.where(entry > 0, self.high, self.low)
        lost: Floats = np.where(entry == 0.0, 0.0, entry * np.where(entry == 0.0, 0.0, far))
        return lost


class Mixture(NamedTuple):
    """Weights of dual vectors, their D at intercepts of 0, and their entries at the intercepts."""

    mu: Floats
    value: float
    entry: Floats


def balanced(
    master: Master, entries: Floats, offsets: Floats, lam: float, centre: Floats, tolerance: float
) -> Mixture:
    """The mixture with the best D whose entries at the intercepts cancel, but for rounding.

    ``entries`` are (dual vectors × intercepts): one, or those of all classes of a joint loss.

    The method of multipliers: the program of ``master``, whose inner products have `HOLD` · s sᵀ
    added, is solved with offsets o − β s, and β moves on by what is left of Σ μ_j s_j. It begins
    with β = ``centre``, the intercept of the best point, which is the multiplier at the optimum.
    """
    for _ in range(_MOST_SOLVES):
        master.lift(offsets - entries @ centre)
        mu = master.solve(scale=1.0 / lam, tolerance=tolerance).mu
        entry = mu @ entries
        square = float(mu @ master.gram @ mu) - HOLD * float(entry @ entry)
        moved = HOLD / lam * entry
        centre = centre + moved
        if moved @ entry <= tolerance:
            break
    return Mixture(mu, float(offsets @ mu) - square / (2.0 * lam), entry)
