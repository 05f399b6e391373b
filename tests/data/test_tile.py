"""Tiles and tables: what they accept, what they refuse, what they share."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from weft.data import Table, Tile, settle_missing
from weft.data.apply_scaling import ColumnScaling
from weft.errors import DataError


def tile(cells, **changes):
    parts = {
        "ids": [f"s{i}" for i in range(len(cells))],
        "features": [f"x{j}" for j in range(len(cells[0]))],
        "block": cells,
        "source": "north.csv",
    }
    return Tile.make(**(parts | changes))


def test_make_takes_lists_series_and_frames():
    frame = pd.DataFrame({"id": [7, 8], "a": [1, 2], "b": [0.5, None]})
    made = Tile.make(frame["id"], ["a", "b"], frame[["a", "b"]], pd.Series(["yes", None]))
    assert made.ids.tolist() == ["7", "8"]
    assert made.block.dtype == np.float64
    assert made.block.flags.c_contiguous
    assert made.labelled.tolist() == [True, False]
    assert np.isnan(made.block).sum() == 1
    assert (made.n, made.m, made.is_sparse) == (2, 2, False)


def test_make_keeps_arrays_that_are_already_right():
    block = np.ones((2, 3))
    ids = np.array(["a", "b"], dtype=object)
    made = Tile.make(ids, ["x", "y", "z"], block)
    assert made.block is block
    assert made.ids is ids


def test_make_brings_other_sparse_formats_into_canonical_csr():
    scattered = sp.coo_matrix(([1.0, 2.0, 3.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    made = Tile.make(["a", "b"], ["x", "y"], scattered)
    assert made.is_sparse
    assert isinstance(made.block, sp.csr_array)
    assert made.block.toarray().tolist() == [[0, 3], [3, 0]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ids": ["s0", "s0"]}, ["north.csv", "sample id 's0'", "more than once"]),
        ({"ids": ["s0", ""]}, ["north.csv", "sample id at position 2", "empty"]),
        ({"ids": ["s0", None]}, ["north.csv", "sample id at position 2", "missing"]),
        ({"ids": ["s0", 1.5]}, ["sample id 1.5", "whole number"]),
        ({"ids": "ab"}, ["sample ids", "list"]),
        ({"ids": np.array([["s0", "s1"]])}, ["sample ids", "flat"]),
        ({"features": ["x", "x"]}, ["feature name 'x'", "more than once"]),
        ({"features": ["x"]}, ["1 feature names", "(2, 2)"]),
        ({"block": [[1, 2], [np.inf, 3]]}, ["column 'x0'", "infinite", "sample 's1'"]),
        ({"block": [["a", 2], [1, 3]]}, ["not all numbers"]),
        ({"labels": [1]}, ["labels of shape (1,)", "2 samples"]),
        ({"labels": [1.0, np.inf]}, ["label of sample 's1'", "infinite"]),
    ],
)
def test_refuses_bad_parts_in_one_sentence(changes, words):
    with pytest.raises(DataError) as refusal:
        tile([[1, 2], [3, 4]], **changes)
    for word in words:
        assert word in str(refusal.value)


def test_infinite_value_of_a_sparse_tile_is_found():
    block = sp.csr_array(np.array([[0, 1.0], [0, 0], [0, -np.inf]]))
    with pytest.raises(DataError, match=r"column 'y' is infinite for sample 'c'"):
        Tile.make(["a", "b", "c"], ["x", "y"], block)


def test_values_that_only_overflow_when_summed_are_accepted():
    assert tile([[1e308, 1e308], [1e308, 1e308]]).n == 2


def test_constructor_refuses_arrays_that_need_conversion():
    names = np.array(["a", "b"], dtype=object)
    with pytest.raises(DataError, match=r"Tile\.make"):
        Tile(names, names, np.ones((2, 2), dtype=np.int64))
    with pytest.raises(DataError, match=r"Tile\.make"):
        Tile(names, names, np.ones((2, 2), dtype=np.float16))
    with pytest.raises(DataError, match=r"Tile\.make"):
        Tile(names.astype(str), names, np.ones((2, 2)))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (None, [False, False, False]),
        ([1, 0, 1], [True, True, True]),
        ([1.0, np.nan, 0.0], [True, False, True]),
        (["yes", "", None], [True, False, False]),
        ([1, None, 0], [True, False, True]),
    ],
)
def test_missing_labels_mark_unlabelled_samples(labels, expected):
    assert tile([[1], [2], [3]], labels=labels).labelled.tolist() == expected


def test_numbers_among_missing_labels_stay_numbers():
    assert tile([[1], [2]], labels=[1, None]).labels.dtype == np.float64


@given(
    arrays(np.float64, array_shapes(min_dims=2, max_dims=2), elements=st.floats(-9, 9)), st.data()
)
def test_rows_and_columns_pick_the_same_cells_dense_and_sparse(block, data):
    rows = np.array(data.draw(st.permutations(range(block.shape[0]))), dtype=int)[:3]
    columns = np.array(data.draw(st.permutations(range(block.shape[1]))), dtype=int)[:3]
    for values in (block, sp.csr_array(block)):
        part = tile(block, block=values, labels=np.arange(len(block))).rows(rows).columns(columns)
        dense = part.block.toarray() if part.is_sparse else part.block
        assert np.array_equal(dense, block[np.ix_(rows, columns)])
        assert part.ids.tolist() == [f"s{i}" for i in rows]
        assert part.features.tolist() == [f"x{j}" for j in columns]
        assert part.labels.tolist() == rows.tolist()


def test_a_slice_of_rows_is_a_view():
    whole = tile([[1, 2], [3, 4], [5, 6]])
    assert np.shares_memory(whole.rows(slice(1, 3)).block, whole.block)


@pytest.mark.parametrize("form", [np.array, sp.csr_array])
def test_missing_cells_are_refused_by_name_zeroed_or_left(form):
    gappy = tile([[1.0, 2.0], [3.0, np.nan]], block=form(np.array([[1.0, 2.0], [3.0, np.nan]])))
    with pytest.raises(DataError) as refusal:
        settle_missing(gappy, party="north")
    for word in ("party 'north'", "north.csv", "column 'x1'", "sample 's1'", "'zero' or 'mean'"):
        assert word in str(refusal.value)
    zeroed = settle_missing(gappy, "zero").block
    assert (zeroed if form is np.array else zeroed.toarray()).tolist() == [[1, 2], [3, 0]]
    assert np.isnan(gappy.block if form is np.array else gappy.block.toarray()).sum() == 1
    assert settle_missing(gappy, "mean") is gappy
    with pytest.raises(DataError, match="policy"):
        settle_missing(gappy, "median")


def test_a_tile_without_missing_cells_is_passed_through():
    whole = tile([[1, 2]])
    assert settle_missing(whole) is whole


def test_table_becomes_a_tile_that_shares_its_arrays():
    made = tile([[1, 2], [3, 4]], labels=[0, 1])
    table = Table(made.ids, made.features, made.block, made.labels, "classification", "toy")
    assert table.to_tile().block is table.block
    assert table.to_tile().source == "toy"
    assert table.rows(slice(1, 2)).labels.tolist() == [1]
    assert (table.n, table.m, table.is_sparse) == (2, 2, False)


def test_thousands_of_tiles_are_made_in_well_under_a_second():
    ids = np.array([str(i) for i in range(5000 * 48)], dtype=object)
    features = np.array([f"x{j}" for j in range(196)], dtype=object)
    block = np.ones((48, 196))
    started = time.process_time()
    for number in range(5000):
        Tile(ids[number * 48 : (number + 1) * 48], features, block)
    assert time.process_time() - started < 1


def test_single_precision_keeps_24_bits_of_dense_cells_through_scaling():
    block = np.array([[1 / 3, 1e-3], [np.nan, 7.0], [-2.5, 0.1]])
    tile = Tile.make(["a", "b", "c"], ["x", "y"], block).in_single_precision()
    assert tile.block.dtype == np.float32
    np.testing.assert_array_equal(tile.block, block.astype(np.float32))
    assert settle_missing(tile, "zero").block.dtype == np.float32
    shift, factor = np.array([0.1, 0.2]), np.array([3.0, 1 / 7])
    scaled = ColumnScaling(tile.features, shift, factor).apply(tile).block
    assert scaled.dtype == np.float32
    in_double = np.nan_to_num((tile.block.astype(np.float64) - shift) * factor)
    np.testing.assert_array_equal(scaled, in_double.astype(np.float32))


def test_single_precision_leaves_sparse_tiles_as_they_are():
    tile = Tile.make(["a"], ["x"], sp.csr_array([[1 / 3]]))
    assert tile.in_single_precision() is tile


DAY = 20_240_101.0


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([1.7e9, 1.7e9 + 60], "would move by up to"),
        ([0.0, 1.7e9, 1.7e9 + 30, 1.7e9 + 60], "would move by up to"),
        ([0.0, DAY, DAY + 1, DAY + 2], "would move by up to"),
        ([0.0] * 50 + [1.7e9 + 7 * k for k in range(40)], "would move by up to"),
        ([0.0, 2.0**24, 2.0**24 + 1], "would move by up to"),
        ([0.0, 1e-46], "a value of size 1e-46"),
        ([1e-44, 1.7e-44], "a value of size 1e-44"),
        ([0.0, 1e39], r"a value of size 1e\+39"),
        ([-1e300, -1e300], r"a value of size 1e\+300"),
    ],
)
def test_single_precision_refuses_columns_that_it_cannot_keep(values, why):
    ids = [f"s{k}" for k in range(len(values))]
    tile = Tile.make(ids, ["kept", "when"], np.array([[1.0, v] for v in values]), source="f")
    with pytest.raises(DataError, match=f"f: column 'when' has .*{why}.*leave storage") as told:
        tile.in_single_precision()
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "values",
    [
        [2024.0, 2025.0],
        [0.0, DAY - 1, DAY + 1],
        [1.7e9 + 1] * 3,
        [0.1, np.nan, 7.0],
        [np.nan, np.nan],
        [0.0, 2.0**-36, -(2.0**36)],
    ],
)
def test_single_precision_keeps_what_is_exact_or_hardly_moved(values):
    column = np.array(values)[:, None]
    ids = [f"s{k}" for k in range(len(values))]
    kept = Tile.make(ids, ["x"], column).in_single_precision().block
    np.testing.assert_allclose(kept, column, rtol=2.0**-24)
