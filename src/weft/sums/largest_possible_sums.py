"""How large a sum can get: what the fixed point of every kind is chosen from.

Let A bound |α_i|, √U the norm of every party's part of every row, and h be the most holders of a
sample. The stored feature sums of party k are Σ_i α_i^{(k)} x_{k,i} with |α_i^{(k)}| ≤ A, also if
they are stale, so that

    |v_m/N|  ≤  1/N Σ_k Σ_i A |x_{k,i,m}|            ≤  A h √U,
    ‖w‖      ≤  1/(λN) Σ_i Σ_k A ‖x_{k,i}‖           ≤  A h √U / λ,
    |z_i|    ≤  Σ_k ‖x_{k,i}‖ ‖w‖                    ≤  A h² U / λ,

for single parties and for totals. U is the power of two above the largest part of a row that any
party has, found by a maximum over masked sums. A is the Lipschitz constant of the loss, which
bounds its dual variables; a loss without one gets room above the largest label, and every α is
checked against it.

A point w that is no worse than w = 0 has λ/2 ‖w‖² ≤ P(0), so that |z_i| ≤ h √U ‖w‖ ≤
h √U √(2 P(0)/λ), which is far less for small λ. An intercept that λ does not hold back makes up for
that at most, and for what the labels are at the mean: `_FREE_ROOM` and the largest label leave room
for it, and every sum is checked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.losses import Loss

#: Room for a free intercept beyond scores and labels: odds and rates of e^±32.
_FREE_ROOM = 32.0


@dataclass(frozen=True)
class Bounds:
    """Bounds on z, v/N and α, on changes of α, on Xb with b = Xᵀα/N, and on z of good points.

    ``at_zero`` is the largest loss that a sample can have at w = 0, ``longest`` the norm of every
    point that is no worse than that; ``label`` and ``weight`` are at least every |label| and every
    weight.
    """

    z: float
    v: float
    alpha: float
    products: float
    point: float
    at_zero: float
    longest: float
    label: float
    weight: float

    @classmethod
    def of(
        cls,
        loss: Loss,
        lam: float,
        holders: int,
        unit: float,
        label: float,
        *,
        free_intercept: bool = False,
        offset: float = 0.0,
        weight: float = 1.0,
    ) -> Bounds:
        """From the problem and the sizes that the parties agreed on.

        Parameters
        ----------
        holders
            The most holders of a sample.
        unit
            At least every party's part of every ‖x_i‖².
        label
            At least every |label|.
        free_intercept
            Whether λ does not hold the intercept back.
        offset, weight
            At least every |offset| of a sample, and every weight.
        """
        largest = weight * loss.largest_dual(max(label, 1e-30), offset)
        size = max(unit, 1e-30)
        at_zero = weight * max(loss.largest_at(offset, label), 1e-30)
        longest = math.sqrt(2.0 * at_zero / lam)
        scores = holders * math.sqrt(size) * longest
        if free_intercept:
            scores = 2.0 * scores + label + offset + _FREE_ROOM
        # Twice, since proposals are changes: from −A to A.
        return cls(
            z=largest * holders**2 * size / lam,
            v=largest * holders * math.sqrt(size),
            alpha=2.0 * largest,
            products=largest * holders**2 * size,
            # Twice, since the minimum of a model of P is a good point only almost.
            point=2.0 * scores,
            at_zero=at_zero,
            longest=longest,
            label=max(label, 1e-30),
            weight=weight,
        )
