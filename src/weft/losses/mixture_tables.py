"""Losses at many mixtures of two points at once, where a loop in machine code is worth it.

out[k, p] += Σ_i l(here[k, p] z[i, p] + there[k, p] target[i, p]), one pass over the samples.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

#: Samples that stay in the processor's nearest cache while all steps are tried on them.
_BAND = 512
#: Sums may be taken in any order: they are of one party alone, and no other has to agree on them.
_FAST = {"reassoc", "contract", "nsz"}


@numba.njit(cache=True, fastmath=_FAST)
def hinge_table(z: Any, target: Any, y: Any, here: Any, there: Any, used: Any, out: Any) -> None:
    """max(0, 1 − yz); ``used`` is empty where all samples count."""
    a = np.empty(_BAND)
    b = np.empty(_BAND)
    for start in range(0, z.shape[0], _BAND):
        end = min(start + _BAND, z.shape[0])
        for p in range(z.shape[1]):
            count = 0
            for i in range(start, end):
                if used.shape[0] == 0 or used[i, p]:
                    a[count] = y[i, p] * z[i, p]
                    b[count] = y[i, p] * target[i, p]
                    count += 1
            for k in range(here.shape[0]):
                total = 0.0
                for i in range(count):
                    total += max(0.0, 1.0 - here[k, p] * a[i] - there[k, p] * b[i])
                out[k, p] += total


@numba.njit(cache=True, fastmath=_FAST)
def tube_table(
    z: Any, target: Any, y: Any, here: Any, there: Any, used: Any, out: Any, epsilon: float
) -> None:
    """max(0, |z − y| − ε); ``used`` is empty where all samples count."""
    a = np.empty(_BAND)
    b = np.empty(_BAND)
    c = np.empty(_BAND)
    for start in range(0, z.shape[0], _BAND):
        end = min(start + _BAND, z.shape[0])
        for p in range(z.shape[1]):
            count = 0
            for i in range(start, end):
                if used.shape[0] == 0 or used[i, p]:
                    a[count] = z[i, p]
                    b[count] = target[i, p]
                    c[count] = y[i, p]
                    count += 1
            for k in range(here.shape[0]):
                total = 0.0
                for i in range(count):
                    away = abs(here[k, p] * a[i] + there[k, p] * b[i] - c[i])
                    total += max(0.0, away - epsilon)
                out[k, p] += total
