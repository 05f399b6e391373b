"""Dual steps in machine code: of one sample, for other compiled code, and of whole arrays.

Over arrays they are generalised ufuncs of numbers. Of those numba keeps on disk the loop too that
numpy calls; that of a plain ufunc it compiles again in every process, for a twentieth of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numba

from weft.losses.base import Array
from weft.losses.dual_steps import deviation_step, logistic_step, margin_step, tube_step

margin = numba.njit(cache=True)(margin_step)
deviation = numba.njit(cache=True)(deviation_step)
tube = numba.njit(cache=True)(tube_step)
logistic = numba.njit(cache=True)(logistic_step)


def _margin(alpha: float, z: float, y: float, q: float, g: float, bound: float, out: Array) -> None:
    out[0] = margin(alpha, z, y, q, g, bound)


def _deviation(
    alpha: float, z: float, y: float, q: float, g: float, bound: float, out: Array
) -> None:
    out[0] = deviation(alpha, z, y, q, g, bound)


def _tube(alpha: float, z: float, y: float, q: float, epsilon: float, out: Array) -> None:
    out[0] = tube(alpha, z, y, q, epsilon)


def _logistic(alpha: float, z: float, y: float, q: float, out: Array) -> None:
    out[0] = logistic(alpha, z, y, q)


_BODIES: dict[Callable[..., float], Callable[..., None]] = {
    margin_step: _margin,
    deviation_step: _deviation,
    tube_step: _tube,
    logistic_step: _logistic,
}


def over_arrays(formula: Callable[..., float]) -> Callable[..., Array]:
    """The ufunc of a formula, compiled or loaded here."""
    numbers = len(signature(formula).parameters)
    types = ", ".join(["float64"] * numbers)
    shapes = ",".join(["()"] * numbers)
    decorate: Any = numba.guvectorize(  # type: ignore[no-untyped-call]
        [f"({types}, float64[:])"], f"{shapes}->()", cache=True
    )
    ufunc: Callable[..., Array] = decorate(_BODIES[formula])
    return ufunc
