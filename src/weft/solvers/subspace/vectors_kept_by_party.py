"""Vectors that a party holds for a run, combined with coefficients that the coordinator sends, and
the wires that they travel on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Self

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.arrays_outside_heap import lasting
from weft.numba_options import OUTER
from weft.protocol.declared_message_fields import malformed
from weft.solvers.party_context import PartyContext
from weft.sums.party_contribution import Posts, Wire

#: A vector as it is kept.
Kept = Floats | NDArray[np.float32]


@numba.njit(**OUTER)
def add_scaled(out: Any, vector: Any, factors: Any) -> None:
    """out[i, p] += factors[p] · vector[i, p].

    Each element is a chain of its own, in the order of the calls: two holders of a sample get the
    same bits whatever else they hold, which a product by BLAS would not promise. A vector in single
    precision is made longer element by element.
    """
    if vector.shape[1] == 1:
        factor = factors[0]
        for i in range(vector.shape[0]):
            out[i, 0] += factor * vector[i, 0]
        return
    for i in range(vector.shape[0]):
        for p in range(vector.shape[1]):
            out[i, p] += factors[p] * vector[i, p]


@numba.njit(**OUTER)
def add_four(out: Any, a: Any, b: Any, c: Any, d: Any, factors: Any) -> None:
    """The same as four calls of :func:`add_scaled`, to the last bit, in one pass."""
    if out.shape[1] == 1:
        # A loop that the compiler turns into vector instructions.
        fa, fb, fc, fd = factors[0, 0], factors[1, 0], factors[2, 0], factors[3, 0]
        for i in range(out.shape[0]):
            total = out[i, 0] + fa * a[i, 0]
            total += fb * b[i, 0]
            total += fc * c[i, 0]
            out[i, 0] = total + fd * d[i, 0]
        return
    for i in range(out.shape[0]):
        for p in range(out.shape[1]):
            value = out[i, p] + factors[0, p] * a[i, p]
            value += factors[1, p] * b[i, p]
            value += factors[2, p] * c[i, p]
            out[i, p] = value + factors[3, p] * d[i, p]


class Vectors:
    """Vectors over the same slots, a column per problem; the first is the anchor.

    The anchor is where a run began (zero, or a model to start from), and takes in the part that
    vectors had in the current point when they are dropped.

    Parameters
    ----------
    short
        Keep all but the anchor in single precision; combinations are made in double.
    """

    def __init__(self, anchor: Floats, *, short: bool = False) -> None:
        self._held: list[Kept] = [anchor]
        self._short = short

    def __len__(self) -> int:
        return len(self._held)

    def append(self, vectors: Sequence[Floats]) -> None:
        self._held += [lasting(v, np.float32) for v in vectors] if self._short else vectors

    def combine(self, coefficients: Floats) -> Floats:
        """Σ_j coefficients[j] · vector_j, per problem."""
        if len(coefficients) != len(self._held):
            raise ValueError(f"{len(coefficients)} coefficients for {len(self._held)} vectors")
        return combined(self._held, coefficients)

    def fold(self, coefficients: Floats, keep: Ints) -> None:
        """Combine into the anchor, and keep only some of the other vectors."""
        self._held[0] = self.combine(coefficients)
        self._held = [self._held[0], *(self._held[j] for j in keep.tolist())]

    def renew(self, anchor: Floats) -> None:
        """Put a vector that was measured afresh in the place of the anchor."""
        self._held[0] = anchor

    def products(self, others: Sequence[Floats], chosen: NDArray[np.bool_]) -> Floats:
        """Inner products over the chosen slots: (held × others × problems)."""
        every = bool(chosen.all())
        others = others if every else [other[chosen] for other in others]
        out = np.empty((len(self._held), len(others), self._held[0].shape[1]))
        for j, vector in enumerate(self._held):
            mine = np.asarray(vector if every else vector[chosen], np.float64)
            for k, other in enumerate(others):
                out[j, k] = inner(mine, other)
        return out

    def newest(self, count: int) -> Sequence[Kept]:
        """The last ones that came."""
        return self._held[len(self._held) - count :]

    def columns(self, problem: int, chosen: Ints | slice) -> Floats:
        """All vectors of a problem at the chosen slots: (slots × held)."""
        return np.stack([v[chosen, problem] for v in self._held], axis=1, dtype=np.float64)


def combined(vectors: Sequence[Kept], coefficients: Floats) -> Floats:
    """Σ_j coefficients[j] · vector_j, per problem."""
    out = np.zeros(vectors[0].shape)
    used = np.flatnonzero(coefficients.any(axis=1))
    factors, chosen = coefficients[used], [vectors[j] for j in used.tolist()]
    # Each kernel is compiled for one precision: what lies side by side in it is added together.
    start = 0
    for _, alike in groupby(chosen, key=lambda vector: vector.dtype):
        some = list(alike)
        _add_all(out, some, factors[start : start + len(some)])
        start += len(some)
    return out


def _add_all(out: Floats, vectors: Sequence[Kept], factors: Floats) -> None:
    """Add vectors times factors, four at a time."""
    fours = len(vectors) // 4 * 4
    for at in range(0, fours, 4):
        a, b, c, d = vectors[at : at + 4]
        add_four(out, a, b, c, d, factors[at : at + 4])
    for vector, factor in zip(vectors[fours:], factors[fours:], strict=True):
        add_scaled(out, vector, factor)


def inner(a: Floats, b: Floats) -> Floats:
    """Inner products of columns."""
    if a.shape[1] == 1:
        return np.array([a[:, 0] @ b[:, 0]])
    out: Floats = np.einsum("ip,ip->p", a, b)
    return out


def padded(coefficients: Floats, count: int) -> Floats:
    """Coefficients of the first ``count`` vectors; zero for those that came later."""
    out = np.zeros((count, coefficients.shape[1]))
    some = min(count, len(coefficients))
    out[:some] = coefficients[:some]
    return out


def sized(values: Floats, name: str, *shape: int | None) -> None:
    """Refuse numbers of a message that have another shape; None: any length."""
    wrong = len(values.shape) != len(shape) or any(
        want not in (None, have) for have, want in zip(values.shape, shape, strict=False)
    )
    if wrong:
        raise malformed(name, "does not hold the numbers it should")


def check_kept(keep: Ints, name: str, held: int) -> None:
    """Refuse numbers of vectors that are not held, not in order, or the anchor's."""
    rises = bool((np.diff(keep) > 0).all())
    if not rises or (len(keep) and not 0 < keep[0] <= keep[-1] < held):
        raise malformed(name, "names vectors that are not held")


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
    duals: Posts

    @classmethod
    def of(cls, context: PartyContext) -> Self:
        view, bounds, cipher = context.view, context.bounds, context.cipher
        rows = view.n_shared_rows
        return cls(
            Wire("v", view.n_shared_columns, bounds.v, cipher, 1.0 / view.n_samples),
            Wire("z", rows, bounds.products, cipher),
            Wire("z", rows, bounds.point, cipher),
            Posts("alpha", rows, bounds.alpha, cipher).begin(),
        )
