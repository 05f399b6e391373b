"""The holdings: who holds what, as far as the coordinator may know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.fast_small_array_operations import among
from weft.guards.privacy_terms import OPEN, Terms
from weft.matching.cohort_holder_lists import HolderLists, RowSheets
from weft.matching.cohorts import Axis, ranges
from weft.matching.cohorts_exposed_to_non_holders import (
    crossed_rows,
    exposed_rows,
    foreign_columns,
    held_cells,
)
from weft.matching.id_and_name_forms import Mismatches
from weft.matching.overlap_rule import Overlap
from weft.matching.party_view import TileCohorts, ToldView


@dataclass(frozen=True)
class HoldingMap:
    """Row and column cohorts of a federation, and the roles in them.

    Attributes
    ----------
    parties
        Names; everywhere else a party is its position here.
    rows, columns
        The two axes.
    overlap
        How a cell held by several tiles counts.
    bias_owner
        Per row cohort, the party that adds the constant column to it; −1 without one.
    bias_slot
        The constant column's slot, −1 without one.
    terms
        What the parties agreed on; the coordinator keeps to it, the parties see to it.
    sealed
        Whether training is on shares: nobody sees a sum then but in the model, which is one over
        all samples, and to whoever reads it.
    small
        Samples left out because a guard would never let them change.
    rare
        Samples left out because too few of their cohort have their class; they keep their slots,
        so that the coordinator knows how many they are, and no more.
    rare_cells
        Cells left out because too few samples of a cohort differ in their column.
    mismatches
        Pairs of parties with ids that agree in their loose form only, and how many.
    """

    parties: tuple[str, ...]
    rows: Axis
    columns: Axis
    overlap: Overlap
    tile_party: Ints
    bias_owner: Ints
    bias_slot: int
    terms: Terms = OPEN
    sealed: bool = False
    small: int = 0
    rare: int = 0
    rare_cells: int = 0
    mismatches: Mismatches = ()

    @property
    def n_samples(self) -> int:
        return self.rows.n_slots - self.rare

    @property
    def n_features(self) -> int:
        return self.columns.n_slots

    @cached_property
    def index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.parties)}

    @cached_property
    def counter(self) -> Ints:
        """Per row cohort, the label holder that counts its losses and conjugates."""
        return self.rows.marked.values[self.rows.marked.start[:-1]]

    @cached_property
    def counted_rows(self) -> dict[str, NDArray[np.int32]]:
        """Per party, the shared rows whose losses it counts, as its local slots."""
        counted = {}
        for number, party in enumerate(self.parties):
            cohorts = self.rows.cohorts[number]
            mine = self.rows.shared_cohort[cohorts] & (self.counter[cohorts] == number)
            starts = self.rows.local_starts(number)[:-1]
            counted[party] = ranges(starts[mine], self.rows.sizes[cohorts][mine]).astype(np.int32)
        return counted

    @cached_property
    def owner(self) -> Ints:
        """Per column cohort, the party that counts its weights."""
        return self.columns.holders.values[self.columns.holders.start[:-1]]

    @cached_property
    def row_holders(self) -> int:
        """The most parties that hold one sample."""
        return int(self.rows.holders.lengths.max(initial=1))

    @cached_property
    def column_holders(self) -> int:
        """The most parties that hold one feature."""
        return int(self.columns.holders.lengths.max(initial=1))

    @cached_property
    def labels_everywhere(self) -> bool:
        """Whether every holder of every sample has its label."""
        return bool((self.rows.holders.lengths == self.rows.marked.lengths).all())

    @cached_property
    def label_parties(self) -> frozenset[str]:
        """Parties that have labels of some sample."""
        return frozenset(self.parties[k] for k in np.unique(self.rows.marked.values).tolist())

    @cached_property
    def partly_unlabelled(self) -> frozenset[str]:
        """Parties that hold some sample whose label they do not have."""
        found = set()
        for c in np.flatnonzero(self.rows.holders.lengths > self.rows.marked.lengths).tolist():
            found.update(np.setdiff1d(self.rows.holders[c], self.rows.marked[c]).tolist())
        return frozenset(self.parties[k] for k in found)

    @cached_property
    def horizontal(self) -> bool:
        """Whether every party holds every feature (the constant column aside)."""
        full = self.columns.n_slots - (self.bias_slot >= 0)
        return all(self._n_columns_without_bias(k) == full for k in range(len(self.parties)))

    @cached_property
    def vertical(self) -> bool:
        """Whether every party holds every sample."""
        return bool((self.rows.holders.lengths == len(self.parties)).all())

    def _n_columns_without_bias(self, party: int) -> int:
        count = int(self.columns.sizes[self.columns.cohorts[party]].sum())
        return count - int(party in self.bias_owner)

    @cached_property
    def shared_features(self) -> dict[str, int]:
        """Per party, how many of its columns others hold too, the constant column aside."""
        owners = np.unique(self.bias_owner)
        constant = owners if self.bias_slot >= 0 and len(owners) > 1 else ()
        return {
            name: self.columns.n_shared_of(number) - int(number in constant)
            for number, name in enumerate(self.parties)
        }

    @cached_property
    def exposed(self) -> NDArray[np.bool_]:
        """Per row cohort, whether a guard must count its changes."""
        if self.sealed or self.terms.min_batch == 1:
            return np.full(len(self.rows.sizes), self.terms.min_batch > 1)
        return exposed_rows(self)

    @cached_property
    def crossed(self) -> NDArray[np.bool_]:
        """Per row cohort, whether a party could compute cells of it that it does not hold."""
        return crossed_rows(self)

    @cached_property
    def foreign(self) -> Ints:
        """Per (row cohort, holder), the columns that only others have."""
        return foreign_columns(self)

    @cached_property
    def lines(self) -> sp.csr_array:
        """(pairs of ``rows.holders`` × column cohort) of which cells a holder has how many."""
        return held_cells(self)

    @cached_property
    def labelled_pairs(self) -> NDArray[np.bool_]:
        """Per pair of ``rows.holders``, whether the holder has the labels."""
        parties = len(self.parties)
        held, marked = (
            np.repeat(np.arange(len(lists)), lists.lengths) * parties + lists.values
            for lists in (self.rows.holders, self.rows.marked)
        )
        return among(held, marked)

    @cached_property
    def row_tiles(self) -> sp.csr_array:
        """(row cohort × tile) which tiles a cohort lies in."""
        return _incidence(self.rows, len(self.tile_party))

    @cached_property
    def column_tiles(self) -> sp.csr_array:
        """(column cohort × tile) which tiles a cohort lies in."""
        return _incidence(self.columns, len(self.tile_party))

    def without_tokens(self) -> HoldingMap:
        """The same without numbers per token: views were made of them, and nothing else is."""
        told = tuple(part[:0].copy() for part in self.rows.tile_cohorts)
        kept = replace(self, rows=replace(self.rows, tile_codes=(), tile_cohorts=told))
        # What was found out stays so.
        vars(kept).update({**vars(self), **vars(kept)})
        return kept

    def view(self, party: int, *, follow_draws: bool = True) -> ToldView:
        """What one party is told: its own slots and its roles.

        With ``follow_draws`` also how many samples each other label holder of its cohorts draws
        from, so that it can compute their draws; no id, slot or feature of theirs.
        """
        rows, columns = self.rows, self.columns
        cohorts = rows.cohorts[party]
        starts = rows.local_starts(party)
        # The constant column's tiles stand behind the parties' own and have no rows.
        tiles = np.flatnonzero(self.tile_party[: len(rows.tile_cohorts)] == party)
        labelled = np.array([party in rows.marked[c] for c in cohorts.tolist()], bool)
        column_cohorts = columns.cohorts[party]
        return ToldView(
            party=party,
            n_parties=len(self.parties),
            label_parties=len(self.label_parties),
            n_samples=self.n_samples,
            n_shared_rows=rows.n_shared_of(party),
            n_shared_columns=columns.n_shared_of(party),
            n_columns=int(columns.sizes[column_cohorts].sum()),
            row_holders=self.row_holders,
            column_holders=self.column_holders,
            cohort=cohorts,
            cohort_start=starts,
            labelled=labelled,
            bias_slot=self._local_bias(party),
            tile_row_cohorts=TileCohorts.of([_places(rows, t, cohorts) for t in tiles.tolist()]),
            tile_column_cohorts=TileCohorts.of(
                [_places(columns, t, column_cohorts) for t in tiles.tolist()]
            ),
            column_cohort=np.repeat(
                np.arange(len(column_cohorts)), columns.sizes[column_cohorts]
            ).astype(np.int32),
            overlap=self.overlap,
            min_batch=self.terms.min_batch,
            exposed=self.exposed[cohorts],
            crossed=self.crossed[cohorts],
            column_number=column_cohorts,
            row_sheets=RowSheets.of_holdings(self, cohorts[rows.shared_cohort[cohorts]]),
            column_sheets=HolderLists.of(
                columns, column_cohorts[columns.shared_cohort[column_cohorts]]
            ),
            **self._other_drawers(party, cohorts if follow_draws else cohorts[:0], starts),
        )

    def _local_bias(self, party: int) -> int:
        """The constant column's local slot, −1 where the party does not add it."""
        if self.bias_slot < 0 or party not in self.bias_owner:
            return -1
        starts = self.columns.start[self.columns.cohorts[party]]
        place = int(np.searchsorted(starts, self.bias_slot))
        return int(self.columns.local_starts(party)[place])

    @cached_property
    def _draw_offsets(self) -> dict[int, tuple[int, dict[int, int]]]:
        """Per party: how many samples it draws from, and where each cohort begins among them."""
        table = {}
        for k in range(len(self.parties)):
            offsets, total = {}, 0
            for c in self.rows.cohorts[k].tolist():
                if k in self.rows.marked[c]:
                    offsets[c] = total
                    total += int(self.rows.sizes[c])
            table[k] = (total, offsets)
        return table

    def _other_drawers(self, party: int, cohorts: Ints, starts: Ints) -> dict[str, Ints]:
        """Who else draws from this party's shared cohorts, so that it can follow their draws."""
        found: list[tuple[int, int, int, int, int]] = []
        for c, local in zip(cohorts.tolist(), starts.tolist(), strict=False):
            for k in self.rows.marked[c].tolist():
                if k != party:
                    total, offsets = self._draw_offsets[k]
                    found.append((k, total, offsets[c], int(self.rows.sizes[c]), local))
        found.sort()
        columns = np.array(found, np.int64).reshape(-1, 5).T
        names = ("other_party", "other_rows", "other_offset", "other_size", "other_start")
        return dict(zip(names, columns, strict=True))


def _incidence(axis: Axis, tiles: int) -> sp.csr_array:
    lists = axis.tiles
    ones = np.ones(len(lists.values), np.int32)
    return sp.csr_array((ones, lists.values, lists.start), shape=(len(lists), tiles))


def _places(axis: Axis, tile: int, cohorts: Ints) -> NDArray[np.int32]:
    """Positions among a party's cohorts of the tokens of one of its tiles (−1 stays)."""
    mine = axis.tile_cohorts[tile]
    return np.where(mine < 0, -1, np.searchsorted(cohorts, mine)).astype(np.int32)
