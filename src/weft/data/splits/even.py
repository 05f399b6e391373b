"""Plain cuttings: by rows, by columns, by both, and random overlapping tiles."""

from __future__ import annotations

import numpy as np

from weft.data.splits.split_and_cutter import (
    Cutter,
    LabelRule,
    Parties,
    Positions,
    Split,
    check_share,
    generator,
    groups,
    party_names,
)
from weft.data.tile import Table


def rows(table: Table, parties: int, seed: int | None = None, labels: LabelRule = "all") -> Split:
    """Horizontal cutting: every party holds all features of an even share of the samples.

    Parameters
    ----------
    table : Table
        The table to cut.
    parties : int
        Number of parties.
    seed : int, optional
        Shuffles the samples first; without it the groups are contiguous runs.
    labels : {"all", "first"}
        Here the same, because each sample has one holder.
    """
    cutter = Cutter(table, labels)
    parts = groups(table.n, parties, "samples", generator(seed))
    tiles: Parties = {
        name: (cutter.tile(part),) for name, part in zip(party_names(parties), parts, strict=True)
    }
    return Split(tiles, "mean", f"{parties} even groups of samples", table.task, table.name)


def columns(
    table: Table, parties: int, seed: int | None = None, labels: LabelRule = "all"
) -> Split:
    """Vertical cutting: every party holds an even share of the features of all samples.

    Parameters
    ----------
    table : Table
        The table to cut.
    parties : int
        Number of parties.
    seed : int, optional
        Shuffles the features first; without it the groups are contiguous runs.
    labels : {"all", "first"}
        "first" leaves the labels with the first party only.
    """
    cutter = Cutter(table, labels)
    parts = groups(table.m, parties, "features", generator(seed))
    tiles: Parties = {
        name: (cutter.tile(slice(None), part),)
        for name, part in zip(party_names(parties), parts, strict=True)
    }
    return Split(tiles, "mean", f"{parties} even groups of features", table.task, table.name)


def grid(table: Table, k: int, q: int, seed: int | None = None, labels: LabelRule = "all") -> Split:
    """Hybrid cutting: K groups of samples × Q groups of features, one party to each field.

    Parameters
    ----------
    table : Table
        The table to cut.
    k, q : int
        Number of groups of samples and of features; the parties are r1c1, r1c2, … rKcQ.
    seed : int, optional
        Shuffles samples and features first; without it the groups are contiguous runs.
    labels : {"all", "first"}
        "first" leaves the labels with the first party of each group of samples.
    """
    cutter = Cutter(table, labels)
    rng = generator(seed)
    row_parts = groups(table.n, k, "samples", rng)
    column_parts = groups(table.m, q, "features", rng)
    tiles: Parties = {
        f"r{i}c{j}": (cutter.tile(row_part, column_part),)
        for i, row_part in enumerate(row_parts, start=1)
        for j, column_part in enumerate(column_parts, start=1)
    }
    note = f"{k} groups of samples × {q} groups of features"
    return Split(tiles, "mean", note, table.task, table.name)


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
