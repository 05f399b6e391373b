"""Coefficients of several classes against another one: differences of those that are there.

β of class k against r is β_k − β_r, both against the first, and that of the first against r −β_r.
So is their covariance; what is proved of a difference is what is proved of both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.errors import ConfigError


class Turned(NamedTuple):
    """Names, estimates, covariance and distances, class by class."""

    names: NDArray[np.object_]
    coef: Floats
    covariance: Floats
    distance: Floats


def against(
    reference: str,
    before: str,
    columns: NDArray[np.object_],
    names: NDArray[np.object_],
    coef: Floats,
    covariance: Floats,
    distance: Floats,
) -> Turned:
    """What was against ``before``, against ``reference``; ``columns`` are those of ``names``."""
    told = [str(n)[: -len(str(c)) - 2] for n, c in zip(names, columns, strict=True)]
    others = list(dict.fromkeys(told))
    if reference not in others:
        raise ConfigError(
            f"reference = '{reference}' is no class of this model; take one of "
            f"{', '.join([before, *others])}"
        )
    width, place = len(names) // len(others), others.index(reference)
    kept = [name for name in others if name != reference]
    turn = np.zeros((len(others), len(others)))
    turn[:, place] = -1.0
    for row, name in enumerate(kept, start=1):
        turn[row, others.index(name)] = 1.0
    whole = np.kron(turn, np.eye(width))
    new = [f"{name}: {column}" for name in [before, *kept] for column in columns[:width].tolist()]
    return Turned(
        np.array(new, dtype=object),
        whole @ coef,
        whole @ covariance @ whole.T,
        # Nothing is proved of a difference to what nothing is proved of.
        np.where(whole != 0, distance, 0.0).sum(axis=1),
    )
