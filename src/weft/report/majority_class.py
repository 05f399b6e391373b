"""What naming the most frequent class every time would reach, where all tables are in one hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from weft.federation.party import Party
from weft.matching.id_normalization import normal_ids


def majority_share(parties: Mapping[str, Party]) -> float | None:
    """Share of the samples trained on that have the most frequent class; None: a regression."""
    labels: dict[str, float] = {}
    for party in parties.values():
        if party.data.classes is None:
            return None
        for tile, targets, rows in zip(
            party.tiles, party.data.targets, party.view.tile_rows, strict=True
        ):
            known = np.flatnonzero(~np.isnan(targets) & (rows >= 0))
            ids = normal_ids(tile.ids)[known].tolist()
            labels.update(zip(ids, targets[known].tolist(), strict=True))
    most = Counter(labels.values()).most_common(1)
    return most[0][1] / len(labels) if most else None
