"""A party's whole turn in machine code: thousands of parties take turns, each of a few steps."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from weft.losses.compiled import Formula
from weft.solvers.rounds.sequential_kernels import descend
from weft.solvers.sampling import order_of


@numba.njit(cache=True)
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


@numba.njit(cache=True)
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
    return shared_change(start, w, weight, weights, least, most, cohort, change)


@numba.njit(cache=True)
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
