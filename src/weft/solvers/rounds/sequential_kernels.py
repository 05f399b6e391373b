"""Passes over samples in which every step depends on the last: in machine code.

Rows are compressed (CSR) over the party's local columns, classes lie side by side.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from weft.losses.compiled import Formula, slope, step

#: Below this, a factor that is kept apart is multiplied in.
_SMALL = 1e-9


@numba.njit(cache=True)
def descend(
    rows: Any,
    order: Any,
    labels: Any,
    formula: Formula,
    rate: float,
    lam: float,
    mu: float,
    w: Any,
    used: Any,
) -> None:
    """Steps of stochastic gradient descent, one sample each; ``w`` is changed in place.

    The objective of a step is λ/2 ‖w‖² + l(x_iᵀw) + μ/2 ‖w − w₀‖² with w₀ = w as it came. With
    w = s·d + c·w₀ the quadratic terms only change s and c, so that a step costs the entries of its
    row.

    Parameters
    ----------
    rows
        Begin of each row, column numbers and values.
    used
        By how much of each row (and class) w moves, but for the shrinking of earlier steps.
    """
    begin, columns, values = rows
    start = w.copy()
    scale, pulled = 1.0, 0.0
    keep = 1.0 - rate * (lam + mu)
    slopes = np.zeros(w.shape[1])
    for i in order:
        for c in range(w.shape[1]):
            own = away = 0.0
            for e in range(begin[i], begin[i + 1]):
                own += values[e] * w[columns[e], c]
                if mu != 0.0:
                    away += values[e] * start[columns[e], c]
            slopes[c] = slope(formula, scale * own + pulled * away, labels[i, c])
            used[i, c] += rate * slopes[c]
        scale *= keep
        pulled = pulled * keep + rate * mu
        if abs(scale) < _SMALL:
            for j in range(w.shape[0]):
                for c in range(w.shape[1]):
                    w[j, c] = scale * w[j, c] + pulled * start[j, c]
            scale, pulled = 1.0, 0.0
        for e in range(begin[i], begin[i + 1]):
            for c in range(w.shape[1]):
                w[columns[e], c] += rate * slopes[c] / scale * values[e]
    for j in range(w.shape[0]):
        for c in range(w.shape[1]):
            w[j, c] = scale * w[j, c] + pulled * start[j, c]


@numba.njit(cache=True)
def ascend(
    rows: Any,
    order: Any,
    labels: Any,
    norms: Any,
    holders: Any,
    formula: Formula,
    factor: float,
    alpha: Any,
    w: Any,
) -> None:
    """Steps of dual coordinate ascent, one sample each; α and w are changed in place.

    Each step maximises −l*(−(α_i + δ))/h_i − zδ − factor ‖x_i‖²/2 δ² with z = x_iᵀw, then adds
    factor · δ x_i to w. With factor = 1/(λN) and h = 1 this is SDCA; with σ'/(λN) the local problem
    of CoCoA+; with as many holders h_i as share a sample, that of D3CA.
    """
    begin, columns, values = rows
    for i in order:
        for c in range(w.shape[1]):
            z = 0.0
            for e in range(begin[i], begin[i + 1]):
                z += values[e] * w[columns[e], c]
            old = alpha[i, c]
            share = holders[i]
            new = step(formula, old, share * z, labels[i, c], share * factor * norms[i])
            alpha[i, c] = new
            if new != old:
                move = factor * (new - old)
                for e in range(begin[i], begin[i + 1]):
                    w[columns[e], c] += move * values[e]
