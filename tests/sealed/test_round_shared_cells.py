"""What parties bring of a cell that several hold adds up to the cell, rounded once."""

from __future__ import annotations

import numpy as np
import pytest

from weft.matching.party_view import PartyView
from weft.solvers.secret_sharing.digit_widths import CELL_BITS
from weft.solvers.secret_sharing.split_overlapping_cells_into_integers import parts_of, round_parts
from weft.solvers.secret_sharing.table_positions import Place, WholeTable

ROWS, COLUMNS = 60, 5
EVERY = np.arange(ROWS), np.arange(COLUMNS)


class View:
    """As much of a party's view as this takes: one cohort of rows and columns for each slot."""

    overlap = "mean"

    def __init__(self, party: int, place: Place, holders: np.ndarray) -> None:
        self.party = party
        self.row_cohort, self.column_cohort = place.rows, place.columns
        self.cell_holders = holders if (holders > 1).any() else None


def brought(places: list[Place], cells: list[np.ndarray], holders: np.ndarray) -> np.ndarray:
    """The whole table, in units, as all parties bring it."""
    table, total = WholeTable(ROWS, COLUMNS, tuple(places)), np.zeros((ROWS, COLUMNS))
    for party, (place, own) in enumerate(zip(places, cells, strict=True)):
        view: PartyView = View(party, place, holders)  # type: ignore[assignment]
        block = own / np.maximum(holders, 1)[np.ix_(place.rows, place.columns)]
        exact = block * 2.0**CELL_BITS
        moved = round_parts(block, CELL_BITS, parts_of(view, table))
        np.testing.assert_allclose(block * 2.0**CELL_BITS, exact + moved, atol=1e-3)
        assert np.abs(moved).max() < 1
        total[np.ix_(place.rows, place.columns)] += np.rint(block * 2.0**CELL_BITS)
    return total


def overlapping() -> tuple[list[Place], np.ndarray]:
    places = [
        Place(np.arange(0, 42), np.arange(0, 4)),
        Place(np.arange(18, 60), np.arange(0, 4)),
        Place(*EVERY),
    ]
    holders = np.zeros((ROWS, COLUMNS), np.int64)
    for place in places:
        holders[np.ix_(place.rows, place.columns)] += 1
    return places, holders


def test_cells_of_one_to_three_holders_are_rounded_once() -> None:
    places, holders = overlapping()
    assert set(holders.ravel()) == {1, 2, 3}
    whole = np.random.default_rng(0).normal(size=(ROWS, COLUMNS))
    cells = [whole[np.ix_(place.rows, place.columns)] for place in places]
    total = brought(places, cells, holders)
    np.testing.assert_array_equal(total, np.rint(whole * 2.0**CELL_BITS))


@pytest.mark.parametrize("unsure", [False, True])
def test_holders_that_differ_or_are_not_known_are_off_by_half_a_unit_each(unsure: bool) -> None:
    places, holders = overlapping()
    rng = np.random.default_rng(1)
    cells = [rng.normal(size=place.shape) for place in places]
    if unsure:
        # The second party's table covers rows that it has no values of.
        places[1], cells[1] = Place(*EVERY), np.zeros((ROWS, COLUMNS))
        holders[np.ix_(np.arange(18, 60), np.arange(4))] -= 1
    mean = np.zeros((ROWS, COLUMNS))
    for place, own in zip(places, cells, strict=True):
        mean[np.ix_(place.rows, place.columns)] += own
    off = np.abs(brought(places, cells, holders) - mean / np.maximum(holders, 1) * 2.0**CELL_BITS)
    assert (off <= 0.5 * holders + 1e-6).all()
