"""Fits without a penalty, in all or some weights: a last Newton step, and what is proved of it.

Training rests on a penalty, so that weights without one have a small one while a run goes on. At
its end readers know the Hessian J and the slope g of P at the model w, P being the problem that was
asked for. If J is positive definite, P is strongly convex around w, and one step of Newton's method
takes off what the small penalty did: w' = w − J⁻¹g. With δ² = gᵀJ⁻¹g, R² = max xᵀJ⁻¹x, t = Rδ < 1,
and |l'''| ≤ l'' of all families (`certified_distance.py`), ρ = ‖w − w*‖_J ≤ −log(1 − t)/R, and the
mean Hessian A on the way from w to w* is within e^{±Rρ} of J. Since w* − w = −A⁻¹g,

    ‖w' − w*‖_J = ‖(A⁻¹ − J⁻¹)g‖_J ≤ (e^{Rρ} − 1) δ ≤ t δ/(1 − t).

P at w plus u is between g·u + ‖u‖² h(∓R‖u‖), h(s) = (e^s − s − 1)/s², so that

    P* ≥ P(w) − δ² (1/2 + t/(6(1 − t))),    P(w') ≤ P(w) − δ²/2 + δ² t/(6(1 − t)).

Of a squared loss t is zero, and w' is the optimum but for rounding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.array_types import Floats
from weft.errors import DataError
from weft.inference.certified_distance import slope_of
from weft.inference.fit_statistics import Certified, FitStatistics
from weft.inference.refuse_standard_errors import refuse_collinear

#: Beyond this t, curvature at the optimum may be another than that which is known.
_FARTHEST = 0.5
#: How far entries of a Hessian may be off by rounding, by their sum on the diagonal.
_ROUNDING = 1e-13


def without_stand_in(fit: FitStatistics) -> FitStatistics:
    """The fit one Newton step on, with what is proved of it.

    ``fit.penalty`` is that of the problem that was asked for.

    Raises
    ------
    DataError
        Columns are collinear, or a coefficient has no optimum, or it is farther than can be proved.
    """
    refuse_collinear(fit)
    slope = slope_of(fit)
    if slope is None or fit.totals is None:
        raise DataError(
            "a fit without a penalty is proved by sums over slopes, which sealed runs do not make; "
            "train in sums, where all parties hold all columns"
        )
    columns = len(fit.names)
    whole = (fit.curvature + np.diag(fit.penalty)) / fit.samples
    off = _ROUNDING * float(np.trace(whole))
    values, vectors = np.linalg.eigh(
        whole - (columns * fit.error / fit.samples + off) * np.eye(columns)
    )
    told, doubt = slope
    if values[0] <= off:
        raise DataError(_runs_away(fit, np.abs(vectors[:, 0])))
    step = -vectors @ ((vectors.T @ told) / values)
    unsure = doubt / float(np.sqrt(values[0]))
    length = float(np.sqrt((((vectors.T @ told) ** 2) / values).sum())) + unsure
    reach = 0.0 if fit.loss.name == "squared" else float(np.sqrt(fit.longest_row / values[0]))
    t = reach * length
    if not t < _FARTHEST:
        raise DataError(_runs_away(fit, np.abs(step)))
    # J is known but for rounding, which is a share of it.
    share = 2.0 * off / float(values[0])
    radius = length * (t / (1.0 - t) + share) + unsure
    spread: Floats = np.sqrt((((fit.to_raw @ vectors) ** 2) / values).sum(axis=1))
    curved = length**2 * t / (6.0 * (1.0 - t))
    weights = np.linalg.solve(fit.to_raw, fit.coef)
    before = fit.totals.loss / fit.samples
    before += 0.5 * float((fit.penalty * weights**2).sum()) / fit.samples
    high = before - 0.5 * (length - unsure) ** 2 + curved + length * (unsure + share * length)
    low = before - 0.5 * length**2 - curved - share * length**2
    # Both rest on a sum of losses, which is rounded too.
    high, low = high + _ROUNDING * before, low - _ROUNDING * before
    coef: Floats = fit.to_raw @ (weights + step)
    return replace(
        fit,
        coef=coef,
        proved=Certified(coef, radius * spread, high - low),
        reached=(high, low),
    )


def _runs_away(fit: FitStatistics, part: Floats) -> str:
    worst = fit.column_names[int(part.argmax())]
    return (
        f"the coefficient of '{worst}' has no optimum near the one that was found, so that it runs "
        "away without a penalty (its column separates the outcome) or takes more iterations; leave "
        "the column out, or give it a penalty"
    )
