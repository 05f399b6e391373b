"""Products of a table whose rows stay as its file has them are those of the rows by slot."""

from __future__ import annotations

import numpy as np
import pytest

from weft.guards import replace_rare_column_values as guard
from weft.sums import party_table_products
from weft.sums.party_table_products import DensePiece, LocalTable


@pytest.mark.parametrize("width", [1, 6])
@pytest.mark.parametrize("columns", [[0, 1, 2, 3], [4, 0, 2, 1]])
def test_rows_in_any_order_give_the_same_products(width, columns):
    random = np.random.default_rng(0)
    n, m = 30, 5
    slots = random.permutation(n).astype(np.int32)
    block = random.normal(size=(n, len(columns)))
    by_slot = np.zeros((n, m))
    by_slot[slots[:, None], columns] = block
    piece = DensePiece(block, slots, np.array(columns, np.int32), n, m)
    squares = np.zeros((n, 1))
    piece.squares(None, squares)
    table = LocalTable(n, m, [piece], squares)
    w, change = random.normal(size=(m, width)), random.normal(size=(n, width))
    some = random.permutation(n)[:7].astype(np.int32)
    for rows, chosen in ((None, slice(None)), (some, some)):
        np.testing.assert_allclose(table.products(rows, w), by_slot[chosen] @ w, atol=1e-13)
        v = np.ones((m, width))
        table.accumulate(rows, change[chosen], v)
        np.testing.assert_allclose(v, 1 + by_slot[chosen].T @ change[chosen], atol=1e-13)
    np.testing.assert_allclose(squares[:, 0], (by_slot**2).sum(axis=1), atol=1e-13)
    np.testing.assert_array_equal(table.dense(), by_slot)


@pytest.mark.parametrize("width", [1, 6])
def test_cells_in_single_precision_are_multiplied_in_double(width, monkeypatch):
    """Products are those of the same numbers in float64, also where they are made band by band."""
    monkeypatch.setattr(party_table_products, "_AT_ONCE", 40)
    random = np.random.default_rng(2)
    n, m = 30, 5
    slots, columns = random.permutation(n).astype(np.int32), np.arange(m, dtype=np.int32)
    short = (1e3 * random.normal(size=(n, m))).astype(np.float32)
    cells = np.zeros((n, m))
    cells[slots] = short
    table = LocalTable(n, m, [DensePiece(short, slots, columns, n, m)])
    w, change = random.normal(size=(m, width)), random.normal(size=(n, width))
    some = random.permutation(n)[:7].astype(np.int32)
    for rows, chosen in ((None, slice(None)), (some, some)):
        np.testing.assert_allclose(table.products(rows, w), cells[chosen] @ w, rtol=1e-11)
        v = np.zeros((m, width))
        table.accumulate(rows, change[chosen], v)
        np.testing.assert_allclose(v, cells[chosen].T @ change[chosen], rtol=1e-11)
    np.testing.assert_allclose(table.squares[:, 0], (cells**2).sum(axis=1), rtol=1e-14)
    np.testing.assert_array_equal(table.dense(), cells)
    np.testing.assert_array_equal(table.compressed().toarray(), cells)


def test_rare_columns_are_found_band_by_band(monkeypatch):
    """Columns in which none, one, three, most and all of the rows differ; the last rows too."""
    random = np.random.default_rng(1)
    block = np.zeros((60, 6))
    block[55, 1] = 1.0
    block[[2, 30, 59], 2] = np.nan
    block[:40, 3] = 2.0
    block[:, 4] = random.normal(size=60)
    block[57:, 5] = 3.0
    group = np.zeros(60, np.int64)
    expected = guard.rare_columns(block, group, 4)
    monkeypatch.setattr(guard, "_AT_ONCE", 8)
    assert guard.rare_columns(block, group, 4).tolist() == expected.tolist()
    assert expected.tolist() == [[False, True, True, False, False, True]]
