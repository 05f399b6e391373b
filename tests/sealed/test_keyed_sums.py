"""Keyed sums beside what is opened: which changes they tell, and how surely."""

from __future__ import annotations

import numpy as np
import pytest

from weft.crypto.opening_pads import CHUNK, SUMS, keyed_sums
from weft.crypto.primitives.seeded_words import seeded_words


def words(number, *shape):
    return seeded_words(b"k" * 32, str(number), *shape)


@pytest.mark.parametrize("count", [1, 1023, 1025, CHUNK, 2 * CHUNK + 7])
def test_sums_are_those_of_shifted_keys(count):
    keys, told = words(1, CHUNK + SUMS - 1), words(2, count)
    expected = [
        [(keys[s : s + len(part)] * part).sum() for s in range(SUMS)]
        for part in (told[at : at + CHUNK] for at in range(0, count, CHUNK))
    ]
    assert np.array_equal(keyed_sums(told, keys), np.array(expected))


@pytest.mark.parametrize("places", [[0], [5, 6], [0, 1, 2, 3, 9, 40]])
def test_a_change_of_highest_bits_is_told_by_each_sum_in_half_of_all_cases(places):
    """Over 2,000 keys all 16 sums are fair coins, and any two of them independent."""
    change = np.zeros(64, np.uint64)
    change[places] = 1 << 63
    drawn = words(3, 2000, 64 + SUMS - 1)
    told = np.array([keyed_sums(change, keys)[0] for keys in drawn]) >> np.uint64(63)
    assert np.abs(told.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(drawn))
    together = np.corrcoef(told.astype(float).T) - np.eye(SUMS)
    assert np.abs(together).max() < 5 / np.sqrt(len(drawn))
