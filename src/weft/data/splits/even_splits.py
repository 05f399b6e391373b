"""Even cuttings: by rows, by columns, by both."""

from __future__ import annotations

from weft.data.splits.split_and_cutter import (
    Cutter,
    LabelRule,
    Parties,
    Split,
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
