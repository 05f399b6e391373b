"""What is quick for few numbers says what numpy says."""

from __future__ import annotations

import numpy as np
import pytest

from weft.fast_small_array_operations import among, cut, side_by_side


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint64])
@pytest.mark.parametrize(("values", "known"), [(0, 5), (5, 0), (1, 1), (40, 25), (3_000, 25)])
def test_the_same_numbers_are_known_as_numpy_finds(kind, values, known):
    random = np.random.default_rng(values + known)
    numbers, others = (random.integers(0, 60, size).astype(kind) for size in (values, known))
    before = others.copy()

    found = among(numbers, others)

    assert found.dtype == bool
    assert found.tolist() == [number in set(before.tolist()) for number in numbers.tolist()]
    assert others.tolist() == before.tolist()


def test_tokens_that_differ_in_the_last_bit_are_others():
    tokens = np.array([2**63, 2**63 + 1, 2**64 - 1], np.uint64)

    assert among(tokens, tokens[1:2]).tolist() == [False, True, False]


@pytest.mark.parametrize("lengths", [[], [3], [0, 2, 0, 1], [1, 1, 1]])
def test_parts_have_their_lengths_and_cover_everything(lengths):
    values = np.arange(sum(lengths))

    parts = cut(values, np.array(lengths, np.int64))

    assert [len(part) for part in parts] == lengths
    assert [value for part in parts for value in part.tolist()] == values.tolist()


@pytest.mark.parametrize(("columns", "width"), [(6, 2), (3, 3), (4, 1)])
def test_parts_side_by_side_are_those_that_numpy_cuts(columns, width):
    table = np.arange(5.0 * columns).reshape(5, columns)

    parts = side_by_side(table, width)

    expected = np.split(table, columns // width, axis=1)
    assert [part.tolist() for part in parts] == [part.tolist() for part in expected]
    assert all(part.base is not None for part in parts)


@pytest.mark.parametrize("columns", [0, 5])
def test_what_cannot_be_cut_into_such_parts_is_refused(columns):
    with pytest.raises(ValueError, match=f"{columns} columns"):
        side_by_side(np.zeros((3, columns)), 2)
