"""Columns that let a linear model bend: bins, and splines of third degree."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_DEGREE = 3


def own_quantiles(values: Floats, parts: int, *, inner: bool) -> list[float]:
    """Numbers that cut values into parts of equal size; ``inner``: without the two ends."""
    known = values[~np.isnan(values)]
    if not len(known):
        return []
    steps = np.linspace(0.0, 1.0, parts + 1 if inner else parts)
    cuts = np.quantile(known, steps[1:-1] if inner else steps)
    return [float(cut) for cut in np.unique(cuts)]


def bin_columns(values: Floats, edges: Sequence[float]) -> Floats:
    """One column of 0 and 1 per part; a part begins at its edge. Blank cells stay blank."""
    place = np.searchsorted(np.asarray(edges), values, side="right")
    columns: Floats = (place[:, None] == np.arange(len(edges) + 1)).astype(np.float64)
    columns[np.isnan(values)] = np.nan
    return columns


def bin_names(name: str, edges: Sequence[float]) -> list[str]:
    """Names of such columns, which say where a part begins and ends."""
    at = [repr(float(edge)).removesuffix(".0") for edge in edges]
    between = [f"{low}<={name}<{high}" for low, high in pairwise(at)]
    return [f"{name}<{at[0]}", *between, f"{name}>={at[-1]}"]


def spline_columns(values: Floats, knots: Sequence[float]) -> Floats:
    """A basis of B-splines of third degree; outside of the knots it stays as at their ends."""
    # Loaded when a spline is asked for: it brings a sixth of what a party has to import.
    from scipy.interpolate import BSpline

    base = np.asarray(knots, np.float64)
    # Knots go on beyond both ends in the steps of the first and the last piece.
    before = base[0] - (base[1] - base[0]) * np.arange(_DEGREE, 0, -1)
    after = base[-1] + (base[-1] - base[-2]) * np.arange(1, _DEGREE + 1)
    all_knots = np.concatenate([before, base, after])
    count = spline_width(knots)
    basis = BSpline(all_knots, np.eye(count), _DEGREE, extrapolate=False)
    blank = np.isnan(values)
    inside = np.clip(np.where(blank, base[0], values), base[0], base[-1])
    columns = np.asarray(basis(inside), np.float64)
    columns[blank] = np.nan
    return columns


def spline_width(knots: Sequence[float]) -> int:
    """How many columns a spline has."""
    return len(knots) + _DEGREE - 1
