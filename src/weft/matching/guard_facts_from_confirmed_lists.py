"""What a party's guards rely on, from sheets that all holders have confirmed.

Whether others see sums of a cohort, how many hold it, what another holder lacks: a coordinator that
lied about these would switch guards off. One that said who counts a loss, a weight or a cell would
make a total one party's own. So a party works all of that out from the sheets of its cohorts
(:mod:`weft.matching.cohort_holder_lists`), and every holder of a cohort confirms the sheet to the
others (:mod:`weft.matching.confirm_holder_lists`). A holder confirms only what it finds right: its
own columns and labels, who gets the seed from it, and that a cohort counts as exposed or crossed
where its own cells are. All of them together so stand for the whole sheet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.array_types import Flags, Ints
from weft.crypto.key_and_seed_messages import AxisSeeds
from weft.errors import ProtocolError
from weft.fast_small_array_operations import among
from weft.matching.cohort_holder_lists import HolderLists
from weft.matching.party_view import ToldView
from weft.protocol.declared_message_fields import malformed

Names = NDArray[np.object_]

#: Up to so many numbers, a sparse array takes longer to make than an array does.
_SMALL = 100_000
#: More than any number of columns.
_MOST = (1 << 63) - 1


class LyingView(ProtocolError):
    """A view that is not right; it does not say what is wrong, which would help whoever lied."""

    def __init__(self) -> None:
        super().__init__(
            "a party was told of its samples and features what is not so, or what not all their "
            "holders confirm; stop this run"
        )


@dataclass(frozen=True)
class Facts:
    """What follows from a party's sheets.

    Attributes
    ----------
    sharers, column_sharers
        How many parties hold each row cohort, each column cohort.
    computing
        How many of them have the labels of a row cohort.
    counts, bias
        Per row cohort: whether this party, as the first who has its labels, counts the losses, and
        adds the constant column.
    owned
        Per local column: whether this party, as its first holder, counts its weight.
    cell_holders
        (row cohort × column cohort) number of tiles with that cell; None: one each.
    owned_cells
        Where the first of several tiles counts: per tile, the cells that no tile before it has.
    exposed
        Per row cohort: whether cells of this party in it enter feature sums that somebody sees
        who lacks them.
    crossed
        Per row cohort: whether another holder has a feature of this party's cells in it, but not
        the cells.
    foreign
        Per row cohort: how many columns only other holders have.
    fewest_foreign
        Per row cohort: the fewest columns that are foreign to another holder; zero: there are none.
    """

    sharers: Ints
    column_sharers: Ints
    computing: Ints
    counts: Flags
    bias: Flags
    owned: Flags
    cell_holders: Ints | None
    owned_cells: Flags | None
    exposed: Flags
    crossed: Flags
    foreign: Ints
    fewest_foreign: Ints


def facts_of(told: ToldView) -> Facts:
    """Work out the facts; refuses sheets that do not fit the party's own cells."""
    sheets, lists = told.row_sheets, told.column_sheets
    shared, shared_columns = len(told.shared_rows) - 1, len(told.shared_columns) - 1
    sheets.check(shared, told.party, told.n_parties)
    lists.check(shared_columns, told.party, told.n_parties)
    cells = _Cells.of(told)
    own, rows = cells.own, len(told.sizes)
    sharers, column_sharers = _sharers(sheets, rows), _sharers(lists, own.shape[1])
    few = sharers.max(initial=1) > told.row_holders
    if few or column_sharers.max(initial=1) > told.column_holders:
        raise LyingView
    # Per own (row cohort, column cohort): how many hold both.
    meeting = own.astype(np.int64)
    if shared:
        meeting[:shared, :shared_columns] = _meeting(sheets, lists, told.n_parties)
    seen: Flags = np.any(own & (column_sharers > 1) & (column_sharers > cells.holding), axis=1)
    crossed = (own & (meeting > cells.holding)).any(axis=1)
    counts = _counted(told)
    bias = counts & (told.bias_slot >= 0)
    if told.bias_slot >= 0:
        # Only one party adds the constant column to a sample, and all who add it see its sum.
        constant = int(told.column_cohort[told.bias_slot])
        seen |= bias & bool(column_sharers[constant] > 1)
    if told.min_batch == 1:
        seen[:] = False
    if (seen & ~told.exposed)[:shared].any() or (crossed & ~told.crossed)[:shared].any():
        raise LyingView
    computing = told.labelled.astype(np.int64)
    computing[:shared] = np.bincount(sheets.cohort[sheets.labelled], minlength=shared)
    foreign, fewest = _foreign(told, rows)
    return Facts(
        sharers=sharers,
        column_sharers=column_sharers,
        computing=computing,
        counts=counts,
        bias=bias,
        owned=_first_holder(told)[told.column_cohort],
        cell_holders=cells.in_tiles if cells.several else None,
        owned_cells=cells.first_tile() if cells.several and told.overlap == "first" else None,
        exposed=told.exposed | seen,
        crossed=told.crossed | crossed,
        foreign=foreign,
        fewest_foreign=fewest,
    )


@dataclass(frozen=True)
class _Cells:
    """Cells by (row cohort × column cohort) of a party, and who else has them.

    Attributes
    ----------
    tiles
        Per tile of this party, whether it has them.
    own
        Whether this party has them, in some tile.
    holding, in_tiles
        How many parties have them, and in how many tiles of all parties they are.
    before
        Whether a party before this one has them.
    """

    tiles: list[Flags]
    own: Flags
    holding: Ints
    in_tiles: Ints
    before: Flags

    @classmethod
    def of(cls, told: ToldView) -> _Cells:
        """From what a party was told of its own tiles, and the sheets of its shared rows."""
        tiles = _tile_cells(told)
        in_tiles: Ints = np.asarray(sum(cells.astype(np.int64) for cells in tiles))
        own = in_tiles > 0
        holding, before = own.astype(np.int64), np.zeros_like(own)
        sheets = told.row_sheets
        shared = len(sheets.lengths)
        if shared:
            cells = _listed_cells(told, in_tiles[:shared])
            start = np.cumsum(sheets.lengths) - sheets.lengths
            earlier = np.where((sheets.holders < told.party)[:, None], cells, 0)
            holding[:shared] = np.add.reduceat((cells > 0).astype(np.int64), start, axis=0)
            in_tiles[:shared] = np.add.reduceat(cells, start, axis=0)
            before[:shared] = np.add.reduceat(earlier, start, axis=0) > 0
        return cls(tiles, own, holding, in_tiles, before)

    @property
    def several(self) -> bool:
        """Whether some cell lies in more than one tile."""
        return bool((self.in_tiles > 1).any())

    def first_tile(self) -> Flags:
        """Per tile, the cells that no party before has, nor a tile of this one before."""
        found, before = [], self.before
        for cells in self.tiles:
            found.append(~before)
            before = before | cells
        return np.stack(found)


def _tile_cells(told: ToldView) -> list[Flags]:
    """Per tile, (row cohorts × column cohorts) of which it has the cells."""
    row_sizes, column_sizes = told.sizes, told.column_sizes
    found = []
    named = np.zeros(len(column_sizes), bool)
    tiles = zip(told.tile_row_cohorts.cut(), told.tile_column_cohorts.cut(), strict=True)
    for row_places, column_places in tiles:
        held = [
            np.bincount(places[places >= 0], minlength=len(sizes))
            for places, sizes in ((row_places, row_sizes), (column_places, column_sizes))
        ]
        for counts, sizes in zip(held, (row_sizes, column_sizes), strict=True):
            # All of a cohort lies in a tile, or nothing.
            if len(counts) != len(sizes) or ((counts > 0) & (counts != sizes)).any():
                raise LyingView
        if (column_places < 0).any():
            # Samples may be left out, columns may not.
            raise LyingView
        named |= held[1] > 0
        found.append(np.outer(held[0] > 0, held[1] > 0))
    constant = np.zeros(len(column_sizes), bool)
    if told.bias_slot >= 0:
        constant[told.column_cohort[told.bias_slot]] = True
    # The constant column, which lies in no tile, is all that a party was given.
    if (named == constant).any() or (column_sizes[constant] != 1).any():
        raise LyingView
    return found


def _counted(told: ToldView) -> Flags:
    """Per row cohort, whether this party is the first who has its labels."""
    sheets = told.row_sheets
    first = np.where(told.labelled, told.party, told.n_parties)
    if len(sheets.lengths):
        start = np.cumsum(sheets.lengths) - sheets.lengths
        labelled = np.where(sheets.labelled, sheets.holders, told.n_parties)
        first[: len(start)] = np.minimum.reduceat(labelled, start)
    if (first == told.n_parties).any():
        # Samples that nobody has a label of are no part of a run.
        raise LyingView
    counted: Flags = first == told.party
    return counted


def _first_holder(told: ToldView) -> Flags:
    """Per column cohort, whether this party is its first holder."""
    lists = told.column_sheets
    first = np.ones(len(told.column_number), bool)
    start = np.cumsum(lists.lengths) - lists.lengths
    first[: len(start)] = lists.holders[start] == told.party
    return first


def _sharers(lists: HolderLists, cohorts: int) -> Ints:
    """How many hold each cohort; the shared ones come first."""
    found = np.ones(cohorts, np.int64)
    found[: len(lists.lengths)] = lists.lengths
    return found


def _meeting(rows: HolderLists, columns: HolderLists, parties: int) -> Ints:
    """(row cohort × column cohort) how many hold both."""
    if (len(rows.lengths) + len(columns.lengths)) * parties <= _SMALL:
        small: Ints = _table(rows, parties) @ _table(columns, parties).T
        return small
    meet: Ints = (_incidence(rows, parties) @ _incidence(columns, parties).T).toarray()
    return meet


def _table(lists: HolderLists, parties: int) -> Ints:
    """(cohort × party) who holds it, as an array."""
    held = np.zeros((len(lists.lengths), parties), np.int64)
    held[lists.cohort, lists.holders] = 1
    return held


def _incidence(lists: HolderLists, parties: int) -> sp.csr_array:
    """The same with what is not zero alone."""
    start = np.concatenate([[0], np.cumsum(lists.lengths)])
    ones = np.ones(len(lists.holders), np.int64)
    return sp.csr_array((ones, lists.holders, start), shape=(len(lists.lengths), parties))


def _listed_cells(told: ToldView, own: Ints) -> Ints:
    """(entries of the row sheets × own column cohorts) in how many tiles a holder has the cells.

    Refuses sheets with another line than this party's own, and holders of cells of its columns
    who do not hold these columns.
    """
    sheets, lists, cells = told.row_sheets, told.column_sheets, told.row_sheets.cells
    mine = sheets.holders == told.party
    place = np.searchsorted(sheets.numbers, told.column_number)
    listed = among(told.column_number, sheets.numbers)
    place = place[listed]
    if (
        own[:, ~listed].any()
        or (cells[mine][:, place] != own[:, listed]).any()
        or (cells[mine].sum(axis=1) != own.sum(axis=1)).any()
        or (sheets.sizes[place] != told.column_sizes[listed]).any()
        or (sheets.labelled[mine] != told.labelled[: len(own)]).any()
    ):
        raise LyingView
    entry, column = np.nonzero(cells[:, place])
    column = np.flatnonzero(listed)[column]
    named = column * told.n_parties + sheets.holders[entry]
    known = lists.cohort * told.n_parties + lists.holders
    private = np.arange(len(lists.lengths), own.shape[1]) * told.n_parties + told.party
    if not among(named, np.concatenate([known, private])).all():
        raise LyingView
    found = np.zeros((len(cells), own.shape[1]), np.int64)
    found[:, listed] = cells[:, place]
    return found


def _foreign(told: ToldView, cohorts: int) -> tuple[Ints, Ints]:
    """Per row cohort, what this party lacks, and the least that another holder lacks."""
    foreign, fewest = np.zeros((2, cohorts), np.int64)
    sheets = told.row_sheets
    shared = len(sheets.lengths)
    if not shared:
        return foreign, fewest
    cells, start = (sheets.cells > 0).astype(np.int64), np.cumsum(sheets.lengths) - sheets.lengths
    others = np.add.reduceat(cells, start, axis=0)[sheets.cohort]
    if told.overlap == "sum":
        # Of additive shares, everybody's is its own.
        lacks = ((others - cells) > 0) @ sheets.sizes
    else:
        lacks = ((others > 0) & (cells == 0)) @ sheets.sizes
    mine = sheets.holders == told.party
    foreign[:shared] = lacks[mine]
    least = np.where(mine | (lacks == 0), _MOST, lacks)
    least = np.minimum.reduceat(least, start)
    fewest[:shared] = np.where(least == _MOST, 0, least)
    return foreign, fewest


def check_gifts(seeds: AxisSeeds, to: Ints, lists: HolderLists) -> None:
    """Refuse to give the seed of a cohort to somebody whom its sheet does not list."""
    counts = np.diff(seeds.start)
    if len(counts) != len(to) or (counts < 0).any() or int(counts.sum()) != len(seeds.given):
        raise malformed("seeds.start", "does not say what every receiver is given")
    width = 1 + int(max(to.max(initial=0), lists.holders.max(initial=0)))
    listed = lists.cohort * width + lists.holders
    given = seeds.given * width + np.repeat(to, counts)
    makers = np.arange(len(seeds.maker)) * width + seeds.maker
    if not among(np.concatenate([given, makers]), listed).all():
        raise LyingView


def check_labelled(told: ToldView, labelled: Sequence[Flags]) -> None:
    """Refuse a view that says other samples of this party to have labels than it said.

    ``labelled`` has a flag per token that was sent, tile by tile.
    """
    found = np.zeros(len(told.sizes), bool)
    for places, flags in zip(told.tile_row_cohorts.cut(), labelled, strict=True):
        if len(places) != len(flags):
            raise LyingView
        counts = np.bincount(places[(places >= 0) & flags], minlength=len(told.sizes))
        if len(counts) != len(told.sizes) or ((counts > 0) & (counts != told.sizes)).any():
            raise LyingView
        found |= counts > 0
    if (found != told.labelled).any():
        raise LyingView


def by_slot(names: Sequence[Names], slots: Sequence[NDArray[np.int32]], count: int) -> list[str]:
    """Names of the first slots, from those of the tiles' rows or columns and their slots."""
    found = np.full(count, "", dtype=object)
    for tile, places in zip(names, slots, strict=True):
        held = (places >= 0) & (places < count)
        found[places[held]] = tile[held]
    listed: list[str] = found.tolist()
    return listed
