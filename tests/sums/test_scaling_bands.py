"""Moments of columns, band by band: no bit of them changes, and no copy of a table is made."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from covering import examples
from weft.sums import scaling_party
from weft.sums.scaling_party import ScalingParty


class OnlyMoments(ScalingParty):
    """Scaling without the sums over parties."""

    def __init__(self, block):
        n, m = block.shape
        self._view = SimpleNamespace(
            n_columns=m,
            n_samples=n,
            n_shared_columns=0,
            tile_columns=[np.arange(m, dtype=np.int32)],
            tile_rows=[np.arange(n)],
            cell_holders=None,
        )
        self._blocks = [block]
        self._mean = np.full(m, 0.25)

    def moments(self):
        self._moment(lambda x, columns: (x, x * x), SimpleNamespace(v_pads=None))
        return self._part


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 200), st.integers(1, 300))
@examples(60)
def test_sums_of_bands_have_the_bits_of_sums_of_all_rows(seed, m, n, at_once):
    random = np.random.default_rng(seed)
    block = random.normal(size=(n, m)) * 10.0 ** random.integers(-5, 5, (n, m))
    block[random.random((n, m)) < 0.1] = np.nan
    known = ~np.isnan(block)
    filled = np.where(known, block, 0.25)
    expected = [(values * known).sum(axis=0) / n for values in (filled, filled * filled)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaling_party, "_AT_ONCE", at_once)
        assert np.array_equal(OnlyMoments(block).moments(), np.stack(expected, axis=1))
        sparse = OnlyMoments(sp.csr_array(block)).moments()
    assert np.array_equal(sparse, np.stack(expected, axis=1))


def test_moments_of_a_large_block_take_a_part_of_its_memory():
    block = np.ones((150_000, 20))
    # What is compiled and loaded at first takes three times as long where memory is traced.
    OnlyMoments(block[:10]).moments()
    tracemalloc.start()
    try:
        OnlyMoments(block).moments()
        assert tracemalloc.get_traced_memory()[1] < block.nbytes
    finally:
        tracemalloc.stop()
