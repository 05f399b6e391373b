"""Who may take part in an iteration, so that every sum that somebody opens has enough parties."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from weft.matching.cohorts import Axis
from weft.matching.holding_map import HoldingMap

Ints = NDArray[np.int64]


class Contributors:
    """Keeps parties out of an iteration in which too few would share a cohort with them.

    A party sees by how much a total has changed since its last copy. So of every shared cohort
    either nobody takes part, or as many parties as the terms ask for. Where sums of two are
    allowed, anybody may.
    """

    def __init__(self, holdings: HoldingMap) -> None:
        self._parties = holdings.parties
        self._index = holdings.index
        terms = holdings.terms
        self._least = 1 if terms.allow_pairs else terms.min_contributors
        pairs = [_pairs(axis) for axis in (holdings.rows, holdings.columns)]
        cohorts = [len(axis.sizes) for axis in (holdings.rows, holdings.columns)]
        self._cohort: Ints = np.concatenate([pairs[0][0], pairs[1][0] + cohorts[0]])
        self._party: Ints = np.concatenate([pairs[0][1], pairs[1][1]])
        self._cohorts = sum(cohorts)

    def of(self, present: Sequence[str]) -> list[str]:
        """Those of the parties present that may take part."""
        if self._least <= 1:
            return list(present)
        here = np.zeros(len(self._parties), bool)
        here[[self._index[party] for party in present]] = True
        while True:
            counts = np.bincount(self._cohort[here[self._party]], minlength=self._cohorts)
            few = (counts > 0) & (counts < self._least)
            alone = self._party[few[self._cohort] & here[self._party]]
            if not len(alone):
                return [party for party in present if here[self._index[party]]]
            here[alone] = False


def _pairs(axis: Axis) -> tuple[Ints, Ints]:
    """(cohort, holder) of all cohorts that take part in sums."""
    cohort = np.repeat(np.arange(len(axis.sizes)), axis.holders.lengths)
    shared = axis.shared_cohort[cohort]
    return cohort[shared], axis.holders.values[shared]
