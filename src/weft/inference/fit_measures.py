"""Deviance, dispersion, likelihood and what follows from them, of one fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from weft.array_types import Floats
from weft.inference.fit_statistics import FitStatistics, Totals
from weft.inference.standard_error_requirements import FIXED_DISPERSION
from weft.losses import LOG_LINKED, Loss


@dataclass(frozen=True)
class FitMeasures:
    """How well a model fits; None: nobody told what that takes.

    Attributes
    ----------
    deviance, null_deviance
        Twice the loss of all samples, and that of an intercept alone.
    dispersion
        φ: one for binomial, Poisson and negative binomial, else Pearson's χ² by what is left of N.
    coefficients
        How many there are in effect: tr((H + λ)⁻¹H), their number where nothing is held back.
    residual
        N less that.
    explained
        1 − deviance/null deviance; of a gaussian model R².
    pseudo_r2
        McFadden's, 1 − log-likelihood/that of an intercept alone, where φ is one.
    """

    deviance: float | None
    null_deviance: float | None
    dispersion: float | None
    coefficients: float
    residual: float
    log_likelihood: float | None
    aic: float | None
    bic: float | None
    explained: float | None
    pseudo_r2: float | None


def measure(fit: FitStatistics) -> FitMeasures:
    """All measures of a fit."""
    matrix = fit.curvature if fit.information is None else fit.information
    held = matrix + np.diag(fit.penalty)
    coefficients = float(np.trace(np.linalg.solve(held, matrix)))
    residual = fit.samples - coefficients
    loss = _loss(fit)
    without = null_loss(fit)
    dispersion = _dispersion(fit, loss, residual)
    likelihood = _log_likelihood(fit, loss, dispersion)
    null = None if without is None else _log_likelihood(fit, without, dispersion)
    compared = fit.loss.name in FIXED_DISPERSION and likelihood is not None and bool(null)
    return FitMeasures(
        deviance=None if loss is None else 2.0 * loss,
        null_deviance=None if without is None else 2.0 * without,
        dispersion=dispersion,
        coefficients=coefficients,
        residual=residual,
        log_likelihood=likelihood,
        aic=None if likelihood is None else 2.0 * (coefficients - likelihood),
        bic=None if likelihood is None else coefficients * math.log(fit.samples) - 2.0 * likelihood,
        explained=None if loss is None or not without else 1.0 - loss / without,
        pseudo_r2=1.0 - likelihood / null if compared and likelihood and null else None,
    )


def _loss(fit: FitStatistics) -> float | None:
    if fit.totals is not None:
        return fit.totals.loss
    return None if fit.mean_loss is None else fit.mean_loss * fit.samples


def _dispersion(fit: FitStatistics, loss: float | None, residual: float) -> float | None:
    if fit.loss.name in FIXED_DISPERSION:
        return 1.0
    if residual <= 0:
        return None
    if fit.totals is not None:
        return fit.totals.pearson / residual
    if fit.pearson is not None:
        return fit.pearson / residual
    return 2.0 * loss / residual if loss is not None and fit.loss.name == "squared" else None


def _log_likelihood(
    fit: FitStatistics, loss: float | None, dispersion: float | None
) -> float | None:
    """As statsmodels has it: of a gaussian model at the variance that makes it largest."""
    name, totals, count = fit.loss.name, fit.totals, fit.samples
    if loss is None:
        return None
    if name in ("logistic", "softmax"):
        return -loss
    if name == "squared":
        if totals is None and fit.weighed:
            # It takes Σ log ω, which nobody adds up on shares.
            return None
        weights = 0.0 if totals is None else totals.constant
        return -0.5 * count * (math.log(2.0 * math.pi * 2.0 * loss / count) + 1.0) + 0.5 * weights
    if totals is None and name == "poisson":
        return _count_likelihood(fit, loss)
    if totals is None or name == "tweedie":
        return None
    if name in ("poisson", "negative_binomial"):
        return totals.constant - loss
    if totals.weighted or dispersion is None:
        # Each weight would have a likelihood of its own.
        return None
    shape = 1.0 / dispersion
    normal = count * (shape * math.log(shape) - float(scipy.special.gammaln(shape)))
    return normal - shape * (loss + count) - totals.constant


def null_loss(fit: FitStatistics) -> float | None:
    """Σ ω l of an intercept alone; None: it takes more than the sums that are known."""
    if fit.counts is not None:
        return _loss_of_shares(fit)
    totals = fit.totals or _gaussian_totals(fit) or _binomial_totals(fit) or _count_totals(fit)
    if totals is None:
        return None
    if totals.shifted and fit.loss.name in ("logistic", "negative_binomial"):
        # With offsets, these have no closed form.
        return None
    best = _null_score(fit.loss, totals)
    if best is None:
        return None
    # Losses are linear in the response: the change from a score of zero is A + B·y.
    ends = np.array([-1.0, 1.0] if fit.loss.task == "classification" else [1.0, 2.0])
    change: Floats = fit.loss.value(np.full(2, best), ends) - fit.loss.value(np.zeros(2), ends)
    slope = float(change[1] - change[0]) / float(ends[1] - ends[0])
    level = float(change[0]) - slope * float(ends[0])
    return totals.loss_without + level * totals.first + slope * totals.second


def _loss_of_shares(fit: FitStatistics) -> float | None:
    """Of several classes, −Σ n log(n/N): an intercept for each makes probabilities their shares."""
    if fit.counts is None or fit.totals is None:
        return None
    counts = np.append(fit.counts, fit.totals.weight - fit.counts.sum())
    return -float(scipy.special.xlogy(counts, np.maximum(counts, 0.0) / fit.totals.weight).sum())


def _null_score(loss: Loss, totals: Totals) -> float | None:
    mean = totals.second / totals.first
    if loss.name == "logistic":
        return math.log1p(mean) - math.log1p(-mean) if abs(mean) < 1 else None
    if loss.name in LOG_LINKED:
        return math.log(mean) if mean > 0 else None
    return mean


def _gaussian_totals(fit: FitStatistics) -> Totals | None:
    """Of a squared loss, Σy and Σy² follow from Xᵀy, and that from the optimum: Xᵀy = (XᵀX + Λ)w.

    Only where there is a constant column, and as exactly as the model is the optimum.
    """
    constant = str(fit.names[-1]) == "(intercept)"
    if fit.loss.name != "squared" or fit.mean_loss is None or not constant:
        return None
    weights = np.linalg.solve(fit.to_raw, fit.coef)
    crossed = (fit.curvature + np.diag(fit.penalty)) @ weights
    fitted = float(weights @ fit.curvature @ weights)
    square = 2.0 * fit.mean_loss * fit.samples + 2.0 * float(weights @ crossed) - fitted
    constant_value = float(fit.to_raw[-1, -1])
    total, count = float(crossed[-1]) / constant_value, float(fit.samples)
    weight = float(fit.curvature[-1, -1]) / constant_value**2 if fit.weighed else count
    return Totals(count, 0.0, 0.0, weight, 0.0, 0.5 * square, weight, total, 0.0, 0.0)


def _entropy(fit: FitStatistics) -> float | None:
    """Σ(y log y − y) of counts without offsets: their loss, but for Σ(e^z − yz).

    Σ e^z x stands in the Hessian, at the constant column, and Σ(e^z − y)x is the slope, so that
    Σ y x is known, and Σ yz with it.
    """
    constant = str(fit.names[-1]) == "(intercept)"
    if fit.loss.name != "poisson" or fit.label_sum is None or fit.mean_loss is None or not constant:
        return None
    weights = np.linalg.solve(fit.to_raw, fit.coef)
    one = float(fit.to_raw[-1, -1])
    means = fit.curvature[:, -1] / one
    slopes = -fit.penalty * weights if fit.slopes is None else fit.slopes
    crossed = float(weights @ (means - slopes))
    return fit.mean_loss * fit.samples - float(means[-1]) / one + crossed


def _count_totals(fit: FitStatistics) -> Totals | None:
    """Of counts, the sum of which is known."""
    entropy = _entropy(fit)
    if entropy is None or fit.label_sum is None:
        return None
    count, without = float(fit.samples), float(fit.samples) + entropy
    return Totals(count, 0.0, 0.0, count, 0.0, without, count, fit.label_sum, 0.0, 0.0)


def _count_likelihood(fit: FitStatistics, loss: float) -> float | None:
    """−Σ(e^z − yz + log y!), where losses have y log y − y for the last."""
    entropy = _entropy(fit)
    if entropy is None or fit.factorials is None:
        return None
    return entropy - fit.factorials - loss


def _binomial_totals(fit: FitStatistics) -> Totals | None:
    """Of two classes, of which it is known how many are of each."""
    if fit.loss.name != "logistic" or fit.label_sum is None:
        return None
    count = float(fit.samples)
    without = count * math.log(2.0)
    return Totals(count, 0.0, 0.0, count, 0.0, without, count, fit.label_sum, 0.0, 0.0)
