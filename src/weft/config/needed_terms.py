"""What parties would have to agree on before a table, cut as it is, can be trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.data.splits import Split
from weft.guards import Terms
from weft.matching.build_holdings import Holding, build_roster
from weft.matching.holding_map import Roster

#: Share of the samples that a guard may leave out before it is switched off.
_BEARABLE = 0.01


def lines_for(split: Split) -> list[str]:
    """A ``[privacy]`` section under which a cut table can be trained on, with no more allowed."""
    roster = _roster(split)
    careful = Terms()
    lines = ["[privacy]", "# What the parties agree on; weft check says what each line means."]
    guarded = replace(roster, terms=careful)
    small = guarded.exposed & (roster.rows.sizes < careful.min_batch)
    lost = int(roster.rows.sizes[small].sum())
    if lost > _BEARABLE * roster.n_samples:
        lines += [
            f"# {careful.min_batch} is the default, but would leave out {lost} samples in groups "
            "smaller than that.",
            "min_batch = 1",
        ]
    else:
        lines.append(f"min_batch = {careful.min_batch}")
    if _pairs(roster):
        lines.append("allow_pairs = true")
    if len(roster.label_parties) == 1 < len(roster.parties):
        lines.append("allow_lone_labels = true")
    if (roster.foreign == 1).any():
        lines.append("allow_one_column = true")
    if roster.crossed.any():
        lines.append("allow_crossed_cells = true")
    return lines


def _pairs(roster: Roster) -> bool:
    """Whether some sum has two parties."""
    held = [axis.holders.lengths for axis in (roster.rows, roster.columns)]
    return (
        any((lengths == 2).any() for lengths in held)
        or len(roster.label_parties) == 2
        or len(roster.parties) == 2
    )


def _roster(split: Split) -> Roster:
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
    return build_roster(
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
