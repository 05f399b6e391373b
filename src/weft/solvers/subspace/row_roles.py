"""Which samples the parties count, have labels of, and tell others about."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.matching.cohorts import ranges
from weft.matching.holding_map import Roster


def counted(roster: Roster) -> list[int]:
    """How many samples each party counts the losses of."""
    counts = np.bincount(roster.counter, weights=roster.rows.sizes, minlength=len(roster.parties))
    return [int(count) for count in counts]


def labelled_rows(roster: Roster) -> dict[str, NDArray[np.int32]]:
    """Per party that lacks labels of some shared rows: those that it has, as local slots."""
    found = {}
    for party in roster.partly_unlabelled:
        number = roster.index[party]
        cohorts = roster.rows.cohorts[number]
        mine = np.array([number in roster.rows.marked[c] for c in cohorts.tolist()], bool)
        mine &= roster.rows.shared_cohort[cohorts]
        starts = roster.rows.local_starts(number)[:-1]
        found[party] = ranges(starts[mine], roster.rows.sizes[cohorts][mine]).astype(np.int32)
    return found


def followed(roster: Roster) -> dict[str, NDArray[np.bool_]]:
    """Per party, which of its cohorts have a holder without the label."""
    lacking = roster.rows.holders.lengths > roster.rows.marked.lengths
    return {
        party: lacking[roster.rows.cohorts[number]] for number, party in enumerate(roster.parties)
    }
