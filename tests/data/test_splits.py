"""Cuttings: every cell is where it was promised, and pooling gives the table back."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.data import SPLITS, Table, load, pool
from weft.data.splits import columns, grid, overlapping, rows
from weft.errors import DataError
from weft_papers.data.splits import class_blocks, dealt, quadrants, sorted_response

ARGUMENTS = {
    "rows": {"parties": 4},
    "columns": {"parties": 4},
    "grid": {"k": 3, "q": 2},
    "overlapping": {"parties": 5},
    "quadrants": {"parties": 5},
    "dealt": {"k": 3, "q": 4},
    "class_blocks": {
        "parties": 6,
        "classes_per_party": 4,
        "blocks": 8,
        "blocks_per_party": 3,
    },
    "sorted_response": {"parties": 7},
}
ONCE = ("rows", "columns", "grid", "quadrants", "dealt", "sorted_response")


@pytest.fixture(scope="module")
def digits():
    return load("digits")


@st.composite
def tables(draw):
    n, m = draw(st.integers(1, 12)), draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    block = rng.normal(size=(n, m)) * (rng.random((n, m)) < 0.6)
    ids = np.array([f"s{i}" for i in range(n)], dtype=object)
    features = np.array([f"x{j}" for j in range(m)], dtype=object)
    values = sp.csr_array(block) if draw(st.booleans()) else block
    return Table(ids, features, values, rng.integers(0, 3, n), "classification", "random")


def dense(table):
    return table.block.toarray() if table.is_sparse else table.block


def assert_pools_to(split, table, extra=()):
    """The pooled table has the table's cells and labels, and perhaps extra columns."""
    pooled = pool(split)
    row = {sample: i for i, sample in enumerate(pooled.ids)}
    column = {name: j for j, name in enumerate(pooled.features)}
    block, missing = dense(pooled), len(column)
    padded = np.hstack([block, np.zeros((len(block), 1))])
    order = [row[sample] for sample in table.ids]
    # A feature without any non-zero is dealt to nobody, and so counts as zero.
    places = [column.get(name, missing) for name in table.features]
    assert np.array_equal(padded[np.ix_(order, places)], dense(table))
    assert set(column) - set(table.features) == set(extra)
    assert np.array_equal(pooled.labels[order], table.labels)
    return pooled


def holders(split, table):
    """How many tiles hold each cell of the table."""
    row = {sample: i for i, sample in enumerate(table.ids)}
    column = {name: j for j, name in enumerate(table.features)}
    count = np.zeros((table.n, table.m), dtype=int)
    for _, tile in split.tiles():
        known = [column[name] for name in tile.features if name in column]
        count[np.ix_([row[sample] for sample in tile.ids], known)] += 1
    return count


def test_every_split_is_registered_and_tested():
    assert set(SPLITS) == set(ARGUMENTS)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_same_seed_gives_the_same_split(name, digits):
    seeded = {"seed": 3} if "seed" in inspect.signature(SPLITS[name]).parameters else {}
    first, second = (SPLITS[name](digits, **ARGUMENTS[name], **seeded) for _ in range(2))
    assert list(first.parties) == list(second.parties)
    assert first.note == second.note
    for (_, one), (_, other) in zip(first.tiles(), second.tiles(), strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.features.tolist() == other.features.tolist()
        assert np.array_equal(dense(one), dense(other))


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name != "quadrants"])
def test_another_seed_gives_another_split(name, digits):
    first, second = (SPLITS[name](digits, **ARGUMENTS[name], seed=seed) for seed in (1, 2))
    assert any(
        one.ids.tolist() != other.ids.tolist() or one.features.tolist() != other.features.tolist()
        for (_, one), (_, other) in zip(first.tiles(), second.tiles(), strict=True)
    )


@pytest.mark.parametrize("labels", ["all", "first"])
@pytest.mark.parametrize("name", ONCE)
def test_cutting_without_overlap_pools_back_to_the_table(name, labels, digits):
    split = SPLITS[name](digits, **ARGUMENTS[name], labels=labels)
    assert_pools_to(split, digits, extra=["bias"] if name == "quadrants" else [])
    if name != "dealt":
        assert (holders(split, digits) == 1).all()


@pytest.mark.parametrize("name", ARGUMENTS)
def test_labels_at_the_first_holder_come_exactly_once(name, digits):
    split = SPLITS[name](digits, **ARGUMENTS[name], labels="first")
    given_out = [sample for _, tile in split.tiles() for sample in tile.ids[tile.labelled]]
    held = {sample for _, tile in split.tiles() for sample in tile.ids}
    assert len(given_out) == len(held)
    assert set(given_out) == held


@pytest.mark.parametrize("name", ARGUMENTS)
def test_labels_at_all_holders_are_those_of_the_table(name, digits):
    label = dict(zip(digits.ids, digits.labels, strict=True))
    for _, tile in SPLITS[name](digits, **ARGUMENTS[name]).tiles():
        assert tile.labels.tolist() == [label[sample] for sample in tile.ids]


@given(tables(), st.data())
def test_grid_gives_every_cell_to_one_party(table, data):
    k, q = data.draw(st.integers(1, table.n)), data.draw(st.integers(1, table.m))
    split = grid(table, k, q, seed=data.draw(st.none() | st.integers(0, 9)))
    assert list(split.parties) == [f"r{i}c{j}" for i in range(1, k + 1) for j in range(1, q + 1)]
    assert (holders(split, table) == 1).all()
    assert_pools_to(split, table)
    sizes = [tile.n for _, tile in split.tiles()]
    assert max(sizes) - min(sizes) <= 1


def test_contiguous_rows_are_views_of_the_table(digits):
    for _, tile in rows(digits, 3).tiles():
        assert np.shares_memory(tile.block, digits.block)


def test_columns_leave_the_labels_with_the_first_party(digits):
    split = columns(digits, 3, labels="first")
    assert [tile.labels is not None for _, tile in split.tiles()] == [True, False, False]


@pytest.mark.parametrize("parties", [1, 3, 4, 5, 8, 400])
def test_quadrants_deal_every_sample_quadrant_once(parties, digits):
    digits = digits.rows(slice(0, 100))
    split = quadrants(digits, parties)
    assert len(split.parties) == parties
    pooled = assert_pools_to(split, digits, extra=["bias"])
    assert (pooled.block[:, pooled.features.tolist().index("bias")] == 10).all()
    sizes = [sum(tile.n for tile in tiles) for tiles in split.parties.values()]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == 4 * digits.n


def test_quadrants_with_five_parties_span_two_quadrants_each(digits):
    split = quadrants(digits.rows(slice(0, 1000)), 5)
    shapes = [[(tile.n, tile.m) for tile in tiles] for tiles in split.parties.values()]
    assert shapes == [
        [(800, 16)],
        [(200, 16), (600, 16)],
        [(400, 16), (400, 16)],
        [(600, 16), (200, 17)],
        [(800, 17)],
    ]
    corner = split.parties["p2"][1].features.tolist()
    assert corner[:5] == ["r0c4", "r0c5", "r0c6", "r0c7", "r1c4"]


def test_quadrants_of_mnist_for_five_thousand_parties_are_views(mnist):
    """The table is put in order once, and nothing is copied for single parties."""
    split = quadrants(mnist, 5000)
    assert {(tile.n, tile.m) for _, tile in split.tiles()} == {(48, 196), (48, 197)}
    tiles = [tile for _, tile in split.tiles()]
    assert len({id(tile.block.base) for tile in tiles}) <= 4
    assert len({id(tile.features) for tile in tiles}) <= 4
    first, second = split.parties["p1"][0], split.parties["p2"][0]
    assert first.block.base is second.block.base
    assert first.features is second.features


@pytest.mark.parametrize(("bias", "columns"), [(0.0, 64), (2.5, 65)])
def test_quadrants_bias_can_be_changed_or_left_out(bias, columns, digits):
    assert pool(quadrants(digits, 4, bias=bias)).m == columns


@settings(deadline=None)
@given(tables(), st.integers(1, 5), st.data())
def test_dealt_gives_each_party_an_even_share_of_each_sample(table, q, data):
    k = data.draw(st.integers(1, table.n))
    split = dealt(table, k, q, seed=data.draw(st.integers(0, 9)))
    assert len(split.parties) == k * q
    assert_pools_to(split, table)
    shares: dict[str, list[int]] = {}
    for _, tile in split.tiles():
        assert tile.is_sparse
        assert (np.bincount(tile.block.indices, minlength=tile.m) > 0).all()
        for sample, share in zip(tile.ids, np.diff(tile.block.indptr), strict=True):
            shares.setdefault(sample, []).append(int(share))
    assert all(len(share) == q and max(share) - min(share) <= 1 for share in shares.values())
    nonzeros = np.count_nonzero(dense(table))
    assert sum(map(sum, shares.values())) == nonzeros


def test_dealt_parties_of_a_group_hold_even_amounts(digits):
    split = dealt(digits, 3, 4)
    sizes = np.array([tile.block.nnz for _, tile in split.tiles()]).reshape(3, 4)
    assert (np.ptp(sizes, axis=1) <= 1).all()
    assert split.overlap == "sum"


@given(tables(), st.integers(1, 6), st.integers(0, 99))
def test_overlapping_cover_reaches_every_sample_and_feature(table, parties, seed):
    split = overlapping(table, parties, 0.3, 0.3, seed=seed)
    held = [tile for _, tile in split.tiles()]
    assert {sample for tile in held for sample in tile.ids} == set(table.ids)
    assert {name for tile in held for name in tile.features} == set(table.features)


def test_overlapping_without_cover_keeps_the_shares(digits):
    split = overlapping(digits, 3, 0.25, 0.5, cover=False)
    assert {(tile.n, tile.m) for _, tile in split.tiles()} == {(449, 32)}


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_overlapping_pools_to_the_held_cells_and_zero_elsewhere(digits, form):
    table = digits
    if form == "sparse":
        block = sp.csr_array(digits.block)
        table = Table(digits.ids, digits.features, block, digits.labels, "classification")
    split = overlapping(table, 4, 0.4, 0.4, seed=1)
    count = holders(split, table)
    assert count.min() == 0
    assert count.max() > 1
    expected = np.where(count > 0, digits.block, 0.0)
    masked = Table(table.ids, table.features, expected, table.labels, "classification")
    assert_pools_to(split, masked)
    assert pool(split).is_sparse == (form == "sparse")


def test_class_blocks_gives_whole_classes_and_whole_blocks(digits):
    split = class_blocks(digits, 6, classes_per_party=4, blocks=8, blocks_per_party=3)
    for _, tile in split.tiles():
        classes = np.unique(tile.labels)
        assert len(classes) == 4
        assert tile.n == np.isin(digits.labels, classes).sum()
        assert tile.m == 24
    holds = np.array([np.isin(np.arange(10), t.labels) for _, t in split.tiles()]).sum(axis=0)
    assert holds.min() >= 2
    assert holds.max() <= 3


def test_sorted_response_deals_unequal_runs_in_order():
    table = load("diabetes")
    split = sorted_response(table, 8, seed=1)
    labels = [tile.labels for _, tile in split.tiles()]
    assert np.array_equal(np.concatenate(labels), np.sort(table.labels))
    assert len({len(part) for part in labels}) > 4
    assert min(map(len, labels)) >= 1


@given(tables(), st.data())
def test_sorted_response_leaves_at_most_one_party_per_border_with_two_classes(table, data):
    parties = data.draw(st.integers(1, table.n))
    split = sorted_response(table, parties, seed=data.draw(st.integers(0, 99)))
    assert (holders(split, table) == 1).all()
    mixed = sum(len(np.unique(tile.labels)) > 1 for _, tile in split.tiles())
    assert mixed <= len(np.unique(table.labels)) - 1


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (lambda t: rows(t, 0), "0 groups"),
        (lambda t: rows(t, 2000), "1797 samples into 2000"),
        (lambda t: columns(t, 65), "64 features into 65"),
        (lambda t: grid(t, 2, 100), "64 features"),
        (lambda t: overlapping(t, 2, row_share=1.5), "row_share"),
        (lambda t: overlapping(t, 0), "0 parties"),
        (lambda t: dealt(t, 2, 0), "0 parties"),
        (lambda t: quadrants(load("diabetes"), 4), "no square image"),
        (lambda t: quadrants(t, 10**6), "sample-quadrants"),
        (lambda t: class_blocks(t, 3, 11, 4, 2), "11 of 10 classes"),
        (lambda t: class_blocks(load("diabetes"), 3, 1, 4, 2), "no classes"),
        (lambda t: sorted_response(t, 2000), "at most 1797"),
        (lambda t: rows(t, 3, labels="some"), "label rule 'some'"),
    ],
)
def test_impossible_cuttings_are_refused(cut, words, digits):
    with pytest.raises(DataError, match=words):
        cut(digits)
