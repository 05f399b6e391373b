"""From the parties' tokens to the holding map: cohorts, roles, and what does not fit together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.errors import DataError
from weft.guards.privacy_terms import OPEN, Terms
from weft.matching.cohorts import Axis, build_axis, ranges
from weft.matching.holding_map import HoldingMap
from weft.matching.id_and_name_forms import count_mismatches
from weft.matching.overlap_rule import Overlap
from weft.matching.two_spellings import (
    PrefixedIds,
    check_ids,
    check_names,
    check_prefixes,
)

#: Token of the constant column; real tokens meet it with probability 2^-64.
BIAS_TOKEN = np.array([0xB1A5], np.uint64)
#: What a submitter, who chooses min_batch, is told in place of a party's name or a size.
_TOO_FEW = (
    "min_batch leaves a party without samples; lower it, or bring more samples (the coordinator's "
    "log names the party)"
)


@dataclass(frozen=True)
class Holding:
    """What one party says it holds: tokens only, tile by tile.

    ``loose`` has one token per row of all tiles, of its id's loose form, and ``similar`` one per
    column, of its name's. ``bare`` has tokens of ids without what all ids of the party begin with.
    """

    rows: tuple[NDArray[np.uint64], ...]
    columns: tuple[NDArray[np.uint64], ...]
    labelled: tuple[NDArray[np.bool_], ...]
    labels: tuple[NDArray[np.uint64], ...]
    loose: NDArray[np.uint64]
    bare: NDArray[np.uint64]
    similar: NDArray[np.uint64]


def build_holdings(
    parties: Sequence[str],
    holdings: Sequence[Holding],
    *,
    overlap: Overlap = "mean",
    bias: bool = False,
    confirm_separate_ids: bool = False,
    sites: bool = False,
    confirmed: Collection[str] = (),
    terms: Terms = OPEN,
    sealed: bool = False,
    doubts: list[DataError] | None = None,
) -> HoldingMap:
    """Match the parties' tokens into cohorts and hand out the roles.

    Samples of exposed cohorts that are smaller than the terms' ``min_batch`` are left out.

    Parameters
    ----------
    sites
        Whether parties have a column of their own in their last tile, for the intercept of a site.
    sealed
        Whether training is on shares.
    doubts
        Takes what looks like a slip, and labels on which parties disagree, in the place of raising
        it; None: the first of them is raised.

    Raises
    ------
    DataError
        When two parties disagree on a label, when nobody has labels, or when parties with
        different features share no sample at all and nobody confirmed that this is meant. The
        same for names of columns, and for many ids, that differ in their writing only, or in what
        all of a party's begin with, unless ``confirmed`` has "names" or "ids".
    """

    def look(check: Callable[[], None]) -> None:
        try:
            check()
        except DataError as doubt:
            if doubts is None:
                raise
            doubts.append(doubt)

    # First of all: what else is wrong may follow from these.
    if "names" not in confirmed:
        exact, loose = [h.columns for h in holdings], [h.similar for h in holdings]
        look(lambda: check_names(parties, exact, loose))
    mismatches = count_mismatches(
        parties,
        [np.concatenate(holding.rows) for holding in holdings],
        [holding.loose for holding in holdings],
    )
    if "ids" not in confirmed:
        sizes = {p: len(h.loose) for p, h in zip(parties, holdings, strict=True)}
        least = terms.min_batch
        look(lambda: check_ids(mismatches, sizes, least=least))
        known = [PrefixedIds(np.concatenate(h.rows), h.loose, h.bare, h.similar) for h in holdings]
        separate = confirm_separate_ids
        look(lambda: check_prefixes(parties, known, separate=separate, least=least))
    tile_party = np.repeat(np.arange(len(parties)), [len(h.rows) for h in holdings])
    rows = build_axis(
        [t for h in holdings for t in h.rows],
        tile_party,
        [t for h in holdings for t in h.labelled],
        len(parties),
    )
    if rows.n_slots == 0:
        raise DataError(
            "no sample has a label at any party; name the label column of at least one party"
        )
    for name, k in zip(parties, range(len(parties)), strict=True):
        if not len(rows.cohorts[k]):
            raise DataError(
                f"party {name} holds no sample that anyone has a label for; "
                "check its id column, or leave the party out"
            )
    look(lambda: _check_labels(parties, holdings, rows, tile_party))
    columns = [t for h in holdings for t in h.columns]
    if not confirm_separate_ids:
        look(lambda: _check_meeting(parties, rows, columns, tile_party, sites=sites))
    first_label_holder = rows.marked.values[rows.marked.start[:-1]]
    bias_owner = first_label_holder if bias else np.full(len(rows.sizes), -1)
    owners = np.unique(bias_owner) if bias else np.zeros(0, np.int64)
    axis = build_axis(
        [*columns, *(BIAS_TOKEN for _ in owners)],
        np.concatenate([tile_party, owners]),
        None,
        len(parties),
    )
    holding_map = HoldingMap(
        parties=tuple(parties),
        rows=rows,
        columns=axis,
        overlap=overlap,
        tile_party=np.concatenate([tile_party, owners]),
        bias_owner=bias_owner,
        # It lies in tiles of its own, and so is a cohort of its own.
        bias_slot=int(axis.start[axis.tile_cohorts[-1][0]]) if bias else -1,
        terms=terms,
        sealed=sealed,
        mismatches=mismatches,
    )
    small = holding_map.exposed & (rows.sizes < terms.min_batch)
    if not small.any():
        return holding_map
    # What looked like a slip before does so again.
    again: list[DataError] | None = None if doubts is None else []
    return _without(holding_map, small, holdings, confirm_separate_ids, sites, again)


def _without(
    holding_map: HoldingMap,
    small: NDArray[np.bool_],
    holdings: Sequence[Holding],
    separate: bool,
    sites: bool,
    doubts: list[DataError] | None,
) -> HoldingMap:
    """The holding_map without the samples of some cohorts."""
    rows = holding_map.rows
    count = int(rows.sizes[small].sum())
    if small.all():
        raise DataError(
            f"all groups of samples that the same parties hold are smaller than min_batch = "
            f"{holding_map.terms.min_batch}; lower it, or bring more samples",
            told=_TOO_FEW,
        )
    for number, name in enumerate(holding_map.parties):
        if small[rows.cohorts[number]].all():
            raise DataError(
                f"party {name} has samples only in groups smaller than min_batch = "
                f"{holding_map.terms.min_batch} that the same parties hold; bring more, or leave "
                "the party out",
                told=_TOO_FEW,
            )
    cohorts = iter(rows.tile_cohorts)
    kept = []
    for holding in holdings:
        labelled = []
        for tile in holding.labelled:
            mine = next(cohorts)
            labelled.append(tile & (mine >= 0) & ~small[mine])
        kept.append(replace(holding, labelled=tuple(labelled)))
    smaller = build_holdings(
        holding_map.parties,
        kept,
        overlap=holding_map.overlap,
        bias=holding_map.bias_slot >= 0,
        confirm_separate_ids=separate,
        sites=sites,
        # They were looked at before anything was left out.
        confirmed=("names", "ids"),
        terms=holding_map.terms,
        sealed=holding_map.sealed,
        doubts=doubts,
    )
    return replace(smaller, small=smaller.small + count)


class LabelConflict(DataError):
    """Two tiles disagree on labels.

    Attributes
    ----------
    parties
        The two that disagree; twice the same if it is two tiles of one party.
    samples
        On how many samples.
    places
        Per party name, (tile, position among its tokens) of the samples' rows.
    """

    #: Who shares samples with whom, and how many, is not for a submitter.
    TOLD = (
        "two tables give different labels, or offsets or weights beside them, to the same samples; "
        "the logs of the sites that hold them say in which rows; correct them, or name the label "
        "column of one of them only"
    )

    def __init__(self, parties: tuple[str, str], places: dict[str, Ints], samples: int) -> None:
        self.parties, self.places, self.samples = parties, places, samples
        super().__init__(self.sentence({}), told=self.TOLD)

    def sentence(self, where: Mapping[str, str]) -> str:
        """What is wrong and what to do; ``where`` says in which rows of whom."""
        found = "".join(f"; {party}: {rows}" for party, rows in where.items())
        return (
            f"{self.parties[0]} and {self.parties[1]} give different labels, or offsets or weights "
            f"beside them, to {self.samples} common sample(s){found}; correct them or name the "
            "label column of one of them only"
        )


def _check_labels(
    parties: Sequence[str], holdings: Sequence[Holding], rows: Axis, tile_party: Ints
) -> None:
    tokens = np.concatenate([t for h in holdings for t in h.labels])
    known = tokens != 0
    tokens, codes = tokens[known], np.concatenate(rows.tile_codes)[known]
    # Every entry against the first of the same sample.
    _, first, back = np.unique(codes, return_index=True, return_inverse=True)
    differs = np.flatnonzero(tokens != tokens[first[back]])
    if not len(differs):
        return
    lengths = np.array([len(codes) for codes in rows.tile_codes])
    tile = np.repeat(np.arange(len(tile_party)), lengths)[known]
    at = ranges(np.zeros(len(lengths), np.int64), lengths)[known]
    # Only the first pair of parties that disagree is named.
    one, other = tile_party[tile[first[back[differs]]]], tile_party[tile[differs]]
    differs = differs[(one == one[0]) & (other == other[0])]
    places: dict[str, Ints] = {}
    for entries in (first[back[differs]], differs):
        name, owner = parties[tile_party[tile[entries[0]]]], tile_party[tile[entries[0]]]
        number = tile[entries] - int(np.searchsorted(tile_party, owner))
        found = np.stack([number, at[entries]], axis=1)
        places[name] = np.concatenate([places[name], found]) if name in places else found
    pair = (parties[int(one[0])], parties[int(other[0])])
    raise LabelConflict(pair, places, len(np.unique(codes[differs])))


def _check_meeting(
    parties: Sequence[str],
    rows: Axis,
    columns: list[NDArray[np.uint64]],
    tile_party: Ints,
    *,
    sites: bool,
) -> None:
    """A party whose features differ from the others' and whose ids meet nobody's.

    Intercepts of ``sites`` differ in any case.
    """
    if len(parties) < 2:
        return
    held: list[list[NDArray[np.uint64]]] = [[] for _ in parties]
    for k, tokens in zip(tile_party.tolist(), columns, strict=True):
        held[k].append(tokens)
    if sites:
        held = [tiles[:-1] if len(tiles) > 1 and len(tiles[-1]) == 1 else tiles for tiles in held]
    if len({np.unique(np.concatenate(tokens)).tobytes() for tokens in held}) == 1:
        return
    for k, name in enumerate(parties):
        if not rows.shared_cohort[rows.cohorts[k]].any():
            raise DataError(
                f"party {name} has other features than the rest but none of its ids occurs at "
                "another party: are the ids written in two schemes? if this is meant, set "
                "confirm_separate_ids = true",
                # A min_batch that leaves out all that a party shares brings this up too.
                told="a party has other features than the rest but none of its ids that are left "
                "occurs at another party: are the ids written in two schemes? if this is meant, "
                "set confirm_separate_ids = true (the coordinator's log names the party)",
            )
