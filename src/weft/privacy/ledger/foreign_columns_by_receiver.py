"""Who sees what of whom: for every group of samples, what is foreign to each of its holders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from weft.array_types import Flags
from weft.matching.holding_map import HoldingMap


@dataclass(frozen=True)
class View:
    """What one party can get to know about samples of the same kind.

    Attributes
    ----------
    receiver
        Who gets the sums.
    about
        The other holders that have columns which are foreign to it.
    samples
        How many samples there are, in all cohorts where the rest is the same.
    columns
        How many columns are foreign to it.
    holders
        How many parties hold the samples.
    labelled
        Whether the receiver has their labels, and so gets every sum of training.
    cohorts
        Numbers of these cohorts in the holdings.
    """

    receiver: str
    about: tuple[str, ...]
    samples: int
    columns: int
    holders: int
    labelled: bool
    cohorts: tuple[int, ...]


def views_of(holdings: HoldingMap) -> list[View]:
    """All views of a federation in which something is foreign, in the order of the parties."""
    held = _Held(holdings)
    rows = holdings.rows
    found: dict[tuple[str, tuple[str, ...], int, int, bool], list[int]] = {}
    for cohort in np.flatnonzero(rows.shared_cohort).tolist():
        holders = rows.holders[cohort].tolist()
        columns = held.of(cohort, holders)
        begin = int(rows.holders.start[cohort])
        for place, holder in enumerate(holders):
            foreign = int(holdings.foreign[begin + place])
            if not foreign:
                continue
            own = np.zeros_like(columns[0]) if holdings.overlap == "sum" else columns[place]
            about = tuple(
                holdings.parties[other]
                for at, other in enumerate(holders)
                if at != place and (columns[at] & ~own).any()
            )
            labelled = holder in rows.marked[cohort]
            key = (holdings.parties[holder], about, foreign, len(holders), labelled)
            found.setdefault(key, []).append(cohort)
    order = holdings.index
    ranked = sorted(found.items(), key=lambda item: (order[item[0][0]], item[1][0]))
    return [
        View(
            receiver=receiver,
            about=about,
            samples=int(rows.sizes[cohorts].sum()),
            columns=foreign,
            holders=holders_,
            labelled=labelled,
            cohorts=tuple(cohorts),
        )
        for (receiver, about, foreign, holders_, labelled), cohorts in ranked
    ]


class _Held:
    """Which column cohorts each holder of a row cohort has there; the constant one aside."""

    def __init__(self, holdings: HoldingMap) -> None:
        self._rows = holdings.rows
        self._party = holdings.tile_party
        columns = holdings.column_tiles.toarray().T > 0
        if holdings.bias_slot >= 0:
            at = np.searchsorted(holdings.columns.start, holdings.bias_slot, side="right") - 1
            columns[:, at] = False
        self._columns: Flags = columns

    def of(self, cohort: int, holders: Iterable[int]) -> list[Flags]:
        tiles = self._rows.tiles[cohort]
        return [
            self._columns[tiles[self._party[tiles] == holder]].any(axis=0) for holder in holders
        ]
