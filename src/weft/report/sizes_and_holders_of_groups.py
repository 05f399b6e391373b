"""Who holds which part of the table, for a picture: sizes and holders, and not one id.

This is what a coordinator knows of a federation (`weft.matching.holding_map.HoldingMap`), in a
form that a summary can keep: a line for every group of samples and of features.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.array_types import Ints
from weft.matching.cohorts import Axis, Lists
from weft.matching.holding_map import HoldingMap

if TYPE_CHECKING:
    # A coordinator reports too, and loads no tile.
    from weft.data.tile import Tile
    from weft.federation.model import Model

#: Groups along an axis that a summary lists; of more, the largest.
_MOST = 2000
#: Parties of which a summary tells with whom they share samples.
LISTED = 60
#: Columns of all tiles up to which it is worked out who holds which, and changes of holders told.
_MOST_COLUMNS, _MOST_RUNS = 200_000, 5000


def cohorts_of(holdings: HoldingMap) -> dict[str, Any]:
    """Groups of samples and of features with the tiles that they lie in, as plain values.

    ``rows`` and ``columns`` list the groups in the coordinator's order, each with its ``size`` and
    its ``tiles``, as `spelled` writes numbers; rows also with ``labels``, the parties that have
    them. A cell lies in the tiles that its row and its column have in common. ``tile_party`` is the
    party of each tile, None where every party has one. ``more_rows`` and ``more_columns`` count
    what is not listed, None: nothing. ``totals`` count all groups: per party its ``samples``,
    ``features`` and ``labels``, and of the first `LISTED` with whom each ``shares`` samples.
    """
    tiles = len(holdings.rows.tile_cohorts)
    owners = holdings.tile_party[:tiles]
    one_each = np.array_equal(owners, np.arange(len(holdings.parties)))
    rows, more_rows = _groups(holdings.rows, np.arange(len(holdings.rows.sizes)))
    for group, cohort in zip(rows, _kept(holdings.rows.sizes), strict=True):
        group["labels"] = spelled(holdings.rows.marked[cohort].tolist())
    held = _without_constant(holdings)
    columns, more_columns = _groups(holdings.columns, held)
    return {
        "tile_party": None if one_each else owners.tolist(),
        "rows": rows,
        "columns": columns,
        "more_rows": more_rows,
        "more_columns": more_columns,
        "totals": _totals(holdings, held),
    }


def _totals(holdings: HoldingMap, columns: Ints) -> dict[str, Any]:
    """What each party has in all groups, also in those that are not listed."""
    rows, parties = holdings.rows, len(holdings.parties)
    widths = np.zeros_like(holdings.columns.sizes)
    widths[columns] = holdings.columns.sizes[columns]
    return {
        "samples": _held(rows.holders, rows.sizes, parties),
        "features": _held(holdings.columns.holders, widths, parties),
        "labels": _held(rows.marked, rows.sizes, parties),
        "shares": [spelled(_fellows(rows, party)) for party in range(min(parties, LISTED))],
    }


def _held(lists: Lists, sizes: Ints, parties: int) -> list[int]:
    """Per party, the sizes of all groups that name it."""
    found: Ints = np.zeros(parties, np.int64)
    np.add.at(found, lists.values, np.repeat(sizes, lists.lengths))
    return [int(total) for total in found]


def _fellows(rows: Axis, party: int) -> list[int]:
    """The others that hold some of a party's samples."""
    mine = np.zeros(len(rows.sizes), bool)
    mine[rows.cohorts[party]] = True
    found = np.unique(rows.holders.values[np.repeat(mine, rows.holders.lengths)])
    return [other for other in found.tolist() if other != party]


def _without_constant(holdings: HoldingMap) -> Ints:
    """Column cohorts but for that of the constant column, which nobody holds."""
    cohorts = np.arange(len(holdings.columns.sizes))
    start = holdings.columns.start
    held = (start[:-1] <= holdings.bias_slot) & (holdings.bias_slot < start[1:])
    kept: Ints = cohorts[~held]
    return kept


def _groups(axis: Axis, cohorts: Ints) -> tuple[list[dict[str, Any]], dict[str, int] | None]:
    """The largest cohorts of some, and how many and how much is left."""
    sizes = axis.sizes[cohorts]
    kept = _kept(sizes)
    listed = [
        {"size": int(axis.sizes[c]), "tiles": spelled(axis.tiles[c].tolist())}
        for c in cohorts[kept].tolist()
    ]
    left = len(cohorts) - len(kept)
    rest = {"groups": left, "size": int(sizes.sum() - sizes[kept].sum())}
    return listed, rest if left else None


def _kept(sizes: Ints) -> Ints:
    """Positions of the largest, in order."""
    kept: Ints = np.sort(np.argsort(-sizes, kind="stable")[:_MOST])
    return kept


def feature_sets(
    tiles: Mapping[str, Sequence[Tile]], parties: Sequence[str], model: Model
) -> dict[str, Any] | None:
    """Who holds each feature of a model, in its order and without names, as plain values.

    For whoever has all tiles; a coordinator knows tokens in an order that says nothing of names.
    ``sets`` are sets of parties, ``runs`` which of them hold how many features on end. None: there
    are too many.
    """
    if sum(tile.m for held in tiles.values() for tile in held) > _MOST_COLUMNS:
        return None
    holders: dict[str, list[int]] = {}
    for number, party in enumerate(parties):
        for name in {name for tile in tiles[party] for name in tile.features.tolist()}:
            holders.setdefault(name, []).append(number)
    sets: dict[str, int] = {}
    places = [
        sets.setdefault(spelled(holders[name]), len(sets)) for name in model.features.tolist()
    ]
    runs = [[place, len(list(run))] for place, run in groupby(places)]
    if len(runs) > _MOST_RUNS:
        return None
    return {"sets": list(sets), "runs": " ".join(f"{place}*{size}" for place, size in runs)}


def spelled(numbers: Iterable[int]) -> str:
    """Rising numbers in one short line: ``0-4,7``."""
    runs = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        runs.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ",".join(runs)


def read_numbers(text: str) -> list[int]:
    """What `spelled` wrote."""
    found: list[int] = []
    for run in filter(None, text.split(",")):
        first, _, last = run.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found
