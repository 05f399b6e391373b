"""Pooling: one value per cell under each overlap rule, dense and sparse alike."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from weft.data import Split, Tile, pool
from weft.errors import DataError


def two_holders(overlap, form=np.array):
    """Two parties that share the cell (b, y): 4 at the first and 6, or 0, at the second."""
    first = Tile.make(["a", "b"], ["x", "y"], form(np.array([[1.0, 2.0], [3.0, 4.0]])), [0, 1])
    second = Tile.make(["b", "c"], ["y", "z"], form(np.array([[6.0, 7.0], [8.0, 9.0]])), [1, 0])
    return Split({"north": (first,), "south": (second,)}, overlap, "by hand")


@pytest.mark.parametrize("form", [np.array, sp.csr_array])
@pytest.mark.parametrize(("overlap", "shared"), [("mean", 5.0), ("first", 4.0), ("sum", 10.0)])
def test_shared_cell_follows_the_overlap_rule_and_unheld_cells_are_zero(overlap, shared, form):
    table = pool(two_holders(overlap, form))
    assert table.ids.tolist() == ["a", "b", "c"]
    assert table.features.tolist() == ["x", "y", "z"]
    block = table.block.toarray() if table.is_sparse else table.block
    assert block.tolist() == [[1, 2, 0], [3, shared, 7], [0, 8, 9]]
    assert table.is_sparse == (form is sp.csr_array)
    assert table.labels.tolist() == [0, 1, 0]


@st.composite
def random_splits(draw, sparse):
    """Random overlapping tiles with different values at different holders."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    parties = {}
    for number in range(draw(st.integers(1, 5))):
        rows = np.flatnonzero(rng.random(6) < 0.6)
        columns = np.flatnonzero(rng.random(5) < 0.6)
        block = rng.normal(size=(len(rows), len(columns))) * (rng.random((1, len(columns))) < 0.7)
        parties[f"p{number}"] = (rows, columns, block)
    form = sp.csr_array if sparse else np.array
    overlap = draw(st.sampled_from(["mean", "first", "sum"]))
    tiles = {name: (Tile.make(r, c, form(b), r % 2),) for name, (r, c, b) in parties.items()}
    return Split(tiles, overlap, "random")


@given(random_splits(sparse=True))
def test_sparse_and_dense_pooling_agree(split):
    tiles = {
        name: tuple(Tile.make(t.ids, t.features, t.block.toarray(), t.labels) for t in held)
        for name, held in split.parties.items()
    }
    sparse, dense = pool(split), pool(Split(tiles, split.overlap, split.note))
    assert sparse.ids.tolist() == dense.ids.tolist()
    assert np.allclose(sparse.block.toarray(), dense.block, rtol=1e-14, atol=1e-15)


def test_labels_come_from_whoever_holds_them():
    silent = Tile.make(["a", "b"], ["x"], [[1], [2]])
    partial = Tile.make(["b", "c"], ["y"], [[3], [4]], ["yes", None])
    table = pool(Split({"north": (silent,), "south": (partial,)}, "mean", ""))
    assert table.labels.tolist() == [None, "yes", None]


def test_contradicting_labels_are_refused_by_party_and_sample():
    one = Tile.make(["a", "b"], ["x"], [[1], [2]], [0, 1])
    other = Tile.make(["b"], ["y"], [[1]], [0], "south.csv")
    with pytest.raises(DataError, match=r"party 'south', south\.csv.*sample 'b'"):
        pool(Split({"north": (one,), "south": (other,)}, "mean", ""))


def test_an_empty_split_is_refused():
    with pytest.raises(DataError, match="no tiles"):
        pool(Split({}, "mean", ""))
