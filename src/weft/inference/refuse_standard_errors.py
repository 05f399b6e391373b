"""Which fits have no standard errors: columns that say the same, coefficients that run away, and
models that are not near their optimum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.errors import DataError
from weft.inference.fit_statistics import FitStatistics

#: Below this part of its variance, what a column has for itself is rounding.
_NOTHING_OF_ITS_OWN = 1e-9
#: So many times what rounded cells can have for themselves, what a column has is its own: rounding
#: of cells then makes standard errors off by a twentieth at most, one by the square root of this.
_TIMES_ROUNDING = 400.0
#: Parts of a combination below this share of the largest are not named.
_NAMED = 0.05
#: One more step moves no coefficient of a model that is near its optimum by more standard errors.
_NEAR = 0.05


def refuse_unidentified(fit: FitStatistics) -> None:
    """Refuse collinear columns and outcomes that are separated, by name."""
    refuse_collinear(fit)
    _refuse_separated(fit)


def refuse_unfinished(
    fit: FitStatistics, errors: Floats, distances: Floats, step: Floats | None
) -> None:
    """Refuse a sealed model from which one more step is long, and that is not proved to be near.

    A sealed run may end anywhere: by its iterations, or where scores leave what series reach.

    Parameters
    ----------
    distances
        How far coefficients are from the optimum, at most, as it is proved.
    step
        See `last_step`.
    """
    if fit.totals is not None or step is None or (distances <= _NEAR * errors).all():
        return
    shares = step / errors
    worst = int(shares.argmax())
    if shares[worst] <= _NEAR:
        return
    named, much = fit.names[worst], f"{float(shares[worst]):.2g} of its standard errors"
    if fit.slopes is None:
        raise DataError(
            f"there are no standard errors: without a gradient it is not shown that '{named}' is "
            f"nearer to the optimum than {much}; give the run more iterations, have 96 samples for "
            "each column, or train with mode = 'sums'"
        )
    raise DataError(
        f"there are no standard errors: the run ended where one more step moves '{named}' by "
        f"{much}, which is not near the optimum; give it more iterations or a larger lambda, or "
        "train with mode = 'sums'"
    )


def refuse_collinear(fit: FitStatistics) -> None:
    """Refuse columns that say the same, by name.

    The matrices of a sealed run are X̃ᵀ diag(c) X̃, of cells X̃ = X + Δ that are rounded and of
    curvatures c that are off, and nothing else is: sums of whole numbers are exact. Along u it is
    Σ c (x̃·u)², so wrong curvatures change it by a share of itself, and neither make up nor hide
    what columns have for themselves. Cells do: where x·u = 0 for all samples it is Σ c (Δ·u)² ≤
    k·δ²·Σ c for a u of length one, no cell being off by more than δ; and elsewhere its square root
    is off by no more than the square root of that. Bounds of entries (`FitStatistics.error`), in
    which errors of all samples add up as nothing makes them do, say much less: they are a million
    times what collinear columns were found to have.
    """
    sizes = np.sqrt(np.maximum(np.diag(fit.curvature), 0.0))
    empty = sizes**2 <= fit.error
    if empty.any():
        raise DataError(
            f"there are no standard errors: {_listed(fit.column_names[empty])} says nothing about "
            "the samples that are undecided, being the same for all of them; leave it out"
        )
    alike = fit.curvature / np.outer(sizes, sizes)
    off = _TIMES_ROUNDING * _made_up_by_cells(fit) / float((sizes**2).min())
    values, vectors = np.linalg.eigh(alike)
    if values[0] <= max(_NOTHING_OF_ITS_OWN, off):
        part, columns = np.abs(vectors[:, 0]), fit.column_names
        told = set(columns[part > _NAMED * part.max()].tolist())
        named = columns[[name in told for name in columns.tolist()]]
        raise DataError(
            f"there are no standard errors: the columns {_listed(named)} add up to the same for "
            "all samples (they are collinear); leave one of them out"
        )


def _made_up_by_cells(fit: FitStatistics) -> float:
    """What columns that are collinear seem to have for themselves, at most: k·δ²·Σ c."""
    total = fit.samples * fit.loss.smoothness
    if fit.names[-1] == "(intercept)":
        total = float(fit.curvature[-1, -1] / fit.to_raw[-1, -1] ** 2)
    return 0.0 if fit.cells_off == 0.0 else len(fit.names) * fit.cells_off**2 * total


def _refuse_separated(fit: FitStatistics) -> None:
    """Refuse coefficients of which it is not shown that they stay finite without λ.

    Say they run away along u: no loss rises on that way, ever. Then no slope l' x·u is above zero,
    and where losses have a least, x·u is zero. All families here have l'' ≤ |l'| where they fall
    for ever (1 − p ≥ p(1 − p) of a sample that is never wrong; Poisson's μ with a count of zero),
    so that −∇R·u = Σ|l' x·u| ≥ Σ l''|x·u|. With s = H⁻¹∇R, on the other hand, −∇R·u = −s·Hu =
    −Σ l''(x·s)(x·u) ≤ max|x·s| Σ l''|x·u|. So where a step of Newton's towards λ = 0 changes no
    score by as much as one, coefficients stay finite: no direction separates the outcome. Of an
    outcome that is separated that is never so, however small λ is; of any other it is so for a
    small one.

    Of several classes, with scores h = Ux of a direction, g = h_y − h is nowhere below zero, and
    −∇R·u = ΣE_p g, while by s it is ΣCov_p(x·s, g) ≤ max|x·s_k − x·s_l| ΣE_p g: no two classes may
    come apart by as much as one.

    H and ∇R are as they are known: of a sealed run up to its rounding. Where no slope is told,
    it is −λw but for ∇P, of which P − P* ≤ gap leaves ‖∇P‖² ≤ 2·gap·L.
    """
    if fit.loss.name in ("squared", "gamma") or fit.proved is not None:
        # An optimum that is proved to be near is finite, and so is one of losses with a least each.
        return
    weights = np.linalg.solve(fit.to_raw, fit.coef)
    # At the optimum the penalty balances slopes.
    slopes = -fit.penalty * weights if fit.slopes is None else fit.slopes
    step = np.linalg.solve(fit.curvature, slopes)
    length = float(np.linalg.norm(step)) + (_unsure(fit) if fit.slopes is None else 0.0)
    if length * float(np.sqrt(fit.longest_row)) < 1.0:
        return
    # In units of training, in which columns are alike; the intercept follows the others.
    features = fit.column_names != "(intercept)"
    size = np.where(features if features.any() else True, np.abs(step), 0.0)
    raise DataError(
        f"there are no standard errors: it is not shown that the coefficient of "
        f"'{fit.column_names[size.argmax()]}' stays finite without lambda, which runs away where "
        "its column separates the outcome; take a smaller lambda and more iterations, and leave "
        "the column out if it stays so"
    )


def _unsure(fit: FitStatistics) -> float:
    """By how much the step is longer or shorter, at most, for the model is not the optimum."""
    if fit.gap is None:
        return float("inf")
    known = fit.samples * fit.steepest
    steepest = fit.loss.smoothness * fit.longest_row + float(fit.penalty.max()) / fit.samples
    slope = fit.samples * float(np.sqrt(2.0 * max(fit.gap, 0.0) * steepest))
    return min(slope, known) / float(np.linalg.eigvalsh(fit.curvature)[0])


def _listed(names: NDArray[np.object_]) -> str:
    told = [f"'{name}'" for name in dict.fromkeys(names.tolist())]
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"
