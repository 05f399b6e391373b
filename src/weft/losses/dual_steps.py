"""Dual steps, compiled as numpy ufuncs.

An iteration takes thousands of steps on a handful of rows each, so the time goes into calls,
not into arithmetic: one compiled ufunc costs half of the same formula written with numpy's.
The signatures are fixed, so nothing is compiled for a new shape, and other dtypes are cast.

For all losses but the logistic one −l*(−a) = ay − ε|a| − g a²/2 on the domain, with g the
reciprocal of the smoothness (0 where l has a kink). Comparisons are written so that a NaN
passes through and shows, and does not come out as a point of the domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from inspect import signature

from weft.losses.base import Array

# At q + g = 0 the objective is linear and the argmax is an end of the domain (or anything, where
# the slope is 0 too: then α stays). Dividing by this in its place gives that limit, and leaves
# room for slopes up to 1e150 before the quotient overflows.
_LEAST_CURVATURE = 1e-150

# Newton in the logistic step ends once t moves by less than this. F'' ≤ F' on t ≤ 0, so the
# error left after a step s is about s²/2: below the spacing of doubles.
_LAST_MOVE = 1e-8


@cache
def compiled(formula: Callable[..., float]) -> Callable[..., Array]:
    """Turn a formula for one element into a ufunc, kept on disk for the next process.

    It is compiled (or loaded) when it is first wanted: numba takes a second to start, which a
    command that only reads the name of a loss should not wait for.
    """
    import numba

    types = ", ".join(["float64"] * len(signature(formula).parameters))
    vectorize = numba.vectorize([f"float64({types})"], cache=True)  # type: ignore[no-untyped-call]
    ufunc: Callable[..., Array] = vectorize(formula)
    return ufunc


def margin_step(alpha: float, z: float, y: float, q: float, g: float, bound: float) -> float:
    """Return y·clip(yα + (1 − yz − g yα)/(q + g), 0, bound)."""
    p = y * alpha
    p += (1.0 - y * z - g * p) / max(q + g, _LEAST_CURVATURE)
    if p < 0.0:
        return 0.0
    if p > bound:
        return y * bound
    return y * p


def deviation_step(alpha: float, z: float, y: float, q: float, g: float, bound: float) -> float:
    """Return clip(α + (y − z − gα)/(q + g), −bound, bound)."""
    a = alpha + (y - z - g * alpha) / max(q + g, _LEAST_CURVATURE)
    if a < -bound:
        return -bound
    if a > bound:
        return bound
    return a


def tube_step(alpha: float, z: float, y: float, q: float, epsilon: float) -> float:
    """Return clip(soft(α + (y − z)/q, ε/q), −1, 1), soft(s, r) = sign(s)·max(|s| − r, 0).

    ε is taken off the slope before the division: ε/q and (y − z)/q may both be huge, and
    their difference would lose α.
    """
    curvature = max(q, _LEAST_CURVATURE)
    from_above = alpha + (y - z - epsilon) / curvature
    from_below = alpha + (y - z + epsilon) / curvature
    if from_above > 0.0:
        return 1.0 if from_above > 1.0 else from_above
    if from_below < 0.0:
        return -1.0 if from_below < -1.0 else from_below
    return 0.0 if from_above <= 0.0 else from_above


def logistic_step(alpha: float, z: float, y: float, q: float) -> float:
    """Return y·p, where p = yα⁺ solves log(p/(1−p)) + yz + q(p − yα) = 0.

    In t = log(p/(1−p)) the equation is F(t) = t + yz + q(σ(t) − yα) = 0, which has one root
    for every real α and q ≥ 0. Replacing p by 1 − p moves the root to t ≤ 0, where F rises
    and is convex: from anywhere there, the first Newton step lands right of the root (0 is
    right of it as well, so steps are cut there) and all later ones fall towards it. A later
    step that does not fall is rounding noise, and the end.
    """
    margin = y * z
    p_old = y * alpha
    mirrored = margin + q * (0.5 - p_old) < 0.0
    if mirrored:
        margin = -margin
        p_old = 1.0 - p_old

    # Start: with σ(t) ≈ eᵗ the root is qeᵗ = W(e^c), c = log q + q p_old − margin, and Lambert's
    # W(e^c) ≈ c − log c for c > 1. For smaller c the curvature hardly matters.
    t = min(q * p_old - margin, 0.0)
    if q > 0.0:
        c = math.log(q) + q * p_old - margin
        if c > 1.0:
            p = min((c - math.log(c)) / q, 0.5)
            t = math.log(p / (1.0 - p))

    # Five steps are the most seen for q up to 1e12 and |z| up to 1e6; NaNs leave by the bound.
    for iteration in range(50):
        odds = math.exp(t)
        p = odds / (1.0 + odds)
        t_new = min(t - (t + margin + q * (p - p_old)) / (1.0 + q * p * (1.0 - p)), 0.0)
        if iteration > 0 and t_new >= t:
            break
        move = abs(t_new - t)
        t = t_new
        if move <= _LAST_MOVE:
            break
    odds = math.exp(t)
    return y / (1.0 + odds) if mirrored else y * odds / (1.0 + odds)
