"""The Pareto front of runs, and grey relational analysis: one number for what is good on it.

It needs runs, metrics and the direction in which each metric is better, and nothing else of Weft.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.array_types import Floats
from weft.errors import ConfigError, DataError


def pareto_front(values: ArrayLike, larger_is_better: Sequence[bool]) -> NDArray[np.bool_]:
    """Per run, whether no other is at least as good in every metric and better in one.

    Runs with the same values do not beat each other: either both are in the front, or neither.

    Parameters
    ----------
    values
        (runs × metrics) numbers; infinite ones are allowed, nan is not.
    larger_is_better
        Per metric.
    """
    table = np.array(values, np.float64)
    if table.ndim != 2 or len(larger_is_better) != table.shape[1]:
        raise DataError("a front is of a table of runs × metrics, with a direction per metric")
    if np.isnan(table).any():
        raise DataError("a front cannot be found where a metric is nan; leave those runs out")
    costs = np.where(np.asarray(larger_is_better, bool), -table, table)
    front = np.ones(len(costs), bool)
    # One comparison with all others per run: memory stays that of the table.
    for run, cost in enumerate(costs):
        front[run] = not ((costs <= cost).all(axis=1) & (costs < cost).any(axis=1)).any()
    return front


#: Wang and Rangaiah (2017) have no distinguishing coefficient, which is ξ = 1.
DISTINGUISHING = 1.0
#: What is computed, in a line, for reports.
FORMULA = (
    "grade: mean over metrics of (Δmin + ξΔmax)/(Δ + ξΔmax), Δ from 0 (best of the front) to 1"
)


@dataclass(frozen=True)
class Grades:
    """What grey relational analysis finds.

    Attributes
    ----------
    normalised
        F: (runs × metrics) values from 0 (worst of all runs) to 1 (best).
    coefficients
        (runs × metrics) grey relational coefficients, above 0 and at most 1.
    grades
        Per run, their weighted mean.
    """

    normalised: Floats
    coefficients: Floats
    grades: Floats

    @property
    def best(self) -> int:
        """The run with the highest grade; of several, the first."""
        return int(np.argmax(self.grades))

    @property
    def order(self) -> NDArray[np.int64]:
        """Runs from the best grade to the worst; equal ones as they came."""
        return np.argsort(-self.grades, kind="stable")


def grey_relational_analysis(
    values: ArrayLike,
    larger_is_better: Sequence[bool],
    *,
    weights: ArrayLike | None = None,
    distinguishing: float = DISTINGUISHING,
) -> Grades:
    """Grade runs by how near they are to the best that any of them reaches in every metric.

    Every metric j is brought to F_ij in [0, 1], with 1 for the best of the runs given and 0 for the
    worst; where all agree, F_ij = 1. With Δ_ij = 1 − F_ij, Δmin and Δmax over all i and j, the
    coefficient of run i in metric j is

        γ_ij = (Δmin + ξ Δmax) / (Δ_ij + ξ Δmax),

    and 1 where Δmax = 0. The grade of run i is Σ_j w_j γ_ij / Σ_j w_j.

    ξ = 1 is the analysis of Wang and Rangaiah (2017, Ind. Eng. Chem. Res. 56), which the authors of
    HyFDCA use; Deng (1982) has ξ = 0.5. The smaller ξ is, the more it counts to be the very best in
    some metric, and the less it matters how bad one is in another.

    Parameters
    ----------
    values
        (runs × metrics) finite numbers. Runs that diverged must be left out beforehand.
    larger_is_better
        Per metric.
    weights
        Per metric, not negative; None: all the same.
    distinguishing
        ξ, above 0 and at most 1.
    """
    table = np.array(values, np.float64)
    if table.ndim != 2 or not table.size:
        raise DataError("grey relational analysis needs a table with at least one run and metric")
    if not np.isfinite(table).all():
        run = int(np.flatnonzero(~np.isfinite(table).all(axis=1))[0])
        raise DataError(
            f"run {run} has a metric that is not a finite number; leave runs that diverged out of "
            "grey relational analysis"
        )
    if len(larger_is_better) != table.shape[1]:
        raise DataError(
            f"there are {table.shape[1]} metrics, but {len(larger_is_better)} directions; say of "
            "each metric whether more is better"
        )
    if not 0 < distinguishing <= 1:
        raise ConfigError(
            f"the distinguishing coefficient is {distinguishing:g}; give a number above 0 and at "
            "most 1"
        )
    counts = _checked(weights, table.shape[1])
    normalised = _normalised(np.where(np.asarray(larger_is_better, bool), table, -table))
    distance = 1.0 - normalised
    reach = distinguishing * distance.max()
    coefficients = np.ones_like(distance)
    if reach > 0:
        coefficients = (distance.min() + reach) / (distance + reach)
    grades = np.minimum(coefficients @ counts / counts.sum(), 1.0)
    return Grades(normalised, coefficients, grades)


def _normalised(table: Floats) -> Floats:
    """Every column from 0 to 1; one that is the same everywhere is 1."""
    # Halves, since the difference of two large numbers may be none.
    half = table / 2
    low, span = half.min(axis=0), np.ptp(half, axis=0)
    flat = span == 0
    found: Floats = np.where(flat, 1.0, (half - low) / np.where(flat, 1.0, span))
    return found


def _checked(weights: ArrayLike | None, metrics: int) -> Floats:
    """Weights of all metrics."""
    if weights is None:
        return np.ones(metrics)
    given = np.array(weights, np.float64)
    fine = given.shape == (metrics,) and bool(np.isfinite(given).all()) and bool((given >= 0).all())
    if not fine or not 0 < float(given.sum()) < math.inf:
        raise ConfigError(
            f"the weights of {metrics} metrics are as many numbers of at least 0, not all of them 0"
        )
    return given
