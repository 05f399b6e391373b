"""Dual vectors of losses without a steepest slope, where entries are beyond what can be added."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.matching.party_view import PartyView


def without_cohorts_beyond(
    duals: Floats, largest: float, view: PartyView
) -> tuple[Floats, NDArray[np.bool_]]:
    """Zero in all samples of a cohort of which one is beyond; and which vectors that changes.

    They are dual vectors still, and the same ones at all holders of a cohort. Were single entries
    cut off instead, three vectors close together would show the rows of these.
    """
    beyond = ~(np.abs(duals) <= largest)
    lacking: NDArray[np.bool_] = np.any(beyond, axis=0)
    if not lacking.any():
        return duals, lacking
    cohort = view.row_cohort
    left_out = np.zeros((len(view.sizes), duals.shape[1]), bool)
    rows, columns = np.nonzero(beyond)
    left_out[cohort[rows], columns] = True
    return np.where(left_out[cohort], 0.0, duals), lacking
