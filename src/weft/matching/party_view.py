"""A party's view in the federation: its own slots and roles, and nothing foreign."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from weft.array_types import Flags, Ints
from weft.arrays_outside_heap import shared
from weft.fast_small_array_operations import cut
from weft.matching.cohort_holder_lists import HolderLists, RowSheets
from weft.protocol.declared_message_fields import Part, malformed
from weft.protocol.field_visibility import Meaning, record, texts


def _roles(*shape: str) -> Meaning:
    return record("its slots, cohorts and roles", *shape)


_OTHERS = record("how many samples other label holders draw from", "draws")


class TileCohorts(Part):
    """Per tile, the cohorts of its tokens, one tile after the other."""

    places: Annotated[NDArray[np.int32], _roles("tokens")]
    lengths: Annotated[Ints, _roles("tiles")]

    @classmethod
    def of(cls, tiles: Sequence[NDArray[np.int32]]) -> TileCohorts:
        """Put the tiles together."""
        places = np.concatenate([np.zeros(0, np.int32), *tiles])
        return cls(places=places, lengths=np.array([len(tile) for tile in tiles], np.int64))

    def cut(self) -> list[NDArray[np.int32]]:
        """The cohorts, tile by tile."""
        if (self.lengths < 0).any() or int(self.lengths.sum()) != len(self.places):
            raise malformed("lengths", "are not those of the tiles")
        return cut(self.places, self.lengths)


class ToldView(Part, kw_only=True, eq=False, dict=True):
    """What the coordinator tells a party of its place in the federation.

    Rows and columns have local slots; the shared ones come first. Cohorts are listed in the
    order of their slots: cohort j covers the local rows cohort_start[j] … cohort_start[j+1]−1.

    Attributes
    ----------
    labelled
        Per cohort: whether this party has the labels.
    label_parties
        How many parties of the federation have labels of some sample.
    n_samples
        How many samples there are in the whole federation.
    row_holders, column_holders
        The most parties that hold one sample, one feature, in the whole federation.
    tile_row_cohorts, tile_column_cohorts
        Per tile: for each token, in the order in which the party sent them, the position of its
        cohort in this view (−1: sample left out). From them follow the party's slots, and then
        it forgets those of rows.
    min_batch
        How many samples of an exposed cohort must change together, if any do.
    exposed
        Per cohort: whether its samples enter feature sums that others see who lack them.
    crossed
        Per cohort: whether somebody has its samples and one of their features elsewhere.
    column_number
        Per column cohort of this party, its number among all.
    row_sheets, column_sheets
        Who else holds its shared cohorts, and what they bring.
    other_…
        Other label holders of the shared cohorts, to follow their draws: number of the party,
        how many samples it draws from, where the cohort begins among them, the cohort's size
        and its local start here.
    """

    party: Annotated[int, _roles()]
    n_parties: Annotated[int, _roles()]
    label_parties: Annotated[int, _roles()]
    n_samples: Annotated[int, _roles()]
    n_shared_rows: Annotated[int, _roles()]
    n_shared_columns: Annotated[int, _roles()]
    n_columns: Annotated[int, _roles()]
    row_holders: Annotated[int, _roles()]
    column_holders: Annotated[int, _roles()]
    cohort: Annotated[Ints, _roles("cohorts")]
    cohort_start: Annotated[Ints, _roles("cohorts + 1")]
    labelled: Annotated[Flags, _roles("cohorts")]
    bias_slot: Annotated[int, _roles()]
    tile_row_cohorts: TileCohorts
    tile_column_cohorts: TileCohorts
    column_cohort: Annotated[NDArray[np.int32], _roles("columns")]
    overlap: Annotated[str, texts("what counts for a cell at several holders")]
    min_batch: Annotated[int, _roles()]
    exposed: Annotated[Flags, _roles("cohorts")]
    crossed: Annotated[Flags, _roles("cohorts")]
    column_number: Annotated[Ints, _roles("column cohorts")]
    row_sheets: RowSheets
    column_sheets: HolderLists
    other_party: Annotated[Ints, _OTHERS]
    other_rows: Annotated[Ints, _OTHERS]
    other_offset: Annotated[Ints, _OTHERS]
    other_size: Annotated[Ints, _OTHERS]
    other_start: Annotated[Ints, _OTHERS]

    @cached_property
    def n_rows(self) -> int:
        return int(self.cohort_start[-1])

    @cached_property
    def sizes(self) -> Ints:
        return np.diff(self.cohort_start)

    @cached_property
    def column_sizes(self) -> Ints:
        """Per column cohort of this party, how many columns it has."""
        return np.bincount(self.column_cohort, minlength=len(self.column_number))

    @cached_property
    def shared_rows(self) -> Ints:
        """First local row of each shared row cohort, and where the last one ends."""
        return self.cohort_start[: int(np.searchsorted(self.cohort_start, self.n_shared_rows)) + 1]

    @cached_property
    def shared_columns(self) -> Ints:
        """First local column of each shared column cohort, and where the last one ends."""
        sizes = np.bincount(self.column_cohort[: self.n_shared_columns])
        starts: Ints = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return starts

    @cached_property
    def row_cohort(self) -> NDArray[np.int32]:
        """Per local row, the position of its cohort in this view."""
        return shared(np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes))


class PartyView(ToldView, kw_only=True, eq=False, dict=True):
    """What a party knows after matching: what it was told and checked, and its rows' slots.

    Attributes
    ----------
    sharers, column_sharers
        How many parties hold each row cohort, each column cohort.
    computing
        Per cohort: how many parties compute the dual step (|B_i| in the paper).
    counts, bias
        Per cohort: whether this party counts the losses, adds the constant column.
    owned
        Per local column: whether this party counts its weight in ‖w‖².
    cell_holders
        (row cohort × column cohort) number of tiles with that cell, None if one each.
    owned_cells
        With overlap "first", where there are ``cell_holders``: per tile, the cells it owns.
    foreign
        Per cohort: how many columns only other holders have.
    fewest_foreign
        Per cohort: the fewest columns that are foreign to another holder; zero: there are none.
    tile_rows, tile_columns
        Per tile: local slot of each row and column (−1: sample left out). The party finds them
        itself (:mod:`weft.matching.slots_within_cohort`); they never travel.
    left_out
        Per local row, whether its sample has a class that too few of its cohort have. Its slot
        stays, so that nobody else sees which one it is, but the sample has no cells and no loss.
    """

    sharers: Ints
    column_sharers: Ints
    computing: Ints
    counts: Flags
    bias: Flags
    owned: Flags
    cell_holders: Ints | None
    owned_cells: Flags | None
    foreign: Ints
    fewest_foreign: Ints
    tile_rows: tuple[NDArray[np.int32], ...]
    tile_columns: tuple[NDArray[np.int32], ...]
    left_out: Flags

    @cached_property
    def counted_shared_rows(self) -> NDArray[np.int32]:
        """Shared local rows of the cohorts whose losses this party counts."""
        counted = self.counts[self.row_cohort[: self.n_shared_rows]]
        return np.flatnonzero(counted).astype(np.int32)

    def cells_of(self, tile: int) -> Flags:
        """The cells that a tile owns, where the first of several holders counts."""
        assert self.owned_cells is not None
        owned: Flags = self.owned_cells[tile]
        return owned

    @cached_property
    def shares_columns(self) -> bool:
        """Whether others have a column of this party, the constant one aside."""
        common = self.column_sharers[self.column_cohort] > 1
        if self.bias_slot >= 0:
            common[self.bias_slot] = False
        return bool(common.any())

    @cached_property
    def counted_rows(self) -> Flags:
        """Per local row, whether this party counts its loss."""
        return self.counts[self.row_cohort] & ~self.left_out

    @cached_property
    def trained_rows(self) -> Flags:
        """Per local row, whether this party has its label and it is trained on."""
        return self.labelled[self.row_cohort] & ~self.left_out

    @property
    def guarded_cohort(self) -> Ints:
        """Per local row, its cohort; −1: others see no sum of it, or it is left out.

        Guards ask once; as long as the view it would be a vector more in memory.
        """
        guarded = self.exposed[self.row_cohort] & ~self.left_out
        return np.where(guarded, self.row_cohort, -1).astype(np.int64)

    def without(self, left_out: Flags, samples: int) -> PartyView:
        """The same view, in which some samples are left out of a run over so many."""
        if left_out.any():
            kept = np.append(~left_out, False)
            rows = (np.where(kept[slots], slots, -1).astype(np.int32) for slots in self.tile_rows)
            trimmed = replace(self, tile_rows=tuple(rows), left_out=left_out, n_samples=samples)
        else:
            trimmed = replace(self, n_samples=samples)
            vars(trimmed)["counted_rows"] = self.counted_rows
        # Slots and cohorts are the same: what follows from them is in memory once.
        vars(trimmed)["row_cohort"] = self.row_cohort
        return trimmed

    @classmethod
    def of(cls, told: ToldView, **found: Any) -> PartyView:
        """What was told, with what the party found out by itself; nothing is left out yet."""
        return cls(**{**asdict(told), "left_out": np.zeros(told.n_rows, bool), **found})
