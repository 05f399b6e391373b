"""How far a model can be from the exact optimum of all samples, coefficient by coefficient.

Let P be the mean loss with its penalty, w the model, w* the optimum, Δ = w − w*, J = ∇²P(w), and
‖Δ‖² = ΔᵀJΔ. All families here have |l'''| ≤ l'': along a line, curvature changes at most like
e^{±s}, s = max_i |x_iᵀΔ|, and s ≤ R‖Δ‖ with R² = max_i x_iᵀJ⁻¹x_i. Bounds for ‖Δ‖ follow, each a
theorem:

1. from the slope ∇P(w), where sums tell it, with δ² = ∇PᵀJ⁻¹∇P, or δ ≤ ‖∇P‖/√λ_min(J) where only
   its length is known:
   δ‖Δ‖ ≥ ∇PᵀΔ = ∫₀¹ ΔᵀJ(w − uΔ)Δ du ≥ ‖Δ‖² (1 − e^{−s})/s, so that ‖Δ‖ ≤ −log(1 − Rδ)/R if Rδ < 1;
2. from the certificate, P(w) − P* ≤ gap:
   gap ≥ ∫₀¹ (1 − u) ΔᵀJ(w − uΔ)Δ du ≥ ‖Δ‖² (1 − (1 + s)e^{−s})/s², so that with t = R‖Δ‖
   1 − (1 + t)e^{−t} ≤ gap·R², if gap·R² < 1; for small gaps ‖Δ‖ ≤ √(2·gap), nearly;
3. of a squared loss, whose curvature is constant, ‖Δ‖ = δ and ‖Δ‖ ≤ √(2·gap), without conditions.

Of several classes l''' along a line is the third central moment of the scores' changes under p, at
most their range times l'', the variance: s is how far scores of two classes come apart.

Where slopes are known, the estimate is the model after a step of Newton's, w − J⁻¹∇P, which is
closer to the optimum: its distance is J⁻¹∫₀¹ (J − J(w − uΔ))Δ du, so at most
‖Δ‖((e^s − 1)/s − 1). To which is added what errors of the slope, o, and of J, E, do:
‖o‖/√λ_min(J) and ‖E‖(‖step‖ + ‖o‖/λ_min(J))/√λ_min(J).

Then |cᵀΔ| ≤ ‖Δ‖·√(cᵀJ⁻¹c) for every c, which is at most ‖Δ‖·‖c‖/√λ_min(J). Besides, λ alone makes P
strongly convex in the weights that it holds back, so that together they are no farther than
√(2·gap/λ). The smallest bound counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.array_types import Floats
from weft.inference.fit_statistics import Certified, FitStatistics

#: Beyond this, a bound on t says nothing.
_FARTHEST = 700.0
#: A step is taken though its bound is wider than the model's, up to so many times: most of both is
#: then how far slopes may be off at worst, while what the step takes off is there.
_WORTH = 2.0
#: How far a sum of slopes may be off by rounding, by what its terms come to.
_ROUNDING = 1e-13


class _Proved(NamedTuple):
    """What curvature proves of the model and, after a step, of its estimate; and of P."""

    distances: Floats
    after: Floats
    gap: float


def certify(fit: FitStatistics) -> Certified:
    """What slopes and certificate prove."""
    if fit.proved is not None:
        return fit.proved
    gap = np.inf if fit.gap is None else max(fit.gap, 0.0)
    if fit.expected:
        # A step by what is expected comes closer as one of Newton's does, but proves nothing.
        away, step = _by_penalty(fit, gap), _newton(fit)
        along = np.zeros(len(fit.coef)) if step is None else fit.to_raw @ step
        return Certified(fit.coef - along, away + np.abs(along), gap)
    step = _newton(fit)
    proved = _by_curvature(fit, gap, step)
    gap = min(gap, proved.gap)
    found = np.minimum(proved.distances, _by_penalty(fit, gap))
    if step is None or (np.isfinite(found).all() and (proved.after > _WORTH * found).any()):
        return Certified(fit.coef, found, float(gap))
    moved: Floats = fit.to_raw @ step
    # What is proved of the model holds of the estimate, but for the step.
    return Certified(fit.coef - moved, np.minimum(proved.after, found + np.abs(moved)), float(gap))


def last_step(fit: FitStatistics) -> Floats | None:
    """How far one more step moves each coefficient, in the units of the table; None: not known.

    Of an expected Hessian, which proves nothing, it is how near the optimum is: where no slope is
    known, it is the longest step that the slope's length allows.
    """
    if fit.proved is not None:
        # Its slopes are those before a step that was made.
        return None
    step = _newton(fit)
    if step is not None:
        moved: Floats = np.abs(fit.to_raw @ step)
        return moved
    if not fit.expected:
        return None
    held = (fit.curvature + np.diag(fit.penalty)) / fit.samples
    longest: Floats = fit.steepest * np.linalg.norm(np.linalg.solve(held, fit.to_raw.T), axis=0)
    return longest


def _newton(fit: FitStatistics) -> Floats | None:
    """J⁻¹∇P, in units of training; None: no slope is known."""
    slope = slope_of(fit)
    if slope is None:
        return None
    held = (fit.curvature + np.diag(fit.penalty)) / fit.samples
    return np.asarray(np.linalg.solve(held, slope[0]), float)


def _by_penalty(fit: FitStatistics, gap: float) -> Floats:
    """√(2·gap/λ) for weights that λ holds back, in the units of the table."""
    free = fit.penalty == 0
    if free.all():
        return np.full(len(free), np.inf)
    longest = np.sqrt(2.0 * gap * fit.samples / fit.penalty[~free].min())
    # All squares together are bounded, and so, by Cauchy and Schwarz, is every combination.
    reach = longest * np.linalg.norm(fit.to_raw[:, ~free], axis=1)
    needs_free = (fit.to_raw[:, free] != 0).any(axis=1)
    distance: Floats = np.where(needs_free, np.inf, reach)
    return distance


def _by_curvature(fit: FitStatistics, gap: float, step: Floats | None) -> _Proved:
    """Distances by the Hessian, less what its entries may be off, and P − P* by the slope."""
    columns = len(fit.names)
    unsure = columns * fit.error / fit.samples
    whole = (fit.curvature + np.diag(fit.penalty)) / fit.samples - unsure * np.eye(columns)
    values, vectors = np.linalg.eigh(whole)
    nothing = np.full(columns, np.inf)
    if values[0] <= 0:
        return _Proved(nothing, nothing, np.inf)
    exact, square = fit.loss.name == "squared", fit.longest_row / float(values[0])
    spread: Floats = np.sqrt((((fit.to_raw @ vectors) ** 2) / values).sum(axis=1))
    radius = _of_gap(gap, square, exact=exact)
    slope = slope_of(fit)
    lowest = float(np.sqrt(values[0]))
    if slope is None or step is None:
        # A sealed run tells no slope, but how long it is.
        steepness = fit.steepest / lowest
        near = _of_slope(steepness, square, exact=exact)
        return _Proved(min(radius, near) * spread, nothing, steepness * near)
    told, off = slope
    steepness = float(np.sqrt((((vectors.T @ told) ** 2) / values).sum())) + off / lowest
    near = _of_slope(steepness, square, exact=exact)
    after = off / lowest + unsure * (float(np.linalg.norm(step)) + off / lowest**2) / lowest
    if not exact:
        after += near * _bent(float(np.sqrt(square)) * near)
    # P is convex: it falls by no more than its slope along Δ.
    return _Proved(min(radius, near) * spread, after * spread, steepness * near)


def _bent(score: float) -> float:
    """(e^s − 1)/s − 1: how far a step misses for curvature, where scores change by s."""
    if score < 1e-4:
        return score
    return float(np.expm1(score)) / score - 1.0 if score < _FARTHEST else float("inf")


def slope_of(fit: FitStatistics) -> tuple[Floats, float] | None:
    """∇P at the model, and how far it may be off, in length."""
    if fit.slopes is None:
        return None
    weights = np.linalg.solve(fit.to_raw, fit.coef)
    total = fit.slopes + fit.penalty * weights
    # By Cauchy and Schwarz, Σ|l'x| is at most √(Σl'²/l'' · Σl''x²).
    pearson = 0.0 if fit.totals is None else fit.totals.pearson
    terms = np.sqrt(max(pearson, fit.samples) * np.diag(fit.curvature)) + np.abs(
        fit.penalty * weights
    )
    rounding = float(np.linalg.norm(_ROUNDING * terms / fit.samples))
    return total / fit.samples, rounding + fit.slope_error


def _of_slope(steepness: float, square: float, *, exact: bool) -> float:
    """‖Δ‖ at most, from the slope, where no xᵀJ⁻¹x is above ``square``."""
    reach = float(np.sqrt(square))
    if exact or steepness == 0:
        return steepness
    if not reach * steepness < 1.0:
        return float("inf")
    return -float(np.log1p(-reach * steepness)) / reach


def _of_gap(gap: float, square: float, *, exact: bool) -> float:
    """‖Δ‖ at most, from the gap."""
    if exact or gap == 0:
        return float(np.sqrt(2.0 * gap))
    if not gap * square < 1.0 - 1e-12:
        return float("inf")
    if gap * square < 1e-9:
        # Rounding would say less than the first terms: t²/2 − t³/3 ≤ 1 − (1 + t)e^{−t}.
        return float(np.sqrt(2.0 * gap) * (1.0 + np.sqrt(2.0 * gap * square)))

    def excess(t: float) -> float:
        return float(-np.expm1(-t) - t * np.exp(-t) - gap * square)

    # Loaded here: it takes as long as a small run, and few runs ask for inference.
    from scipy.optimize import brentq

    return float(brentq(excess, 0.0, _FARTHEST)) / float(np.sqrt(square))
