"""Pairs are numbered as NumPy's sorting of them does."""

from __future__ import annotations

import numpy as np
import pytest

from weft.guards.distinct_pairs_with_counts import number_pairs


@pytest.mark.parametrize("spread", [3, 10**12])
def test_pairs_are_numbered_in_their_order(spread):
    random = np.random.default_rng(1)
    first, second = random.integers(-spread, spread, (2, 60))
    first, second = np.repeat(first, 4), np.tile(second, 4)
    number, counts = number_pairs(first, second)
    _, back, sizes = np.unique(
        np.stack([first, second]), axis=1, return_inverse=True, return_counts=True
    )
    assert np.array_equal(number, back.ravel())
    assert np.array_equal(counts, sizes)


def test_no_pairs_have_no_numbers():
    number, counts = number_pairs(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert len(number) == len(counts) == 0
