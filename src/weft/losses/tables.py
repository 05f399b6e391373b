"""Losses at many mixtures of two points at once, where a loop in machine code is worth it.

out[k, p] += Σ_i l(here[k, p] z[i, p] + there[k, p] target[i, p]), one pass over the samples.
"""

from __future__ import annotations

from typing import Any

import numba


@numba.njit(cache=True)
def hinge_table(z: Any, target: Any, y: Any, here: Any, there: Any, used: Any, out: Any) -> None:
    """max(0, 1 − yz); ``used`` is empty where all samples count."""
    for i in range(z.shape[0]):
        for p in range(z.shape[1]):
            if used.shape[0] and not used[i, p]:
                continue
            a = y[i, p] * z[i, p]
            b = y[i, p] * target[i, p]
            for k in range(here.shape[0]):
                shortfall = 1.0 - here[k, p] * a - there[k, p] * b
                if shortfall > 0.0:
                    out[k, p] += shortfall


@numba.njit(cache=True)
def tube_table(
    z: Any, target: Any, y: Any, here: Any, there: Any, used: Any, out: Any, epsilon: float
) -> None:
    """max(0, |z − y| − ε); ``used`` is empty where all samples count."""
    for i in range(z.shape[0]):
        for p in range(z.shape[1]):
            if used.shape[0] and not used[i, p]:
                continue
            for k in range(here.shape[0]):
                value = here[k, p] * z[i, p] + there[k, p] * target[i, p] - y[i, p]
                beyond = abs(value) - epsilon
                if beyond > 0.0:
                    out[k, p] += beyond
