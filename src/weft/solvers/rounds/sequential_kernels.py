"""Passes over samples in which every step depends on the last: in machine code.

Rows are compressed (CSR) over the party's local columns, classes lie side by side.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from weft.losses.compiled_sample_losses import Formula, slope, step
from weft.numba_options import OUTER
from weft.solvers.shared_sample_draws import order_of

#: Below this, a factor that is kept apart is multiplied in.
_SMALL = 1e-9


@numba.njit(**OUTER)
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


@numba.njit(**OUTER)
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


# ── FedAvg: a party's whole turn, since thousands of parties take turns of a few steps each ───


@numba.njit(**OUTER)
def sample_steps(
    begin: Any,
    columns: Any,
    values: Any,
    own: Any,
    labels: Any,
    family: int,
    g: float,
    bound: float,
    epsilon: float,
    seed: int,
    iteration: int,
    party: int,
    count: int,
    rate: float,
    lam: float,
    mu: float,
    w: Any,
    used: Any,
) -> None:
    """``count`` steps, each on one of the rows ``own``, drawn at random; in place."""
    if not own.shape[0]:
        return
    order = order_of(seed, iteration, party, own.shape[0], count)
    for i in range(count):
        order[i] = own[order[i]]
    formula = Formula(family, g, bound, epsilon)
    descend((begin, columns, values), order, labels, formula, rate, lam, mu, w, used)


@numba.njit(**OUTER)
def whole_turn(
    begin: Any,
    columns: Any,
    values: Any,
    own: Any,
    labels: Any,
    family: int,
    g: float,
    bound: float,
    epsilon: float,
    seed: int,
    party: int,
    count: int,
    lam: float,
    mu: float,
    cohort: Any,
    used: Any,
    w: Any,
    change: Any,
    start: Any,
    iteration: int,
    rate: float,
    weight: int,
    weights: Any,
    least: int,
    most: int,
) -> float:
    """Steps from ``start`` into ``w``, and the share of their change; as the two functions."""
    # Loops: over an assignment of slices the compiler takes seconds.
    for row in range(w.shape[0]):
        for column in range(w.shape[1]):
            w[row, column] = start[row, column]
    sample_steps(
        begin, columns, values, own, labels, family, g, bound, epsilon, seed,
        iteration, party, count, rate, lam, mu, w, used,
    )  # fmt: skip
    share: float = shared_change(start, w, weight, weights, least, most, cohort, change)
    return share


@numba.njit(**OUTER)
def shared_change(
    start: Any,
    w: Any,
    weight: int,
    weights: Any,
    least: int,
    most: int,
    cohort: Any,
    change: Any,
) -> float:
    """change = weight/weights · (w − start) at the shared columns; returns the largest |w|.

    What is no number counts as infinite. ``weights`` are per cohort of columns; the result is −1
    where one of them does not lie between ``least`` and ``most``.
    """
    for k in range(weights.shape[0]):
        if weights[k] < least or weights[k] > most:
            return -1.0
    largest = 0.0
    for j in range(w.shape[0]):
        for c in range(w.shape[1]):
            size = abs(w[j, c])
            if size != size:
                return np.inf
            largest = max(largest, size)
            if j < change.shape[0]:
                share = weight / max(weights[cohort[j]], 1)
                change[j, c] = (w[j, c] - start[j, c]) * share
    return largest
