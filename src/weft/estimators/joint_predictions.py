"""Predictions for samples that lie in tiles, in an estimator's hands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.data.tile import Tile
from weft.errors import DataError
from weft.federation.joint_prediction import predict_scores
from weft.federation.model import Model
from weft.matching.id_normalization import normal_ids


def joint_scores(
    model: Model, tiles: Mapping[str, Sequence[Tile]], cipher: str
) -> tuple[pd.Index[Any], Floats]:
    """Ids and (samples × classes) scores, through a secure sum over the parties."""
    ids, scores = predict_scores(model, tiles, cipher=cipher)
    return pd.Index(ids, name="id"), scores


def labels_of(ids: pd.Index[Any], tiles: Mapping[str, Sequence[Tile]]) -> NDArray[Any]:
    """The label of every sample, from whichever tile has it."""
    known: dict[str, Any] = {}
    for held in tiles.values():
        for tile in held:
            if tile.labels is not None:
                there = tile.labelled
                names = normal_ids(tile.ids)[there].tolist()
                known |= zip(names, tile.labels[there].tolist(), strict=True)
    wanted = normal_ids(ids.to_numpy(dtype=object)).tolist()
    missing = [name for name in wanted if name not in known]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(wanted)} samples have no label in any tile, the first is "
            f"'{missing[0]}'; score samples whose labels are known"
        )
    return np.array([known[name] for name in wanted])
