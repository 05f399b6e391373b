"""Which fits have no standard errors: columns that say the same, and coefficients that run away."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.errors import DataError
from weft.inference.fit_statistics import FitStatistics

#: Below this part of its variance, what a column has for itself is rounding.
_NOTHING_OF_ITS_OWN = 1e-9
#: What entries of a matrix are off, as a share of the bound for that: on breast cancer, sealed, the
#: largest was 1/200 to 1/370 of it.
_OF_THE_BOUND = 5e-3
#: Parts of a combination below this share of the largest are not named.
_NAMED = 0.05
#: A weight that is this far from zero, of scaled columns, multiplies odds or rates by twenty for a
#: deviation.
_FAR = 3.0
#: Where samples are certain, each has about λN|w| left of its curvature, times this at least.
_HELD_BY_PENALTY = 0.1


def refuse_unidentified(fit: FitStatistics) -> None:
    """Refuse collinear columns and outcomes that are separated, by name."""
    _refuse_collinear(fit)
    _refuse_separated(fit)


def _refuse_collinear(fit: FitStatistics) -> None:
    sizes = np.sqrt(np.maximum(np.diag(fit.curvature), 0.0))
    empty = sizes**2 <= fit.error
    if empty.any():
        raise DataError(
            f"there are no standard errors: {_listed(fit.names[empty])} says nothing about the "
            "samples that are undecided, being the same for all of them; leave it out"
        )
    alike = fit.curvature / np.outer(sizes, sizes)
    off = _OF_THE_BOUND * fit.error / float((sizes**2).min())
    values, vectors = np.linalg.eigh(alike)
    if values[0] <= max(_NOTHING_OF_ITS_OWN, off):
        part = np.abs(vectors[:, 0])
        named = fit.names[part > _NAMED * part.max()]
        raise DataError(
            f"there are no standard errors: the columns {_listed(named)} add up to the same for "
            "all samples (they are collinear); leave one of them out"
        )


def _refuse_separated(fit: FitStatistics) -> None:
    """Refuse a coefficient that nothing but λ may keep from infinity.

    There p(1 − p) ≈ 1 − p, and λN w = Σ(1 − p)x: the curvature that is left is about λN|w|, and λN
    a share of 1/(1 + |w|) of all. Where samples hold a coefficient, a small λN is nothing beside
    them; a larger one can look the same, which the sentence says.
    """
    if fit.loss.name == "squared":
        return
    whole = fit.curvature + np.diag(fit.penalty)
    share = fit.penalty * np.diag(np.linalg.inv(whole))
    weights = np.linalg.solve(fit.to_raw, fit.coef)
    size = np.abs(weights)
    away = (share * (1.0 + size) > _HELD_BY_PENALTY) & (size > _FAR)
    if away.any():
        worst = fit.names[np.where(away, size, 0.0).argmax()]
        raise DataError(
            f"there are no standard errors: the coefficient of '{worst}' is large and held back by "
            "lambda, so that it runs away without (its column separates the outcome) or lambda is "
            "too large; take a much smaller lambda to tell, and leave the column out if it stays so"
        )


def _listed(names: NDArray[np.object_]) -> str:
    told = [f"'{name}'" for name in names.tolist()]
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"
