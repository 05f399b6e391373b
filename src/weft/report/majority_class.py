"""What naming the most frequent class every time would reach, where all tables are in one hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from weft.federation.party import Party
from weft.matching.id_and_name_forms import normal_ids


def labels_by_id(party: Party) -> dict[str, float] | None:
    """Labels of a party's samples that are trained on; None: a regression."""
    labels: dict[str, float] = {}
    if party.data.classes is None:
        return None
    for tile, targets, rows in zip(
        party.tiles, party.data.targets, party.view.tile_rows, strict=True
    ):
        known = np.flatnonzero(~np.isnan(targets) & (rows >= 0))
        ids = normal_ids(tile.ids)[known].tolist()
        labels.update(zip(ids, targets[known].tolist(), strict=True))
    return labels


def majority_share(of_parties: Iterable[dict[str, float] | None]) -> float | None:
    """Share of the samples with the most frequent class, by `labels_by_id`; None: a regression."""
    labels: dict[str, float] = {}
    for known in of_parties:
        if known is None:
            return None
        labels |= known
    most = Counter(labels.values()).most_common(1)
    return most[0][1] / len(labels) if most else None
