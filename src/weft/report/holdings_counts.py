"""Who holds what: a federation before training, in numbers and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.matching.cohorts import Axis
from weft.matching.holding_map import HoldingMap

if TYPE_CHECKING:
    # A coordinator reports too, and loads no tile.
    from weft.data.tile import Tile


@dataclass(frozen=True)
class PartyHolding:
    """What one party brings."""

    name: str
    samples: int
    features: int
    labelled: int
    cohorts: tuple[int, ...]


@dataclass(frozen=True)
class Holdings:
    """What a federation holds together.

    Attributes
    ----------
    kind
        ``horizontal``, ``vertical``, ``hybrid`` or ``one party``.
    samples, features
        Samples that take part, and distinct features.
    classes
        Class values, None for regression.
    parties
        What each party brings.
    cohorts
        Size of each row cohort: samples that the same parties hold.
    left_out
        Samples that nobody has a label for.
    labelled_everywhere
        Samples whose label all their holders have.
    cells, cells_shared, cells_missing
        Cells of the whole table, those in two tiles or more, and those that nobody holds.
    mismatches
        Pairs of parties with ids that differ only in signs, accents or leading zeros, and how many.
    overlap
        What counts for a cell in several tiles.
    """

    kind: str
    samples: int
    features: int
    classes: tuple[Any, ...] | None
    parties: tuple[PartyHolding, ...]
    cohorts: tuple[int, ...]
    left_out: int
    labelled_everywhere: int
    cells: int
    cells_shared: int
    cells_missing: int
    mismatches: tuple[tuple[str, str, int], ...]
    overlap: str

    def remarks(self) -> list[str]:
        """What a user should know before training, a sentence each."""
        said = []
        if self.left_out:
            said.append(
                f"{self.left_out} sample(s) are left out, because no party has a label for them"
            )
        for one, other, count in self.mismatches:
            said.append(
                f"{count} id(s) of {one} and {other} differ only in punctuation, blanks, accents "
                "or leading zeros and count as different samples: are they written in two ways?"
            )
        if self.cells_missing:
            share = self.cells_missing / self.cells
            said.append(
                f"{self.cells_missing} cell(s) ({share:.1%} of the table) are held by nobody and "
                "count as zero (of the scaled table, if there is a scaling)"
            )
        if self.cells_shared:
            said.append(f"{self.cells_shared} cell(s) are held more than once; {self._rule()}")
        without = [party.name for party in self.parties if not party.labelled]
        if without:
            shown = ", ".join(without[:5]) + (
                f" and {len(without) - 5} more" if len(without) > 5 else ""
            )
            said.append(f"no labels at {shown}: the other holders of their samples supply them")
        if self.labelled_everywhere < self.samples:
            said.append(
                f"{self.samples - self.labelled_everywhere} sample(s) have a holder without their "
                "label"
            )
        return said

    def _rule(self) -> str:
        rules = {
            "mean": "the mean of the holders' values counts (overlap = 'mean')",
            "first": "the first holder's value counts (overlap = 'first')",
            "sum": "their values are additive shares and add up (overlap = 'sum')",
        }
        return rules[self.overlap]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "remarks": self.remarks()}


def describe_holdings(
    holdings: HoldingMap, tiles: Mapping[str, Sequence[Tile]], classes: NDArray[Any] | None
) -> Holdings:
    """Sum up a matched federation; for the people who own it, not for its coordinator."""
    rows, columns = holdings.rows, holdings.columns
    features = holdings.n_features - (holdings.bias_slot >= 0)
    held, shared = _cells(rows, columns, len(holdings.tile_party))
    complete = rows.holders.lengths == rows.marked.lengths
    return Holdings(
        kind=kind_of(holdings),
        samples=holdings.n_samples,
        features=features,
        parties=tuple(
            _party(holdings, number, name, tiles[name])
            for number, name in enumerate(holdings.parties)
        ),
        cohorts=tuple(rows.sizes.tolist()),
        left_out=rows.left_out,
        labelled_everywhere=holdings.n_samples - int(rows.sizes[~complete].sum()),
        cells=rows.n_slots * features,
        cells_shared=shared,
        cells_missing=rows.n_slots * features - held,
        mismatches=holdings.mismatches,
        overlap=holdings.overlap,
        classes=None if classes is None else tuple(classes.tolist()),
    )


def kind_of(holdings: HoldingMap) -> str:
    """How the table is cut, in one word."""
    if len(holdings.parties) == 1:
        return "one party"
    if holdings.horizontal:
        return "horizontal"
    return "vertical" if holdings.vertical else "hybrid"


def _party(holdings: HoldingMap, number: int, name: str, tiles: Sequence[Tile]) -> PartyHolding:
    cohorts = holdings.rows.cohorts[number]
    labelled = [c for c in cohorts.tolist() if number in holdings.rows.marked[c]]
    return PartyHolding(
        name=name,
        samples=int(holdings.rows.sizes[cohorts].sum()),
        features=len({feature for tile in tiles for feature in tile.features.tolist()}),
        labelled=int(holdings.rows.sizes[labelled].sum()),
        cohorts=tuple(cohorts.tolist()),
    )


def _cells(rows: Axis, columns: Axis, tiles: int) -> tuple[int, int]:
    """How many cells lie in a tile at all, and how many in two or more.

    Row cohort × column cohort is a block whose cells all lie in the same tiles. The constant
    column's tiles have no rows, so it counts for nothing here.
    """
    shared_tiles = sp.coo_array(_incidence(rows, tiles) @ _incidence(columns, tiles).T)
    block = rows.sizes[shared_tiles.row] * columns.sizes[shared_tiles.col]
    return int(block[shared_tiles.data > 0].sum()), int(block[shared_tiles.data > 1].sum())


def _incidence(axis: Axis, tiles: int) -> Any:
    """(cohorts × tiles) ones where a cohort lies in a tile."""
    ones = np.ones(len(axis.tiles.values), np.int64)
    return sp.csr_array((ones, axis.tiles.values, axis.tiles.start), shape=(len(axis.tiles), tiles))
