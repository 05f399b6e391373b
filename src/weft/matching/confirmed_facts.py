"""What a party's guards rely on, from sheets that all holders have confirmed.

Whether others see sums of a cohort, how many hold it, what another holder lacks: a coordinator that
lied about these would switch guards off. So a party works them out from the sheets of its cohorts
(:mod:`weft.matching.cohort_sheets`), and every holder of a cohort confirms the sheet to the others,
with a tag under a key of this run that the coordinator lacks. A holder confirms only what it finds
right: its own columns and labels, who gets the seed from it, and that a cohort counts as exposed or
crossed where its own cells are. All of them together so stand for the whole sheet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b, shake_256
from hmac import compare_digest
from itertools import pairwise

import msgspec
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.array_types import Flags, Ints
from weft.crypto.identities import Secret
from weft.crypto.key_messages import AxisSeeds
from weft.errors import ProtocolError
from weft.matching.cohort_sheets import TAG, HolderLists
from weft.matching.party_view import PartyView, ToldView
from weft.protocol.message import malformed

Names = NDArray[np.object_]


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
    own = _own_cells(told)
    sharers, column_sharers = _sharers(sheets, len(own)), _sharers(lists, own.shape[1])
    # Per own (row cohort, column cohort): how many holders have the cells, and how many hold both.
    holding = own.astype(np.int64)
    meeting = holding.copy()
    if shared:
        holding[:shared] = _holding(told, own[:shared], lists)
        meet = _incidence(sheets, told.n_parties) @ _incidence(lists, told.n_parties).T
        meeting[:shared, :shared_columns] = meet.toarray()
    seen: Flags = np.any(own & (column_sharers > 1) & (column_sharers > holding), axis=1)
    crossed = (own & (meeting > holding)).any(axis=1)
    if told.bias_slot >= 0:
        # Only one party adds the constant column to a sample, and all who add it see its sum.
        constant = int(told.column_cohort[told.bias_slot])
        seen |= told.bias & bool(column_sharers[constant] > 1)
    if told.min_batch == 1:
        seen[:] = False
    if (seen & ~told.exposed)[:shared].any() or (crossed & ~told.crossed)[:shared].any():
        raise LyingView
    computing = told.labelled.astype(np.int64)
    computing[:shared] = np.bincount(sheets.cohort[sheets.labelled], minlength=shared)
    foreign, fewest = _foreign(told, len(own))
    return Facts(
        sharers=sharers,
        column_sharers=column_sharers,
        computing=computing,
        exposed=told.exposed | seen,
        crossed=told.crossed | crossed,
        foreign=foreign,
        fewest_foreign=fewest,
    )


def _own_cells(told: ToldView) -> Flags:
    """(row cohorts × column cohorts) of which this party has the cells, in some tile."""
    columns = told.column_sizes
    cells = np.zeros((len(told.sizes), len(columns)), bool)
    tiles = zip(told.tile_row_cohorts.cut(), told.tile_column_cohorts.cut(), strict=True)
    for row_places, column_places in tiles:
        held = [
            np.bincount(places[places >= 0], minlength=len(sizes))
            for places, sizes in ((row_places, told.sizes), (column_places, columns))
        ]
        for counts, sizes in zip(held, (told.sizes, columns), strict=True):
            # All of a cohort lies in a tile, or nothing.
            if len(counts) != len(sizes) or ((counts > 0) & (counts != sizes)).any():
                raise LyingView
        cells |= np.outer(held[0] > 0, held[1] > 0)
    return cells


def _sharers(lists: HolderLists, cohorts: int) -> Ints:
    """How many hold each cohort; the shared ones come first."""
    found = np.ones(cohorts, np.int64)
    found[: len(lists.lengths)] = lists.lengths
    return found


def _incidence(lists: HolderLists, parties: int) -> sp.csr_array:
    """(cohort × party) who holds it."""
    start = np.concatenate([[0], np.cumsum(lists.lengths)])
    ones = np.ones(len(lists.holders), np.int64)
    return sp.csr_array((ones, lists.holders, start), shape=(len(lists.lengths), parties))


def _holding(told: ToldView, own: Flags, lists: HolderLists) -> Ints:
    """(shared row cohorts × column cohorts) how many holders have the cells of each.

    Refuses sheets with another line than this party's own, and holders of cells of its columns
    who do not hold these columns.
    """
    sheets, cells = told.row_sheets, told.row_sheets.cells
    mine = sheets.holders == told.party
    place = np.searchsorted(sheets.numbers, told.column_number)
    listed = np.isin(told.column_number, sheets.numbers)
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
    if not np.isin(named, np.concatenate([known, private])).all():
        raise LyingView
    start = np.cumsum(sheets.lengths) - sheets.lengths
    found = own.astype(np.int64)
    found[:, listed] = np.add.reduceat(cells.astype(np.int64), start, axis=0)[:, place]
    return found


def _foreign(told: ToldView, cohorts: int) -> tuple[Ints, Ints]:
    """Per row cohort, what this party lacks, and the least that another holder lacks."""
    foreign, fewest = np.zeros((2, cohorts), np.int64)
    sheets = told.row_sheets
    shared = len(sheets.lengths)
    if not shared:
        return foreign, fewest
    cells, start = sheets.cells.astype(np.int64), np.cumsum(sheets.lengths) - sheets.lengths
    others = np.add.reduceat(cells, start, axis=0)[sheets.cohort]
    if told.overlap == "sum":
        # Of additive shares, everybody's is its own.
        lacks = ((others - cells) > 0) @ sheets.sizes
    else:
        lacks = ((others > 0) & (cells == 0)) @ sheets.sizes
    mine = sheets.holders == told.party
    foreign[:shared] = lacks[mine]
    least = np.where(mine | (lacks == 0), np.iinfo(np.int64).max, lacks)
    least = np.minimum.reduceat(least, start)
    fewest[:shared] = np.where(least == np.iinfo(np.int64).max, 0, least)
    return foreign, fewest


# ── tags ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Confirmation:
    """A party's tags of all its sheets, and what those of all holders come to, cohort by cohort."""

    own: bytes
    all: bytes

    def insist(self, told: bytes) -> None:
        """Refuse unless every holder of every cohort has confirmed the same sheet."""
        if not compare_digest(told, self.all):
            raise LyingView


def confirm(
    view: PartyView, ids: Sequence[str], features: Sequence[str], key: Secret
) -> Confirmation:
    """Tags of a view's shared cohorts, of rows and then of columns.

    Parameters
    ----------
    ids, features
        Of the shared rows and columns, by slot: holders of a cohort have the same.
    key
        Of this run, which the parties share and the coordinator lacks.
    """
    own, everybody = [], []
    start = blake2b(key=key.reveal(), digest_size=32, person=b"weft cohort")
    for content, holders in (*_row_contents(view, ids), *_column_contents(view, features)):
        state = start.copy()
        state.update(content)
        # A tag for every place in the list of holders, which the content says too.
        tags = np.frombuffer(shake_256(state.digest()).digest(TAG * len(holders)), np.uint64)
        tags = tags.reshape(len(holders), -1)
        own.append(tags[int(np.searchsorted(holders, view.party))].tobytes())
        everybody.append(np.bitwise_xor.reduce(tags, axis=0).tobytes())
    return Confirmation(b"".join(own), b"".join(everybody))


def _row_contents(view: PartyView, ids: Sequence[str]) -> list[tuple[bytes, Ints]]:
    sheets, found = view.row_sheets, []
    entries = np.concatenate([[0], np.cumsum(sheets.lengths)]).tolist()
    lines = np.concatenate([[0], np.cumsum(sheets.line_lengths)]).tolist()
    sizes = sheets.sizes[np.searchsorted(sheets.numbers, sheets.columns)]
    for cohort, (first, end) in enumerate(pairwise(view.shared_rows.tolist())):
        a, b = entries[cohort : cohort + 2]
        line = slice(lines[a], lines[b])
        content = [
            "rows",
            view.overlap,
            int(view.cohort[cohort]),
            list(ids[first:end]),
            sheets.holders[a:b].tobytes(),
            sheets.labelled[a:b].tobytes(),
            sheets.line_lengths[a:b].tobytes(),
            sheets.columns[line].tobytes(),
            sizes[line].tobytes(),
            bool(view.exposed[cohort]),
            bool(view.crossed[cohort]),
        ]
        found.append((msgspec.msgpack.encode(content), sheets.holders[a:b]))
    return found


def _column_contents(view: PartyView, features: Sequence[str]) -> list[tuple[bytes, Ints]]:
    lists, found = view.column_sheets, []
    entries = np.concatenate([[0], np.cumsum(lists.lengths)]).tolist()
    for cohort, (first, end) in enumerate(pairwise(view.shared_columns.tolist())):
        holders = lists.holders[entries[cohort] : entries[cohort + 1]]
        number = int(view.column_number[cohort])
        content = ["columns", number, list(features[first:end]), holders.tobytes()]
        found.append((msgspec.msgpack.encode(content), holders))
    return found


def check_gifts(seeds: AxisSeeds, to: Ints, lists: HolderLists) -> None:
    """Refuse to give the seed of a cohort to somebody whom its sheet does not list."""
    counts = np.diff(seeds.start)
    if len(counts) != len(to) or (counts < 0).any() or int(counts.sum()) != len(seeds.given):
        raise malformed("seeds.start", "does not say what every receiver is given")
    width = 1 + int(max(to.max(initial=0), lists.holders.max(initial=0)))
    listed = lists.cohort * width + lists.holders
    given = seeds.given * width + np.repeat(to, counts)
    makers = np.arange(len(seeds.maker)) * width + seeds.maker
    if not np.isin(np.concatenate([given, makers]), listed).all():
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
