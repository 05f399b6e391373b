"""Random tiles that overlap."""

from __future__ import annotations

import numpy as np

from weft.data.splits.split_and_cutter import (
    Cutter,
    LabelRule,
    Parties,
    Positions,
    Split,
    check_share,
    party_names,
)
from weft.data.tile import Table


def overlapping(
    table: Table,
    parties: int,
    row_share: float = 0.5,
    column_share: float = 0.6,
    seed: int = 0,
    cover: bool = True,
    labels: LabelRule = "all",
) -> Split:
    """Random tiles that overlap: each party takes a random share of samples and of features.

    Some cells may have no holder; they count as zero.

    Parameters
    ----------
    table : Table
        The table to cut.
    parties : int
        Number of parties.
    row_share, column_share : float
        Share of the samples and of the features that each party draws.
    seed : int
        Seed of the draws.
    cover : bool
        Give every sample and feature that no party drew to a random party.
    labels : {"all", "first"}
        "first" leaves each label with the first holder of its sample.
    """
    check_share(row_share, "row_share")
    check_share(column_share, "column_share")
    rng = np.random.default_rng(seed)
    names = party_names(parties)
    row_draws = _draws(table.n, parties, row_share, cover, rng)
    column_draws = _draws(table.m, parties, column_share, cover, rng)
    cutter = Cutter(table, labels)
    tiles: Parties = {
        name: (cutter.tile(row_draw, column_draw),)
        for name, row_draw, column_draw in zip(names, row_draws, column_draws, strict=True)
    }
    note = (
        f"{parties} random overlapping tiles of {row_share:g} of the samples × "
        f"{column_share:g} of the features"
    )
    return Split(tiles, "mean", note, table.task, table.name)


def _draws(
    count: int, parties: int, share: float, cover: bool, rng: np.random.Generator
) -> list[Positions]:
    """One sorted random subset of 0 … count-1 for each party."""
    size = max(1, round(share * count))
    draws = [np.sort(rng.choice(count, size=size, replace=False)) for _ in range(parties)]
    if not cover:
        return draws
    leftover = np.setdiff1d(np.arange(count), np.concatenate(draws))
    taker = rng.integers(parties, size=len(leftover))
    return [
        np.union1d(draw, leftover[taker == party]) if (taker == party).any() else draw
        for party, draw in enumerate(draws)
    ]
