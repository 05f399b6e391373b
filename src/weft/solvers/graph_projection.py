"""Projections onto the graph z = X_k w of one party's cells."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from weft.sums.local_table import LocalTable

Floats = NDArray[np.float64]

#: The largest matrix that is factorised.
LARGEST = 3000
#: Tables with a larger share of cells that are not zero are multiplied as dense ones.
_DENSE = 0.1
_CLOSE = 1e-12
_MOST_STEPS = 1000


class Graph:
    """The points (w, z) with z = X_k w, X_k being all cells of a party.

    The point nearest to (a, b) has w = (I + XᵀX)⁻¹ (a + Xᵀb) = a + Xᵀ (I + XXᵀ)⁻¹ (b − Xa). The
    smaller of the two matrices is factorised once; where both are large, conjugate gradients take
    their place.

    Parameters
    ----------
    largest
        How many rows a matrix may have that is factorised.
    """

    def __init__(self, table: LocalTable, largest: int = LARGEST) -> None:
        self._table = table
        self._tall = table.n_columns <= table.n_rows
        self._direct = min(table.n_columns, table.n_rows) <= largest

    def project(self, a: Floats, b: Floats, start: Floats) -> tuple[Floats, Floats]:
        """The nearest point; ``start`` is a guess at its w."""
        if not self._direct:
            w = self._descend(a + self._transposed(b), start)
        elif self._tall:
            w = self._solve(a + self._transposed(b))
        else:
            w = a + self._transposed(self._solve(b - self._table.products(None, a)))
        return w, self._table.products(None, w)

    def _transposed(self, b: Floats) -> Floats:
        """Xᵀb."""
        out = np.zeros((self._table.n_columns, b.shape[1]))
        self._table.accumulate(None, b, out)
        return out

    @cached_property
    def _factor(self) -> tuple[Floats, bool]:
        cells = self._table.compressed()
        if not self._tall:
            cells = cells.T.tocsr()
        if cells.nnz > _DENSE * cells.shape[0] * cells.shape[1]:
            dense: Floats = cells.toarray()
            gram = dense.T @ dense
        else:
            gram = (cells.T @ cells).toarray()
        gram[np.diag_indices_from(gram)] += 1.0
        matrix, lower = cho_factor(gram, lower=True, overwrite_a=True)
        return matrix, bool(lower)

    def _solve(self, right: Floats) -> Floats:
        solved: Floats = cho_solve(self._factor, right)
        return solved

    def _descend(self, right: Floats, start: Floats) -> Floats:
        """(I + XᵀX)⁻¹ by conjugate gradients, all classes side by side."""
        w = start.copy()
        left = right - self._times(w)
        direction = left.copy()
        square = np.einsum("ij,ij->j", left, left)
        enough = _CLOSE**2 * np.einsum("ij,ij->j", right, right)
        for _ in range(_MOST_STEPS):
            if (square <= enough).all():
                break
            image = self._times(direction)
            curve = np.einsum("ij,ij->j", direction, image)
            step = np.divide(square, curve, out=np.zeros_like(square), where=square > enough)
            w += step * direction
            left -= step * image
            before, square = square, np.einsum("ij,ij->j", left, left)
            direction = left + direction * (square / np.maximum(before, 1e-300))
        return w

    def _times(self, w: Floats) -> Floats:
        """(I + XᵀX) w."""
        return w + self._transposed(self._table.products(None, w))
