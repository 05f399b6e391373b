"""A party's own function f_i of FedHybrid: value, gradient, curvature and its bounds.

f_i(x) = weight · Σ_j l(a_jᵀx; y_j) + λ/2 ‖x‖² over the party's own rows a_j. With n parties, N
samples in all and N_i at the party there are two weightings:

``samples``
    weight = n/N. Then (1/n) Σ_i f_i(x) = λ/2 ‖x‖² + 1/N Σ_j l(a_jᵀx; y_j) is Weft's P(x):
    every sample counts the same.
``parties``
    weight = 1/N_i. Then Σ_i f_i(x) = Σ_i 1/N_i Σ_j l(a_jᵀx; y_j) + ρ/2 ‖x‖² with ρ = nλ is
    (C.1) and (C.2) of the paper: every party counts the same, however few samples it has.

In both Σ_i f_i is what FedHybrid minimises, and (1/n) Σ_i f_i has the regulariser λ/2 ‖x‖².

A point x is (d, classes): the columns are the one-vs-rest problems, which do not touch each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import scipy.linalg as sla

from weft.array_types import Floats
from weft.errors import ConfigError, DataError
from weft.losses import Loss, Squared
from weft.sums.party_table_products import LocalTable

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

Weighting = Literal["samples", "parties"]

#: Up to this many columns Hessians are dense and factored; beyond, conjugate gradients solve.
DENSE_COLUMNS = 1_500
_CG_TOLERANCE = 1e-10
#: Lanczos comes from below, and ℓ has to be an upper bound.
_LANCZOS_MARGIN = 1.01


@dataclass(frozen=True)
class Curvature:
    """Bounds 0 < m ≤ ℓ on the eigenvalues of ∇²f_i, everywhere (Assumption 2.1)."""

    lower: float
    upper: float


class System(Protocol):
    """D = ∇²f_i(x) + μI at one point, class by class."""

    def solve(self, right: Floats) -> Floats: ...

    def times(self, vector: Floats) -> Floats: ...


def sample_weight(weighting: Weighting, parties: int, rows: int, samples: int) -> float:
    """Weight of a sample's loss in f_i, for a party with ``rows`` of all ``samples``."""
    if rows < 1:
        raise DataError(
            "a party of FedHybrid holds no labelled sample; leave it out of the federation."
        )
    return parties / samples if weighting == "samples" else 1.0 / rows


class LocalFunction:
    """f_i(x) = weight · Σ_j l(a_jᵀx; y_j) + λ/2 ‖x‖².

    Parameters
    ----------
    table
        The party's cells.
    y : (rows, classes) array
        Labels, −1 and +1 for classification.
    loss
        A smooth loss.
    lam
        λ above zero, without which f_i need not be strongly convex.
    weight
        As `sample_weight` gives it.
    """

    def __init__(self, table: LocalTable, y: Floats, loss: Loss, lam: float, weight: float) -> None:
        if not np.isfinite(loss.smoothness):
            raise ConfigError(
                f"FedHybrid needs a loss without kinks, and {loss.name} has one; choose logistic, "
                "squared, huber, smoothed_hinge or squared_hinge."
            )
        self.loss, self.lam, self.weight = loss, lam, weight
        self.shape = (table.n_columns, y.shape[1])
        self._table, self._y = table, y
        self._kept: tuple[float, System] | None = None

    @property
    def quadratic(self) -> bool:
        """Whether the Hessian is the same everywhere."""
        return isinstance(self.loss, Squared)

    def value(self, x: Floats) -> Floats:
        """f_i of every class."""
        losses = self.loss.value(self._table.products(None, x), self._y)
        value: Floats = self.weight * losses.sum(axis=0) + 0.5 * self.lam * (x * x).sum(axis=0)
        return value

    def gradient(self, x: Floats) -> Floats:
        """∇f_i, one column per class."""
        slopes = -self.weight * self.loss.u(self._table.products(None, x), self._y)
        out = self.lam * x
        self._table.accumulate(None, slopes, out)
        return out

    def bend(self, x: Floats, direction: Floats) -> Floats:
        """vᵀ∇²f_i(x)v of every class."""
        curves = self.loss.curvature(self._table.products(None, x), self._y)
        along = self._table.products(None, direction)
        bend: Floats = self.weight * (curves * along * along).sum(axis=0)
        bend += self.lam * (direction * direction).sum(axis=0)
        return bend

    def system(self, x: Floats, mu: float) -> System:
        """∇²f_i(x) + μI, ready to be solved with; made once where the loss is squared."""
        if self._kept is not None and self._kept[0] == mu:
            return self._kept[1]
        system = self._make_system(x, mu)
        if self.quadratic:
            self._kept = (mu, system)
        return system

    def _make_system(self, x: Floats, mu: float) -> System:
        curves = self.weight * self.loss.curvature(self._table.products(None, x), self._y)
        shift = self.lam + mu
        if self.shape[0] > DENSE_COLUMNS:
            return _Products(self._table, curves, shift)
        # Labels do not enter the curvature of the squared loss: one matrix serves all classes.
        different = curves[:, :1] if self.quadratic else curves
        return _Factored([self._gram(column) for column in different.T], shift)

    def _gram(self, weights: Floats) -> Floats:
        cells = self._cells
        gram: Floats = (cells.T * weights) @ cells
        return gram

    @cached_property
    def _cells(self) -> Floats:
        """The party's cells as one matrix."""
        return self._table.products(None, np.eye(self.shape[0]))

    @cached_property
    def curvature(self) -> Curvature:
        """Bounds on the Hessian's eigenvalues.

        Those of AᵀA times weight · smoothness, plus λ. No curvature of the loss is promised
        from below unless it is squared, nor is the smallest eigenvalue looked for where there
        are many columns: then m = λ.
        """
        factor = self.weight * self.loss.smoothness
        if self.shape[0] > DENSE_COLUMNS:
            return Curvature(self.lam, factor * self._largest() + self.lam)
        eigenvalues = np.linalg.eigvalsh(self._gram(np.ones(self._table.n_rows)))
        low = max(float(eigenvalues[0]), 0.0) if self.quadratic else 0.0
        return Curvature(factor * low + self.lam, factor * float(eigenvalues[-1]) + self.lam)

    def _largest(self) -> float:
        """The largest eigenvalue of AᵀA by Lanczos' method, rounded up."""
        from scipy.sparse.linalg import eigsh

        products = _Products(self._table, np.ones((self._table.n_rows, 1)), 0.0)
        # A fixed start, so that two runs agree to the last bit.
        start = np.ones(self.shape[0])
        found = eigsh(
            _operator(self.shape[0], lambda v: products.times(v[:, None])[:, 0]),
            k=1,
            which="LA",
            v0=start,
            tol=1e-3,
            return_eigenvectors=False,
        )
        return _LANCZOS_MARGIN * max(float(found[0]), 0.0)


class _Factored:
    """Dense matrices with their Cholesky factors: one per class, or one for all."""

    def __init__(self, grams: list[Floats], shift: float) -> None:
        self._matrices = [gram + shift * np.eye(len(gram)) for gram in grams]
        self._factors = [sla.cho_factor(matrix, lower=True) for matrix in self._matrices]

    def solve(self, right: Floats) -> Floats:
        if len(self._factors) == 1:
            solved: Floats = sla.cho_solve(self._factors[0], right)
            return solved
        pairs = zip(self._factors, right.T, strict=True)
        return np.stack([sla.cho_solve(factor, column) for factor, column in pairs], axis=1)

    def times(self, vector: Floats) -> Floats:
        if len(self._matrices) == 1:
            return self._matrices[0] @ vector
        pairs = zip(self._matrices, vector.T, strict=True)
        return np.stack([matrix @ column for matrix, column in pairs], axis=1)


class _Products:
    """AᵀCA + shift·I by products with the cells alone, for many columns."""

    def __init__(self, table: LocalTable, curves: Floats, shift: float) -> None:
        self._table, self._curves, self._shift = table, curves, shift

    def times(self, vector: Floats) -> Floats:
        return self._times(vector, self._curves)

    def _times(self, vector: Floats, curves: Floats) -> Floats:
        out = self._shift * vector
        self._table.accumulate(None, curves * self._table.products(None, vector), out)
        return out

    def solve(self, right: Floats) -> Floats:
        from scipy.sparse.linalg import cg

        solved = np.empty_like(right)
        for p, column in enumerate(right.T):
            curves = self._curves[:, p : p + 1]
            matrix = _operator(
                len(column), lambda v, c=curves: self._times(v.reshape(-1, 1), c)[:, 0]
            )
            solved[:, p], _ = cg(matrix, column, rtol=_CG_TOLERANCE, maxiter=10 * len(column))
        return solved


def _operator(size: int, product: Callable[..., Floats]) -> LinearOperator:
    # Here and above: all runs load this file with the list of algorithms.
    from scipy.sparse.linalg import LinearOperator

    return LinearOperator((size, size), matvec=product, dtype=np.float64)
