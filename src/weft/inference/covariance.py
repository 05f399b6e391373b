"""The covariance of a fit's coefficients, and how much columns say of each other."""

from __future__ import annotations

import numpy as np

from weft.array_types import Floats
from weft.inference.fit_statistics import FitStatistics


def covariance(fit: FitStatistics, dispersion: float | None) -> Floats | None:
    """Of coefficients in the units of the table; None: it takes a dispersion nobody knows.

    With λ the estimate is not the most likely one: its slopes are Σs − Λw = 0, so that it moves
    with the samples as (H + Λ)⁻¹Σs does. Its variance is (H + Λ)⁻¹ V (H + Λ)⁻¹, where V is that of
    Σs: φH by the model, Σssᵀ as it was observed, of samples or of sites.
    """
    if fit.kind == "model":
        middle = fit.curvature if fit.information is None else fit.information
        if dispersion is None:
            return None
        found = dispersion * _between(middle + np.diag(fit.penalty), middle)
    else:
        if fit.scores is None:
            return None
        found = _between(fit.curvature + np.diag(fit.penalty), fit.scores)
    if fit.kind == "clustered":
        columns, sites = len(fit.names), fit.sites
        few = sites / (sites - 1) * (fit.samples - 1) / (fit.samples - columns)
        found = few * found
    raw: Floats = fit.to_raw @ found @ fit.to_raw.T
    return raw


def _between(outer: Floats, middle: Floats) -> Floats:
    """outer⁻¹ middle outer⁻¹."""
    half = np.linalg.solve(outer, middle)
    whole: Floats = np.linalg.solve(outer, half.T)
    return whole


def inflation(fit: FitStatistics) -> Floats:
    """Variance inflation factors of all features; not a number for the intercept, nor for classes.

    How many times the variance of a coefficient is what it would be if no other column went along
    with its own, weighed as the fit weighs samples; of a gaussian model 1/(1 − R²) of the column
    on all others.
    """
    if fit.reference is not None:
        return np.full(len(fit.names), np.nan)
    matrix = fit.curvature if fit.information is None else fit.information
    free = np.linalg.inv(matrix)
    features = fit.names != "(intercept)"
    # In trained units: scaling and shifts change no inflation.
    kept = free[np.ix_(features, features)]
    found = np.full(len(fit.names), np.nan)
    found[features] = np.diag(kept) * np.diag(np.linalg.inv(kept))
    return found
