"""What sums would show of whom, against a slow and obvious reference; small groups left out."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import (
    checkerboard,
    cohorts_of,
    roster_of,
    table_of,
    tile_of,
    train,
    watched,
)

from weft.crypto.ciphers.block_format import read_block, words_of
from weft.crypto.fixed_point import FixedPoint
from weft.data import SPLITS, Split, Table, load
from weft.errors import DataError
from weft.federation.local_federation import Preprocessing
from weft.guards import Terms
from weft.matching.cohorts_exposed_to_non_holders import crossed_rows, exposed_rows, foreign_columns
from weft.matching.guard_facts_from_confirmed_lists import facts_of
from weft.solvers.run_settings import Settings

BREAST = table_of("breast_cancer", 120)

CUTS = {
    "grid": lambda: SPLITS["grid"](BREAST, k=3, q=4),
    "columns": lambda: SPLITS["columns"](BREAST, parties=3),
    "rows": lambda: SPLITS["rows"](BREAST, parties=3),
    "overlapping": lambda: SPLITS["overlapping"](BREAST, parties=5, seed=2),
    "overlapping, labels at first": lambda: SPLITS["overlapping"](
        BREAST, parties=4, seed=5, labels="first"
    ),
    "checkerboard": lambda: checkerboard(BREAST),
    "quadrants": lambda: SPLITS["quadrants"](load("digits").rows(slice(0, 60)), parties=6),
}


class Slow:
    """Who holds which sample, feature and cell, by name; a set to each question."""

    def __init__(self, split: Split) -> None:
        self.cells = {
            party: {(i, f) for tile in held for i in tile.ids for f in tile.features}
            for party, held in split.parties.items()
        }
        self.samples = {p: {i for i, _ in cells} for p, cells in self.cells.items()}
        self.features = {p: {f for _, f in cells} for p, cells in self.cells.items()}
        self.every = set().union(*self.cells.values())

    def exposed(self, sample: str) -> bool:
        """Somebody who holds a feature sees a sum that has a cell of the sample it lacks."""
        return any(
            i == sample and f in self.features[party] and (i, f) not in self.cells[party]
            for party in self.cells
            for i, f in self.every
            if i == sample
        )

    def in_shared_feature(self, sample: str) -> bool:
        return any(
            sum(f in features for features in self.features.values()) > 1
            for i, f in self.every
            if i == sample
        )

    def foreign(self, sample: str, party: str, shares: bool) -> int:
        """Columns of the sample that others put into its sum and the party cannot take out."""
        others = set().union(*(cells for p, cells in self.cells.items() if p != party))
        mine = set() if shares else self.cells[party]
        return len({f for i, f in others - mine if i == sample})

    def crossed(self, sample: str) -> bool:
        """Somebody has the sample and a feature of it, but not the cell."""
        return any(
            sample in self.samples[party] and f in self.features[party]
            for party in self.cells
            for i, f in self.every - self.cells[party]
            if i == sample
        )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("cut", CUTS)
def test_what_sums_show_is_found_from_who_holds_what(cut, bias):
    split = CUTS[cut]()
    tiles = split.parties
    roster, slow = roster_of(tiles, bias=bias), Slow(split)
    exposed, crossed = exposed_rows(roster), crossed_rows(roster)
    several_tiles = any(len(held) > 1 for held in tiles.values())
    several_owners = len(set(roster.bias_owner.tolist())) > 1
    seen = set()
    for sample, cohort in cohorts_of(roster, tiles).items():
        if cohort in seen:
            continue
        seen.add(cohort)
        assert crossed[cohort] == slow.crossed(sample)
        if bias and several_owners:
            assert exposed[cohort], "the constant's sum has everybody's samples"
        elif several_tiles:
            assert exposed[cohort] == slow.in_shared_feature(sample) >= slow.exposed(sample)
        else:
            assert exposed[cohort] == slow.exposed(sample)
        for place, party in enumerate(tiles):
            if sample not in slow.samples[party]:
                continue
            at = roster.rows.cohorts[place].tolist().index(cohort)
            others = [p for p in tiles if p != party and sample in slow.samples[p]]
            numbers = [slow.foreign(sample, p, False) for p in others]
            fewest = min((n for n in numbers if n), default=0)
            assert facts_of(roster.view(place)).fewest_foreign[at] == fewest
    assert len(seen) == len(exposed)


@pytest.mark.parametrize("overlap", ["mean", "sum"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("cut", CUTS)
def test_parties_work_out_from_their_sheets_what_the_coordinator_knows(cut, bias, overlap):
    terms = Terms(min_batch=2)
    holdings = roster_of(CUTS[cut]().parties, terms, bias=bias, overlap=overlap)
    for party in range(len(holdings.parties)):
        found = facts_of(holdings.view(party))
        mine, columns = holdings.rows.cohorts[party], holdings.columns.cohorts[party]
        assert found.sharers.tolist() == holdings.rows.holders.lengths[mine].tolist()
        assert found.computing.tolist() == holdings.rows.marked.lengths[mine].tolist()
        assert found.column_sharers.tolist() == holdings.columns.holders.lengths[columns].tolist()
        assert found.exposed.tolist() == holdings.exposed[mine].tolist()
        assert found.crossed.tolist() == holdings.crossed[mine].tolist()
        pairs = holdings.rows.holders.values == party
        assert found.foreign.tolist() == holdings.foreign[pairs].tolist()


@pytest.mark.parametrize("overlap", ["mean", "sum"])
@pytest.mark.parametrize("cut", CUTS)
def test_foreign_columns_are_those_that_only_others_have(cut, overlap):
    split = CUTS[cut]()
    roster, slow = roster_of(split.parties, bias=True, overlap=overlap), Slow(split)
    names = list(split.parties)
    one = {cohort: sample for sample, cohort in cohorts_of(roster, split.parties).items()}
    found = foreign_columns(roster)
    pair = 0
    for cohort in range(len(roster.rows.sizes)):
        for party in roster.rows.holders[cohort].tolist():
            assert found[pair] == slow.foreign(one[cohort], names[party], overlap == "sum")
            pair += 1
    assert pair == len(found)


def test_the_kinds_of_cuts_expose_what_one_would_think():
    shown = {cut: roster_of(make().parties, Terms()).exposed for cut, make in CUTS.items()}
    assert shown["grid"].all()
    assert shown["rows"].all()
    assert not shown["columns"].any()
    assert not roster_of(CUTS["grid"]().parties).exposed.any(), "min_batch = 1 guards nothing"


# ── small groups ──────────────────────────────────────────────────────────────────────────────


def three_by_rows(table: Table, sizes: tuple[int, int, int]):
    """p1, p2, p3 with all features of so many samples each."""
    bounds = np.cumsum([0, *sizes])
    return {
        f"p{k + 1}": (tile_of(table, slice(bounds[k], bounds[k + 1])),) for k in range(len(sizes))
    }


def test_samples_in_small_groups_are_left_out():
    """They count, and the model is that of all other samples."""
    table = table_of("breast_cancer", 300)
    tiles = three_by_rows(table, (100, 100, 100))
    # Four samples of p1 are p2's too: a group of four.
    tiles["p2"] = (tile_of(table, np.arange(96, 200)),)
    terms = Terms(ciphers=("plain",), allow_pairs=True)
    settings = Settings(lam=1e-2, solver="cutting-planes", gap=1e-4, cipher="plain")
    federation, trained = train(tiles, settings, terms)
    roster = trained.holdings
    assert roster.small == 4
    assert roster.n_samples == 296
    assert sorted(roster.rows.sizes.tolist()) == [96, 100, 100]
    kept = np.setdiff1d(np.arange(300), np.arange(96, 100))
    alone = {
        "p1": (tile_of(table, np.arange(96)),),
        "p2": (tile_of(table, np.arange(100, 200)),),
        "p3": (tile_of(table, np.arange(200, 300)),),
    }
    _, without = train(alone, settings, terms)
    assert without.holdings.small == 0
    x, y = table.block[kept], np.where(table.labels[kept] == 1, 1.0, -1.0)
    values = []
    for found in (trained, without):
        order = [found.model.features.tolist().index(f) for f in table.features.tolist()]
        w = found.model.coef[0][order]
        values.append(5e-3 * w @ w + np.maximum(1 - y * (x @ w), 0).mean())
        primal = found.result.certificate.primal[0]
        assert values[-1] == pytest.approx(primal, rel=1e-9)
    assert values[0] == pytest.approx(values[1], rel=2e-4)
    # Their rows are nowhere in a sum.
    rows = federation.parties["p1"].view.tile_rows[0]
    assert (rows[96:] == -1).all()


def test_small_groups_that_nobody_else_sees_stay():
    """Vertical parties: all see the same samples, however few."""
    table = table_of("breast_cancer", 6)
    roster = roster_of(SPLITS["columns"](table, parties=3).parties, Terms())
    assert roster.small == 0
    assert roster.n_samples == 6


def test_nothing_but_small_groups_is_an_error():
    table = table_of("breast_cancer", 24)
    with pytest.raises(DataError, match="smaller than min_batch = 10; lower it, or bring more"):
        roster_of(three_by_rows(table, (8, 8, 8)), Terms())


def test_a_party_with_nothing_but_small_groups_is_told_so():
    table = table_of("breast_cancer", 60)
    with pytest.raises(DataError, match=r"party p3 .* min_batch = 10"):
        roster_of(three_by_rows(table, (30, 25, 5)), Terms())


# ── norms ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("phase", ["scale.norms", "hyfdca.norms"])
def test_norms_of_single_samples_are_never_told(phase):
    table = table_of("digits", 300)
    split = SPLITS["grid"](table, k=2, q=3)
    split = Split(
        {**split.parties, "extra": (tile_of(table, slice(75, 225), slice(30, 60)),)},
        "mean", "", "classification",
    )  # fmt: skip
    terms = Terms(ciphers=("plain",), allow_pairs=True)
    told, true = {}, {}

    def after(party, at, message, reply):
        if at == phase and "z" in reply:
            words = words_of(read_block(reply["z"], "z"), "z").view(np.int64).ravel()
            unit = FixedPoint(1.5 * party.view.row_holders, "z").unit * message["unit"]
            told[party.name] = words * unit
            true[party.name] = party.data.table.squares[: party.view.n_shared_rows, 0]

    settings = Settings(lam=1e-2, gap=None, iterations=1, cipher="plain")
    how = Preprocessing(scaling="standard", unit_rows=True, intercept=True)
    with watched(after):
        federation, trained = train(split, settings, terms, how)
    assert trained.settings.norms == "cohort"
    assert set(told) == set(split.parties)
    several = 0
    for name, values in told.items():
        party_view = federation.parties[name].view
        for begin, end in zip(party_view.shared_rows[:-1], party_view.shared_rows[1:], strict=True):
            (value,), largest = np.unique(values[begin:end]), true[name][begin:end].max()
            assert value >= largest * (1 - 1e-9)
            assert value <= largest * np.sqrt(2) * (1 + 1e-9)
            # The bound is a power of √2: so many bits it has, and no more.
            power = 2 * np.log2(value)
            assert power == pytest.approx(round(power), abs=1e-6)
            several += len(np.unique(true[name][begin:end])) > 1
    assert several >= len(told)
