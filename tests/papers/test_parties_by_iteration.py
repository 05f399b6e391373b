"""Draws of many iterations at once are those of each iteration, which NumPy's generators make."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from weft.solvers.participation import Cyclic, RandomFraction
from weft_papers.hyfdca.participation_draws_in_bulk import drawn_at_once


@given(
    parties=st.integers(1, 600),
    fraction=st.floats(0.001, 1.0),
    seed=st.integers(0, 2**32 - 1),
    first=st.integers(1, 2**32 - 40),
)
@example(parties=144, fraction=0.1, seed=0, first=12_000_000)
@example(parties=1, fraction=1.0, seed=0, first=1)
@example(parties=5000, fraction=0.9, seed=3, first=1)
def test_draws_are_those_of_each_iteration(parties, fraction, seed, first):
    participation = RandomFraction(tuple(range(parties)), fraction, seed)
    iterations = range(first, first + 20)
    found = drawn_at_once(participation, iterations)
    expected = [participation.present(t) for t in iterations]
    np.testing.assert_array_equal(found, expected)


def test_what_is_drawn_otherwise_is_asked_for_each_iteration():
    names = tuple(map(str, range(4)))
    assert drawn_at_once(Cyclic(names, 2), range(1, 5)) is None
    assert drawn_at_once(RandomFraction(names, 0.5, 2**32), range(1, 5)) is None
    assert drawn_at_once(RandomFraction(names * 2501, 0.5), range(1, 5)) is None
