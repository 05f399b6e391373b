"""Groups of samples by which a model is judged, from columns of a party with labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.array_types import Ints
from weft.data.tile import Tile
from weft.errors import DataError
from weft.matching.id_and_name_forms import normal_features
from weft.matching.party_view import PartyView


def evaluation_groups(
    party: str, tiles: Sequence[Tile], view: PartyView, groups: Mapping[str, Sequence[float]]
) -> Ints | None:
    """(rows × columns named) which of the listed values a sample has; their number: none of them.

    Cells are those of its own tables, before scaling.

    Raises
    ------
    DataError
        It has labels, but lacks a column: what is told of a group would be of other parties alone.
    """
    if not groups:
        return None
    found = np.empty((view.n_rows, len(groups)), np.int64)
    for place, (name, values) in enumerate(groups.items()):
        found[:, place], lacking = len(values), True
        wanted = normal_features(np.array([name], dtype=object))[0]
        for tile, rows in zip(tiles, view.tile_rows, strict=True):
            here = np.flatnonzero(normal_features(tile.features) == wanted)
            if not len(here):
                continue
            block: Any = tile.block[:, here[:1]]
            cells = np.asarray(block if isinstance(block, np.ndarray) else block.toarray())[:, 0]
            lacking = False
            for number, value in enumerate(values):
                chosen = rows[(rows >= 0) & (cells == value)]
                found[chosen, place] = number
        if lacking and view.counted_rows.any():
            raise DataError(
                f"party {party} has labels, but no column {name!r} for [evaluation.groups]; bring "
                "that column as a feature, or leave the group out",
                told="a party with labels lacks a column for [evaluation.groups]",
            )
    return found
