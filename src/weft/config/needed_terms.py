"""What parties would have to agree on before a table, cut as it is, can be trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.data.splits import Split
from weft.guards import Terms
from weft.matching.build_holdings import Holding, build_holdings
from weft.matching.holding_map import HoldingMap

#: Share of the samples that a guard may leave out before it is switched off.
_BEARABLE = 0.01


def lines_for(split: Split) -> list[str]:
    """A ``[privacy]`` section under which a cut table can be trained on, with no more allowed."""
    holding_map = _roster(split)
    careful = Terms()
    lines = ["[privacy]", "# What the parties agree on; weft check says what each line means."]
    guarded = replace(holding_map, terms=careful)
    small = guarded.exposed & (holding_map.rows.sizes < careful.min_batch)
    lost = int(holding_map.rows.sizes[small].sum())
    if lost > _BEARABLE * holding_map.n_samples:
        lines += [
            f"# {careful.min_batch} is the default, but would leave out {lost} samples in groups "
            "smaller than that.",
            "min_batch = 1",
        ]
    else:
        lines.append(f"min_batch = {careful.min_batch}")
    if _pairs(holding_map):
        lines.append("allow_pairs = true")
    if len(holding_map.label_parties) == 1 < len(holding_map.parties):
        lines.append("allow_lone_labels = true")
    if (holding_map.foreign == 1).any():
        lines.append("allow_one_column = true")
    if holding_map.crossed.any():
        lines.append("allow_crossed_cells = true")
    return lines


def _pairs(holding_map: HoldingMap) -> bool:
    """Whether some sum has two parties."""
    held = [axis.holders.lengths for axis in (holding_map.rows, holding_map.columns)]
    return (
        any((lengths == 2).any() for lengths in held)
        or len(holding_map.label_parties) == 2
        or len(holding_map.parties) == 2
    )


def _roster(split: Split) -> HoldingMap:
    """Who holds what, found from the ids themselves: whoever cuts a table has them all."""
    tiles = [tile for _, tile in split.tiles()]
    rows = _numbered([tile.ids for tile in tiles])
    columns = _numbered([tile.features for tile in tiles])
    holdings, at = [], 0
    for held in split.parties.values():
        end = at + len(held)
        holdings.append(
            Holding(
                rows=tuple(rows[at:end]),
                columns=tuple(columns[at:end]),
                labelled=tuple(tile.labelled for tile in held),
                labels=tuple(np.zeros(tile.n, np.uint64) for tile in held),
                loose=np.concatenate(rows[at:end]),
            )
        )
        at = end
    return build_holdings(
        list(split.parties),
        holdings,
        overlap=split.overlap,
        bias=True,
        confirm_separate_ids=True,
    )


def _numbered(names: Sequence[NDArray[np.object_]]) -> list[NDArray[np.uint64]]:
    """Equal names get equal numbers."""
    if not names:
        return []
    codes, _ = pd.factorize(np.concatenate(names))
    bounds = np.cumsum([len(part) for part in names])[:-1]
    return np.split(codes.astype(np.uint64), bounds)
