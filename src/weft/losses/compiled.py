"""Losses of one sample in machine code, for loops that cannot be vectorised.

Every loss of Weft's own is one of four formulas with three numbers: g, the reciprocal of its
smoothness; the largest |α|; and ε. Numba inlines what is called here, so that a pass over the
samples costs the arithmetic and nothing else.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba

from weft.errors import ConfigError
from weft.losses.base import Loss
from weft.losses.dual_steps import FORMULAS

MARGIN, DEVIATION, TUBE, LOGISTIC = range(4)

_margin = numba.njit(cache=True)(FORMULAS["margin"])
_deviation = numba.njit(cache=True)(FORMULAS["deviation"])
_tube = numba.njit(cache=True)(FORMULAS["tube"])
_logistic = numba.njit(cache=True)(FORMULAS["logistic"])


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


def formula_of(loss: Loss) -> Formula:
    """The formula of a loss; one from outside has none."""
    if loss.name not in _FAMILIES:
        raise ConfigError(
            f'loss "{loss.name}" has no compiled formula, which this solver needs; use solver '
            "'auto', 'hyfdca' or 'admm'"
        )
    family = _FAMILIES[loss.name]
    g = 0.0 if math.isinf(loss.smoothness) else 1.0 / loss.smoothness
    bound = loss.lipschitz if family in (MARGIN, DEVIATION) else 1.0
    return Formula(family, g, bound, loss.parameters().get("epsilon", 0.0))


@numba.njit(cache=True)
def step(formula: Formula, alpha: float, z: float, y: float, q: float) -> float:
    """The new α of a dual step; see :meth:`Loss.dual_step`."""
    if formula.family == MARGIN:
        return _margin(alpha, z, y, q, formula.g, formula.bound)
    if formula.family == DEVIATION:
        return _deviation(alpha, z, y, q, formula.g, formula.bound)
    if formula.family == TUBE:
        return _tube(alpha, z, y, q, formula.epsilon)
    return _logistic(alpha, z, y, q)


@numba.njit(cache=True)
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
