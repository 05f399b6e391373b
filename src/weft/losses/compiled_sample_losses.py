"""Losses of one sample in machine code, for loops that cannot be vectorised.

Every loss of Weft's own is one of four formulas with three numbers: g, the reciprocal of its
smoothness; the largest |α|; and ε. Numba inlines what is called here, so that a pass over the
samples costs the arithmetic and nothing else.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba
import numpy as np

from weft.errors import ConfigError
from weft.losses.base import Loss
from weft.losses.dual_steps import deviation_step, logistic_step, margin_step, tube_step
from weft.numba_options import OUTER

MARGIN, DEVIATION, TUBE, LOGISTIC = range(4)

_margin = numba.njit(cache=True)(margin_step)
_deviation = numba.njit(cache=True)(deviation_step)
_tube = numba.njit(cache=True)(tube_step)
_logistic = numba.njit(cache=True)(logistic_step)


class Formula(NamedTuple):
    """A loss as numbers."""

    family: int
    g: float
    bound: float
    epsilon: float


_FAMILIES = {
    "hinge": MARGIN,
    "smoothed_hinge": MARGIN,
    "squared_hinge": MARGIN,
    "logistic": LOGISTIC,
    "squared": DEVIATION,
    "huber": DEVIATION,
    "absolute": TUBE,
    "epsilon_insensitive": TUBE,
}


def has_formula(loss: Loss) -> bool:
    """Whether a loss is one of these formulas."""
    return loss.name in _FAMILIES


def formula_of(loss: Loss) -> Formula:
    """The formula of a loss; one from outside has none."""
    if not has_formula(loss):
        raise ConfigError(
            f'loss "{loss.name}" has no compiled formula, which this solver needs; use solver '
            "'auto', 'hyfdca' or 'admm'"
        )
    family = _FAMILIES[loss.name]
    g = 0.0 if math.isinf(loss.smoothness) else 1.0 / loss.smoothness
    bound = loss.lipschitz if family in (MARGIN, DEVIATION) else 1.0
    return Formula(family, g, bound, loss.parameters().get("epsilon", 0.0))


@numba.njit(**OUTER)
def step(formula: Formula, alpha: float, z: float, y: float, q: float) -> float:
    """The new α of a dual step; see :meth:`Loss.dual_step`."""
    if formula.family == MARGIN:
        return _margin(alpha, z, y, q, formula.g, formula.bound)
    if formula.family == DEVIATION:
        return _deviation(alpha, z, y, q, formula.g, formula.bound)
    if formula.family == TUBE:
        return _tube(alpha, z, y, q, formula.epsilon)
    return _logistic(alpha, z, y, q)


@numba.njit(**OUTER)
def slope(formula: Formula, z: float, y: float) -> float:
    """−l'(z), or minus a subgradient; see :meth:`Loss.u`."""
    if formula.family == LOGISTIC:
        return y / (1.0 + math.exp(min(y * z, 700.0)))
    if formula.family == MARGIN:
        short = 1.0 - y * z
        if short <= 0.0:
            return 0.0
        if formula.g == 0.0:
            return y
        return y * min(short / formula.g, formula.bound)
    away = y - z
    if formula.family == TUBE:
        if abs(away) <= formula.epsilon:
            return 0.0
        return 1.0 if away > 0.0 else -1.0
    return min(max(away / formula.g, -formula.bound), formula.bound)


# Losses at many mixtures of two points at once, in one pass over the samples:
#     out[k, p] += Σ_i l(here[k, p] z[i, p] + there[k, p] target[i, p])

#: Samples that stay in the processor's nearest cache while all steps are tried on them.
_BAND = 512
#: Sums may be taken in any order: they are of one party alone, and no other has to agree on them.
_FAST = {"reassoc", "contract", "nsz"}


@numba.njit(**OUTER, fastmath=_FAST)
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


@numba.njit(**OUTER, fastmath=_FAST)
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
