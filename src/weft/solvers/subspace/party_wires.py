"""The sums that a party of a fast solver takes part in, as they travel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from weft.solvers.party_context import PartyContext
from weft.sums.contribution import Wire


@dataclass(frozen=True)
class Wires:
    """One wire per kind of sum; what was sent on it must be in the totals that come back.

    Attributes
    ----------
    vectors
        Vectors b = Xᵀa/N, at the holders of the columns.
    products
        Z = Xb of vectors, at the holders of the rows.
    point
        z = Xw of a point, likewise.
    duals
        Dual vectors, for holders of samples without labels.
    """

    vectors: Wire
    products: Wire
    point: Wire
    duals: Wire

    @classmethod
    def of(cls, context: PartyContext) -> Self:
        view, bounds, cipher = context.view, context.bounds, context.cipher
        rows = view.n_shared_rows
        return cls(
            Wire("v", view.n_shared_columns, bounds.v, cipher, 1.0 / view.n_samples),
            Wire("z", rows, bounds.products, cipher),
            Wire("z", rows, bounds.point, cipher),
            Wire("alpha", rows, bounds.alpha, cipher),
        )
