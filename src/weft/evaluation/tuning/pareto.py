"""The Pareto front: runs that no other run beats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import DataError


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
