"""Two columns of a party that say the same in other units, as a description cuts each for itself.

Not met: counts up to an edge of the one and up to an edge of the other differ in a few samples.
They tell between which values some cell lies, to a finer width than either column alone, and not
whose.
"""

from __future__ import annotations

import numpy as np

from weft.guards.cells_safe_to_describe import ColumnLine, described_column

LEAST = 10


def edges_and_counts(cells):
    """Where a party that holds a column alone cuts it, and how many of its cells are below."""
    told = described_column(cells, LEAST).cells
    line = ColumnLine.around(float(told.mean()), 2.0 ** np.ceil(np.log2(2 * told.std())))
    edges = line.edges_of(line.places(told, LEAST, np.zeros(0)))
    return edges, np.searchsorted(told, edges)


def test_columns_in_two_units_tell_of_a_few_cells_between_their_edges():
    years = np.random.default_rng(0).normal(50.0, 12.0, 400)
    edges, below = edges_and_counts(years)
    days, before = edges_and_counts(365.25 * years)
    for counts in (np.diff(below), np.diff(before)):
        assert ((counts == 0) | (counts >= LEAST)).all()
    apart = np.abs(below[:, None] - before[None, :])
    few = np.argwhere((apart > 0) & (apart < LEAST))
    assert len(few) > 0
    # What it tells is true: so many samples lie between the two edges.
    for one, other in few.tolist():
        low, high = sorted((edges[one], days[other] / 365.25))
        assert ((years >= low) & (years < high)).sum() == apart[one, other]
