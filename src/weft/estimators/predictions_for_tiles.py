"""Predictions for samples that lie in tiles, in an estimator's hands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.data.tile import Tile
from weft.errors import ConfigError, DataError
from weft.federation.local_joint_prediction import predict_scores
from weft.federation.model import Model
from weft.matching.id_and_name_forms import normal_ids


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


def weights_of(ids: pd.Index[Any], weights: Any) -> Floats | None:
    """Weights in the order of the samples; None: there are none.

    Tiles have no order that an array could be in, so weights are by sample id.
    """
    if weights is None:
        return None
    if not isinstance(weights, Mapping | pd.Series):
        raise ConfigError(
            "with tiles sample_weight is a Series or a mapping by sample id, since their samples "
            "have no order; give it so, or leave it out"
        )
    given = weights if isinstance(weights, Mapping) else weights.to_dict()
    names = normal_ids(np.array([str(name) for name in given], dtype=object)).tolist()
    known = dict(zip(names, given.values(), strict=True))
    wanted = normal_ids(ids.to_numpy(dtype=object)).tolist()
    missing = [name for name in wanted if name not in known]
    if missing:
        raise DataError(
            f"sample_weight lacks {len(missing)} of {len(wanted)} samples, the first is "
            f"'{missing[0]}'; give a weight for each"
        )
    return np.array([float(known[name]) for name in wanted])
