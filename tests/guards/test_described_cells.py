"""What of a party's column may be told: no count, sum or edge is about a few cells."""

from __future__ import annotations

import numpy as np
import pytest

from weft.guards.cells_safe_to_describe import (
    ColumnLine,
    described_column,
    described_counts,
    described_levels,
)

LEAST = 10


def few(counts):
    """Counts that are of somebody, but of fewer than ten."""
    counts = np.asarray(counts)
    return counts[(counts > 0) & (counts < LEAST)]


def test_cells_that_hide_each_other_are_told_as_they_are():
    cells = np.random.default_rng(0).normal(50.0, 5.0, 300)
    told = described_column(cells, LEAST)
    assert told.blank == 0
    np.testing.assert_allclose(told.cells, np.sort(cells), atol=16 * 2.0**-16)


def test_a_few_blank_cells_count_as_the_median_and_a_few_known_ones_as_blank():
    cells = np.random.default_rng(1).normal(size=100)
    cells[:3] = np.nan
    told = described_column(cells, LEAST)
    assert (len(told.cells), told.blank) == (100, 0)
    assert np.isclose(np.median(told.cells), np.nanmedian(cells), atol=1e-2)
    cells[:12] = np.nan
    told = described_column(cells, LEAST)
    assert (len(told.cells), told.blank) == (88, 12)
    cells[9:] = np.nan
    assert (len(described_column(cells, LEAST).cells), described_column(cells, LEAST).blank) == (
        0,
        100,
    )


@pytest.mark.parametrize("ones", [0, 1, 9, 10, 90, 91, 99])
def test_the_sum_of_a_flag_is_of_nobody_or_of_ten(ones):
    flags = np.repeat([0.0, 1.0], [100 - ones, ones])
    told = int(described_column(flags, LEAST).cells.sum())
    assert told in (0, 100) if min(ones, 100 - ones) < LEAST else told == ones


@pytest.mark.parametrize("alike", [1, 6, 10])
def test_the_median_of_a_few_cells_is_not_told(alike):
    """Ten cells would all count as their median, which is the cell of one sample."""
    cells = np.append(np.random.default_rng(3).normal(size=9), np.full(alike, 0.123))
    told = described_column(cells, LEAST)
    assert (len(told.cells), told.blank) == ((0, len(cells)) if alike < LEAST else (len(cells), 0))
    assert set(told.cells.tolist()) <= {0.123}


def test_mean_and_spread_do_not_tell_how_many_have_a_rare_value():
    # Two sums and the number of cells would give the three counts.
    cells = np.repeat([0.0, 1.0, 2.0], [90, 7, 5])
    values, counts = np.unique(described_column(cells, LEAST).cells, return_counts=True)
    assert dict(zip(values.tolist(), counts.tolist(), strict=True)) == {0.0: 90, 1.0: 12}


def test_a_cell_far_out_is_in_no_sum_as_it_is():
    cells = np.append(np.random.default_rng(2).normal(size=200), [1e9])
    told = [described_column(np.append(cells[:-1], far), LEAST).cells for far in (1e3, 1e9)]
    np.testing.assert_array_equal(told[0], told[1])
    assert told[0][-1] < 100


def test_rare_levels_go_with_others_and_never_stand_alone():
    rng = np.random.default_rng(3)
    for _ in range(200):
        counts = rng.integers(0, 30, 5)
        rows = np.repeat(np.arange(5), counts)
        flags = (rows[:, None] == np.arange(4)).astype(float)
        blank = int(rng.integers(0, 20))
        flags[rng.permutation(len(rows))[:blank]] = np.nan
        told = described_levels(flags, LEAST)
        named, unknown = np.nansum(told, axis=0), np.isnan(told).all(axis=1).sum()
        assert not len(few([*named, unknown]))
        # Whoever knows how many rows there are takes the others off; of a few that are not blank
        # nothing is told at all.
        if len(rows) - unknown >= LEAST:
            assert not len(few([len(rows) - unknown - named.sum()]))
        shown = described_counts(counts, LEAST)
        assert not len(few(shown)) or counts.sum() < LEAST
        assert shown.sum() == counts.sum()


def test_no_interval_has_a_few_cells_nor_lies_between_edges_of_two_descriptions():
    rng = np.random.default_rng(4)
    for _ in range(20):
        cells = described_column(
            rng.gamma(rng.uniform(0.5, 5), size=rng.integers(10, 400)), LEAST
        ).cells
        known = np.zeros(0)
        for centre in (1.0, 1.6, 2.9):
            line = ColumnLine.around(centre, 2.0 ** rng.integers(0, 3))
            places = line.places(cells, LEAST, known)
            edges = line.edges_of(places)
            np.testing.assert_array_equal(line.between(edges), places)
            known = np.append(known, edges)
        below = np.searchsorted(cells, np.sort(known))
        apart = np.abs(below[:, None] - below[None, :])
        assert not len(few(apart))
