"""A block that equals the last of its kind says nothing new; any other one does."""

from __future__ import annotations

import numpy as np
import pytest

from weft.sums.count_sums_shown_to_party import News

#: Rows of a short block, and of a long one.
SIZES = (12, 20_001)


@pytest.mark.parametrize("rows", SIZES)
def test_an_equal_block_says_nothing_new(rows):
    news = News()
    values = np.random.default_rng(1).integers(-(2**48), 2**48, (rows, 1))
    assert news(None, values)
    assert not news(None, values.copy())
    assert not news(None, np.asfortranarray(np.hstack([values, values]))[:, :1])
    assert news(np.arange(rows, dtype=np.int32), values)


@pytest.mark.parametrize("rows", SIZES)
def test_zeros_before_anything_else_say_nothing(rows):
    news = News()
    assert not news(None, np.zeros((rows, 1), np.int64))
    assert news(None, np.ones((rows, 1), np.int64))
    assert news(None, np.zeros((rows, 1), np.int64))


@pytest.mark.parametrize("rows", SIZES)
def test_a_change_of_few_numbers_is_new(rows):
    news, random = News(), np.random.default_rng(2)
    values = random.integers(-(2**48), 2**48, (rows, 1))
    assert news(None, values)
    for place in (0, 1, 3, rows // 2, rows - 1):
        for changed in (-values[place, 0], values[place, 0] ^ 1, values[place, 0] ^ -(2**63)):
            other = values.copy()
            other[place] = changed
            assert news(None, other)
            assert news(None, values)


@pytest.mark.parametrize("rows", SIZES)
def test_the_same_numbers_in_another_order_are_new(rows):
    """Changes that would cancel in a sum, or in words beside each other."""
    news, values = News(), np.arange(1, rows + 1)[:, None]
    assert news(None, values)
    for a, b in ((0, 1), (0, 4), (1, 2), (rows - 2, rows - 1)):
        other = values.copy()
        other[[a, b]] = other[[b, a]]
        assert news(None, other)
        top = values.copy()
        top[[a, b]] ^= -(2**63)
        assert news(None, top)
        assert news(None, values)
    assert news(None, values.reshape(-1, 3))


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("apart", [1, 2, 4, 8])
def test_signs_and_single_digits_that_change_together_are_new(rows, apart):
    """Multiplication passes the highest bit on as it is, so that another change could undo it."""
    news, values = News(), np.random.default_rng(3).standard_normal((rows, 1))
    assert news(None, values)
    for bits in (1 << 31, 1 << 63, 1 << 63 | 1 << 31):
        other = values.copy()
        words = other.reshape(-1).view(np.uint64)
        words[0] ^= np.uint64(1 << 63)
        words[apart] ^= np.uint64(bits)
        assert news(None, other)
        assert news(None, values)
