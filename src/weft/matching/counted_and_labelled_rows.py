"""Which rows the parties count, have labels of, and tell others about; read off the holdings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.matching.cohorts import ranges
from weft.matching.holding_map import HoldingMap


def counted(holdings: HoldingMap) -> list[int]:
    """How many samples each party counts the losses of."""
    counts = np.bincount(
        holdings.counter, weights=holdings.rows.sizes, minlength=len(holdings.parties)
    )
    return [int(count) for count in counts]


def labelled_rows(holdings: HoldingMap) -> dict[str, NDArray[np.int32]]:
    """Per party that lacks labels of some shared rows: those that it has, as local slots."""
    found = {}
    for party in holdings.partly_unlabelled:
        number = holdings.index[party]
        cohorts = holdings.rows.cohorts[number]
        mine = np.array([number in holdings.rows.marked[c] for c in cohorts.tolist()], bool)
        mine &= holdings.rows.shared_cohort[cohorts]
        starts = holdings.rows.local_starts(number)[:-1]
        found[party] = ranges(starts[mine], holdings.rows.sizes[cohorts][mine]).astype(np.int32)
    return found


def followed(holdings: HoldingMap) -> dict[str, NDArray[np.bool_]]:
    """Per party, which of its cohorts have a holder without the label."""
    lacking = holdings.rows.holders.lengths > holdings.rows.marked.lengths
    return {
        party: lacking[holdings.rows.cohorts[number]]
        for number, party in enumerate(holdings.parties)
    }
