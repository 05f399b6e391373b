"""Who speaks for a cohort of samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.matching.holding_map import HoldingMap


class CohortSpeakers:
    """Who keeps the coordinator's α current: the first of those present who move it, per cohort.

    Parameters
    ----------
    labelled
        Whether only the holders of labels move α, or all holders of a sample.
    """

    def __init__(self, holdings: HoldingMap, *, labelled: bool) -> None:
        movers = holdings.rows.marked if labelled else holdings.rows.holders
        self._holder = movers.values
        self._start = movers.start[:-1]
        cohort = np.repeat(np.arange(len(movers)), movers.lengths)
        # Entries in the order of (party, cohort): a party's own cohorts are one slice.
        order = np.lexsort((cohort, self._holder))
        self._rank = np.empty(len(order), np.int64)
        self._rank[order] = np.arange(len(order))
        self._bounds = np.searchsorted(
            self._holder[order], np.arange(len(holdings.parties) + 1)
        ).tolist()
        self._slot = {p: i for i, p in enumerate(holdings.parties)}
        self._moved = [
            None
            if len(holdings.rows.cohorts[k]) == self._bounds[k + 1] - self._bounds[k]
            else np.isin(
                holdings.rows.cohorts[k], cohort[order][self._bounds[k] : self._bounds[k + 1]]
            )
            for k in range(len(holdings.parties))
        ]

    def of(self, present: list[str]) -> dict[str, NDArray[np.bool_]]:
        """Per party present, a flag for each of its cohorts."""
        here = np.zeros(len(self._slot), bool)
        here[[self._slot[p] for p in present]] = True
        candidate = np.where(here[self._holder], np.arange(len(self._holder)), len(self._holder))
        first = np.minimum.reduceat(candidate, self._start)
        chosen = np.zeros(len(self._holder) + 1, bool)
        chosen[first] = True
        by_party = np.empty(len(self._holder), bool)
        by_party[self._rank] = chosen[:-1]
        flags = {}
        for party in present:
            k = self._slot[party]
            mine = by_party[self._bounds[k] : self._bounds[k + 1]]
            moved = self._moved[k]
            if moved is not None:
                mine_all = np.zeros(len(moved), bool)
                mine_all[moved] = mine
                mine = mine_all
            flags[party] = mine
        return flags
