"""A party's own smooth problem, solved by damped Newton steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.losses import Loss

Floats = NDArray[np.float64]

#: Newton steps at most; from the last solution a few are enough.
_MOST_STEPS = 100
#: A step is accepted when it brings this part of what the slope promises …
_ARMIJO = 1e-4
#: … up to rounding of the objective, relatively.
_ROUNDING = 1e-14
#: Tables are kept dense where more than this part of their cells is not zero.
_DENSE = 0.2


class LocalProblem:
    """min_w  c Σ l(x_iᵀw) + λ/2 ‖w‖² − ⟨y, w⟩, for any y.

    Parameters
    ----------
    cells
        The rows x_i.
    weight
        c.
    """

    def __init__(
        self, cells: sp.csr_array, labels: Floats, loss: Loss, weight: float, lam: float
    ) -> None:
        self._dense = cells.nnz > _DENSE * cells.shape[0] * cells.shape[1]
        self._x = cells.toarray() if self._dense else cells
        self._labels = labels
        self._loss = loss
        self._weight = weight
        self._lam = lam

    def solve(self, tilt: Floats, start: Floats, accuracy: float) -> Floats:
        """The solution for every column of ``tilt``, from ``start``.

        λ-strong convexity bounds the distance to the solution by ‖gradient‖/λ; that is at most
        ``accuracy`` times the larger of ‖w‖ and one, unless rounding stops the search before.
        """
        columns = [self._column(tilt[:, c], start[:, c], c, accuracy) for c in range(tilt.shape[1])]
        return np.stack(columns, axis=1)

    def _column(self, tilt: Floats, start: Floats, column: int, accuracy: float) -> Floats:
        w, labels = start, self._labels[:, column]
        value = self._value(w, tilt, labels)
        for _ in range(_MOST_STEPS):
            z: Floats = self._x @ w
            slopes = self._loss.u(z, labels)
            gradient = self._lam * w - tilt - self._weight * (self._x.T @ slopes)
            size = float(np.linalg.norm(w))
            if float(np.linalg.norm(gradient)) <= accuracy * self._lam * max(size, 1.0):
                break
            direction = self._direction(gradient, self._loss.curvature(z, labels))
            found = self._search(w, direction, float(gradient @ direction), value, tilt, labels)
            if found is None:
                break
            w, value = found
        return w

    def _value(self, w: Floats, tilt: Floats, labels: Floats) -> float:
        losses = float(self._loss.value(self._x @ w, labels).sum())
        return self._weight * losses + float(w @ (0.5 * self._lam * w - tilt))

    def _direction(self, gradient: Floats, curvature: Floats) -> Floats:
        """−H⁻¹ times the gradient, with H = SᵀS + λI and S = √(cD) X, by Cholesky's method.

        Where there are fewer samples than features, H⁻¹ = (I − Sᵀ(SSᵀ + λI)⁻¹S)/λ is cheaper.
        """
        rows, columns = self._x.shape
        scaled: Any = sp.diags_array(np.sqrt(self._weight * curvature)) @ self._x
        if rows >= columns:
            return -self._inverted(scaled.T @ scaled, gradient)
        inner = self._inverted(scaled @ scaled.T, scaled @ gradient)
        direction: Floats = (scaled.T @ inner - gradient) / self._lam
        return direction

    def _inverted(self, gram: Any, right: Floats) -> Floats:
        """(gram + λI)⁻¹ times a vector."""
        matrix: Floats = gram if self._dense else gram.toarray()
        matrix.flat[:: len(matrix) + 1] += self._lam
        solution: Floats = scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix), right)
        return solution

    def _search(
        self,
        w: Floats,
        direction: Floats,
        slope: float,
        value: float,
        tilt: Floats,
        labels: Floats,
    ) -> tuple[Floats, float] | None:
        """The first of the steps 1, 1/2, 1/4, … that falls enough; None where none does."""
        step = 1.0
        for _ in range(40):
            moved = w + step * direction
            new = self._value(moved, tilt, labels)
            if new <= value + _ARMIJO * step * slope + _ROUNDING * abs(value):
                return moved, new
            step /= 2
        return None
