"""Applying agreed shifts and factors to tiles and matrices."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from weft.data import ColumnScaling, Tile
from weft.errors import DataError


def scaling(shift, factor):
    names = np.array([f"x{j}" for j in range(len(shift))], dtype=object)
    return ColumnScaling(names, np.array(shift, dtype=float), np.array(factor, dtype=float))


def test_tile_is_scaled_by_feature_name_and_missing_cells_become_the_centre():
    tile = Tile.make(["a", "b"], ["x2", "x0"], [[1.0, 5.0], [np.nan, 7.0]], [0, 1], "n.csv")
    scaled = scaling([5, 0, 1], [2, 1, 10]).apply(tile)
    assert scaled.block.tolist() == [[0, 0], [0, 4]]
    assert scaled.labels is tile.labels
    assert np.isnan(tile.block[1, 0])


def test_sparse_tile_is_multiplied_and_shares_its_pattern():
    block = sp.csr_array(np.array([[0, 2.0], [3.0, np.nan]]))
    tile = Tile.make(["a", "b"], ["x0", "x1"], block)
    scaled = scaling([0, 0], [2, 0.5]).apply(tile)
    assert scaled.block.toarray().tolist() == [[0, 1], [6, 0]]
    assert np.shares_memory(scaled.block.indices, tile.block.indices)


def test_centring_a_sparse_tile_is_refused_by_party_and_column():
    tile = Tile.make(["a"], ["x0", "x1"], sp.csr_array(np.ones((1, 2))), source="n.npz")
    with pytest.raises(DataError, match=r"party 'north', n\.npz: column 'x1'.*'maxabs'"):
        scaling([0, 3], [1, 1]).apply(tile, "north")


def test_unknown_column_is_refused():
    with pytest.raises(DataError, match=r"party 'north': column 'age' is not among the 1"):
        scaling([0], [1]).apply(Tile.make(["a"], ["age"], [[1]]), "north")


def test_scalings_that_make_no_sense_are_refused():
    with pytest.raises(DataError, match="one of each per feature"):
        scaling([0, 1], [1])
    with pytest.raises(DataError, match=r"column 'x1' is not finite"):
        scaling([0, 1], [1, np.inf])


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(0.1, 9)), min_size=1, max_size=5))
def test_a_scaling_from_json_gives_the_same_values(columns):
    first = scaling(*zip(*columns, strict=True))
    second = ColumnScaling.from_json(json.loads(json.dumps(first.to_json())))
    matrix = np.arange(3.0 * len(columns)).reshape(3, -1)
    tile = Tile.make(range(3), first.features, matrix)
    assert np.array_equal(first.apply(tile).block, second.apply(tile).block)
