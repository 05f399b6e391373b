"""Columns that say something about samples and are no features: offset, exposure, weight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from weft.data.tile import Tile
from weft.errors import DataError

#: Numbers, one for each sample; None: there is no such column.
Column: TypeAlias = "NDArray[np.float64] | None"


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
    told = tile.labelled
    columns = beside_values(tile, party, told, offset=offset, exposure=exposure, weight=weight)
    shift, weights = (None if one is None else np.where(told, one, 0.0) for one in columns)
    kept = ~np.isin(tile.features.astype(str), named)
    rest = tile if kept.all() else tile.columns(np.flatnonzero(kept))
    return replace(rest, offset=shift, weight=weights)


def beside_values(
    tile: Tile,
    party: str,
    told: NDArray[np.bool_],
    *,
    offset: str | None,
    exposure: str | None,
    weight: str | None,
) -> tuple[Column, Column]:
    """Offsets and weights of the samples that are told of; those of others may be anything.

    None: the tile has no such column, or tells of nobody.
    """
    where = f"party {party}, {tile.source or 'its tile'}"
    shift, times, weights = (
        _column(tile, name, where, told) for name in (offset, exposure, weight)
    )
    for name, values in ((exposure, times), (weight, weights)):
        if values is not None and not (values[told] > 0).all():
            raise DataError(
                f"{where}: column {name!r} has values of zero or below, which no weight and no "
                "exposure has; correct them, or leave those samples out",
                told="a party has weights or exposures of zero or below; its log says more",
            )
    if times is not None:
        shift = np.log(np.where(told, times, 1.0))
    return shift, weights


def _column(tile: Tile, name: str | None, where: str, told: NDArray[np.bool_]) -> Column:
    place = np.flatnonzero(tile.features.astype(str) == name)
    if name is None or not told.any() or not len(place):
        return None
    block: Any = tile.block[:, place]
    values: NDArray[np.float64] = np.asarray(
        block if isinstance(block, np.ndarray) else block.toarray(), np.float64
    )[:, 0]
    if np.isnan(values[told]).any():
        raise DataError(
            f"{where}: column {name!r} has blank cells where there are labels; fill them in",
            told="a party has blank weights or offsets; its log says more",
        )
    return values


def label_companions(tile: Tile) -> list[bytes] | None:
    """What all holders of a sample's label must agree on besides it; None: nothing."""
    if tile.offset is None and tile.weight is None:
        return None
    nothing = np.zeros(tile.n)
    offset = nothing if tile.offset is None else tile.offset
    weight = nothing if tile.weight is None else tile.weight
    # Adding zero turns −0.0 into 0.0, which is the same number.
    return [b"%r" % (pair,) for pair in zip((offset + 0.0).tolist(), weight.tolist(), strict=True)]
