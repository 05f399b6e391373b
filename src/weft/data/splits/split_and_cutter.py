"""What a way of cutting a table yields, and the pieces that all of them are built from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from weft.data.tile import Index, Labels, Table, Task, Tile, block_columns, block_rows
from weft.errors import DataError

Overlap: TypeAlias = Literal["mean", "first", "sum"]
LabelRule: TypeAlias = Literal["all", "first"]
Positions: TypeAlias = NDArray[np.int64]
Parties: TypeAlias = dict[str, tuple[Tile, ...]]


@dataclass(frozen=True, eq=False)
class Split:
    """A table cut into tiles.

    Parameters
    ----------
    parties : dict of str to tuple of Tile
        The tiles of each party, in the order of the parties.
    overlap : {"mean", "first", "sum"}
        Value of a cell that several tiles hold: their mean, the first holder's, or their sum.
    note : str
        One sentence that says how the table was cut.
    task : {"classification", "regression"}
        Task of the table that was cut.
    name : str
        Name of the data set that was cut.
    """

    parties: Parties
    overlap: Overlap
    note: str
    task: Task = "classification"
    name: str = ""

    def tiles(self) -> Iterator[tuple[str, Tile]]:
        """Every tile with its party's name, in order."""
        for party, tiles in self.parties.items():
            for tile in tiles:
                yield party, tile


@dataclass
class Cutter:
    """Cuts tiles out of one table and hands the labels out by a rule.

    With the rule "all" every tile carries the labels of its samples; with "first" only the
    first tile that holds a sample carries its label.
    """

    table: Table
    rule: LabelRule = "all"
    _given: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        if self.rule not in ("all", "first"):
            raise DataError(f"label rule {self.rule!r} is unknown; choose 'all' or 'first'.")
        self._given = np.zeros(self.table.n, dtype=bool)

    def tile(self, rows: Index, columns: Index | None = None) -> Tile:
        """The tile of some rows and, unless None, some columns."""
        # Rows first: a contiguous run of rows of a dense table is then a view until the
        # columns are taken out of it.
        block = block_rows(self.table.block, rows)
        features = self.table.features
        if columns is not None:
            block = block_columns(block, columns)
            features = features[columns]
        source = self.table.name or self.table.source
        return Tile(self.table.ids[rows], features, block, self.labels(rows), source)

    def labels(self, rows: Index) -> Labels | None:
        """The labels that the next holder of these rows gets."""
        labels: Labels = self.table.labels[rows]
        if self.rule == "all":
            return labels
        fresh = ~self._given[rows]
        self._given[rows] = True
        if fresh.all():
            return labels
        if not fresh.any():
            return None
        if labels.dtype.kind in "biuf":
            return np.where(fresh, labels.astype(np.float64), np.nan)
        kept = np.full(len(labels), None, dtype=object)
        kept[fresh] = labels[fresh]
        return kept


def runs(count: int, parts: int, what: str) -> list[slice]:
    """Cut 0 … count-1 into even contiguous runs."""
    if not 1 <= parts <= count:
        raise DataError(
            f"cannot cut {count} {what} into {parts} groups; choose between 1 and {count}."
        )
    bounds = [part * count // parts for part in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def groups(count: int, parts: int, what: str, rng: np.random.Generator | None) -> list[Index]:
    """Cut 0 … count-1 into even groups: contiguous without a generator, else random and sorted."""
    parted = runs(count, parts, what)
    if rng is None:
        return list(parted)
    order = rng.permutation(count)
    return [np.sort(order[part]) for part in parted]


def generator(seed: int | None) -> np.random.Generator | None:
    """Random generator of a seed; None means that nothing is shuffled."""
    return None if seed is None else np.random.default_rng(seed)


def party_names(count: int) -> list[str]:
    """Names p1, p2, … of `count` parties."""
    if count < 1:
        raise DataError(f"a table cannot be cut for {count} parties; ask for at least one.")
    return [f"p{number}" for number in range(1, count + 1)]


def check_share(share: float, what: str) -> None:
    """Refuse a share outside (0, 1]."""
    if not 0 < share <= 1:
        raise DataError(f"{what} is {share} but must lie above 0 and at most at 1; change it.")
