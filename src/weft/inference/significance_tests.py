"""Tests of several coefficients at once: Wald's, and the likelihood ratio of two nested fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.array_types import Floats
from weft.errors import ConfigError


@dataclass(frozen=True)
class SignificanceTest:
    """A test's outcome.

    Attributes
    ----------
    statistic, degrees, residual
        χ² with so many degrees of freedom; F with these two where ``residual`` is not None.
    p
        How likely as large a statistic is if the hypothesis is true.
    certified
        Between which values p lies for the exact optima; None: nothing is certified.
    """

    name: str
    statistic: float
    degrees: int
    residual: float | None
    p: float
    certified: tuple[float, float] | None = None

    def __str__(self) -> str:
        law = "χ²" if self.residual is None else "F"
        second = "" if self.residual is None else f", {self.residual:.6g}"
        told = (
            f"{self.name}: {law}({self.degrees}{second}) = {self.statistic:.6g}, p = {self.p:.4g}"
        )
        if self.certified is not None:
            told += f", certified between {self.certified[0]:.4g} and {self.certified[1]:.4g}"
        return told


@dataclass(frozen=True)
class FittedLoss:
    """What a likelihood ratio needs to know of a fit.

    Attributes
    ----------
    names
        Of all coefficients.
    total
        Σ ω l at the fit.
    slack
        How far that can be from the exact optimum's; None: nothing is certified.
    fixed, dispersion
        Whether φ is one by the family; φ, None where nobody estimated it.
    """

    names: tuple[str, ...]
    family: str
    samples: int
    total: float
    slack: float | None
    fixed: bool
    dispersion: float | None


def wald(
    coef: Floats, covariance: Floats, names: Sequence[str], residual: float | None
) -> SignificanceTest:
    """Whether coefficients are all zero; F with so many residual degrees where φ was estimated."""
    from scipy import stats

    statistic = float(coef @ np.linalg.solve(covariance, coef))
    count = len(coef)
    name = f"Wald test of {', '.join(names)}"
    if residual is None:
        return SignificanceTest(
            name, statistic, count, None, float(stats.chi2.sf(statistic, count))
        )
    ratio = statistic / count
    return SignificanceTest(name, ratio, count, residual, float(stats.f.sf(ratio, count, residual)))


def likelihood_ratio_test(smaller: FittedLoss, larger: FittedLoss) -> SignificanceTest:
    """Whether the columns that a smaller model lacks tell something, from two fits.

    Where φ is estimated it is that of the larger model, and the statistic an F.
    """
    # Loading scipy's distributions takes longer than all of this.
    from scipy import stats

    missing = [name for name in smaller.names if name not in larger.names]
    degrees = len(larger.names) - len(smaller.names)
    if missing or degrees < 1:
        named = f"'{missing[0]}'" if missing else "all columns of the larger one"
        raise ConfigError(
            f"a likelihood ratio compares nested models, but the smaller one has {named}; train "
            "it on some of the columns of the larger one"
        )
    alike = (smaller.family, smaller.samples) == (larger.family, larger.samples)
    if not alike:
        raise ConfigError(
            "a likelihood ratio compares models of one family over the same samples, but these "
            f"are {smaller.family} over {smaller.samples} and {larger.family} over "
            f"{larger.samples}; train both on the same"
        )
    residual = None if larger.fixed else larger.samples - float(len(larger.names))
    phi = 1.0 if larger.fixed else larger.dispersion
    if not phi:
        raise ConfigError(
            "a likelihood ratio of this family takes its dispersion; train the larger model with "
            "inference"
        )

    def chance(less: float) -> tuple[float, float]:
        statistic = max(0.0, 2.0 * less / phi)
        if residual is None:
            return statistic, float(stats.chi2.sf(statistic, degrees))
        return statistic / degrees, float(stats.f.sf(statistic / degrees, degrees, residual))

    less = smaller.total - larger.total
    statistic, p = chance(less)
    certified = None
    if smaller.slack is not None and larger.slack is not None:
        slack = smaller.slack + larger.slack
        certified = chance(less + slack)[1], chance(less - slack)[1]
    extra = [name for name in larger.names if name not in smaller.names]
    name = f"likelihood ratio of {', '.join(extra)}"
    return SignificanceTest(name, statistic, degrees, residual, p, certified)
