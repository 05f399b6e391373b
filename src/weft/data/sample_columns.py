"""Columns that say something about samples and are no features: offset, exposure, weight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.data.tile import Tile
from weft.errors import DataError


def taken_off(
    tile: Tile, party: str, *, offset: str | None, exposure: str | None, weight: str | None
) -> Tile:
    """The tile without some columns among its features, but beside its labels.

    Parameters
    ----------
    offset
        What is added to the score of a sample, with a coefficient of one.
    exposure
        The same, of which the logarithm is added: person-years, insured time.
    weight
        How many times a sample's loss counts.
    """
    named = [name for name in (offset, exposure, weight) if name is not None]
    if not named:
        return tile
    where = f"party {party}, {tile.source or 'its tile'}"
    shift, times, weights = (_column(tile, name, where) for name in (offset, exposure, weight))
    for name, values in ((exposure, times), (weight, weights)):
        if values is not None and not (values[tile.labelled] > 0).all():
            raise DataError(
                f"{where}: column {name!r} has values of zero or below, which no weight and no "
                "exposure has; correct them, or leave those samples out",
                told="a party has weights or exposures of zero or below; its log says more",
            )
    if times is not None:
        shift = np.where(tile.labelled, np.log(np.where(tile.labelled, times, 1.0)), 0.0)
    kept = ~np.isin(tile.features.astype(str), named)
    rest = tile if kept.all() else tile.columns(np.flatnonzero(kept))
    return replace(rest, offset=shift, weight=weights)


def _column(tile: Tile, name: str | None, where: str) -> NDArray[np.float64] | None:
    """The numbers of a column, which every tile with labels must have; zero without a label."""
    if name is None or not tile.labelled.any():
        return None
    place = np.flatnonzero(tile.features.astype(str) == name)
    if not len(place):
        raise DataError(
            f"{where} has labels, but no column {name!r}; every party with labels must have "
            "it, and list it where it lists its features",
            told="a party with labels lacks a column of weights or offsets; its log says more",
        )
    block: Any = tile.block[:, place]
    values = np.asarray(block if isinstance(block, np.ndarray) else block.toarray())[:, 0]
    if np.isnan(values[tile.labelled]).any():
        raise DataError(
            f"{where}: column {name!r} has blank cells where there are labels; fill them in",
            told="a party has blank weights or offsets; its log says more",
        )
    return np.where(tile.labelled, values, 0.0)


def label_companions(tile: Tile) -> list[bytes] | None:
    """What all holders of a sample's label must agree on besides it; None: nothing."""
    if tile.offset is None and tile.weight is None:
        return None
    nothing = np.zeros(tile.n)
    offset = nothing if tile.offset is None else tile.offset
    weight = nothing if tile.weight is None else tile.weight
    # Adding zero turns −0.0 into 0.0, which is the same number.
    return [b"%r" % (pair,) for pair in zip((offset + 0.0).tolist(), weight.tolist(), strict=True)]
