"""What Hypothesis is told, it would have found."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from covering import changing
from hypothesis_start import UTF_8, find_intervals


@pytest.mark.release
def test_utf_8_is_as_hypothesis_finds_it():
    found = find_intervals("utf-8")
    assert [part.intervals for part in found] == [part.intervals for part in UTF_8]


def test_texts_are_drawn_from_what_was_told():
    find_intervals.cache_clear()
    st.text().validate()
    assert find_intervals.cache_info().misses == 0


def test_literals_are_drawn_before_a_release_only():
    assert changing() == (len(providers._get_local_constants()) == 0)
