"""Standard errors clustered by site: three of five sites, together, know the slopes of the others.

Admitted: totals hide what two parties have in each other, but sums of squares by site do not, where
the sum of the two is known.
"""

from __future__ import annotations

import numpy as np
import pytest

from weft.inference.party_sums_for_standard_errors import matrices_in, row_sums, slopes_in
from weft.losses import get_loss

SITES, ROWS, COLUMNS = 5, 200, 4
LOGISTIC = get_loss("logistic")


def told(site):
    """What a site adds to the totals, and its own slopes by column."""
    rng = np.random.default_rng(site)
    cells = np.column_stack([rng.normal(size=(ROWS, COLUMNS - 1)), np.ones(ROWS)])
    outcome = np.where(rng.random(ROWS) < 0.4, 1.0, -1.0)
    scores, none, one = 0.5 * cells[:, 0] - 0.3, np.zeros(ROWS), np.ones(ROWS)
    numbers = row_sums(cells, scores, outcome, none, one, LOGISTIC, "clustered")
    return numbers, slopes_in(numbers, COLUMNS)


def test_all_sites_but_two_know_the_slopes_of_these():
    parts = [told(site) for site in range(SITES)]
    left = sum(part for part, _ in parts) - sum(part for part, _ in parts[:3])
    squares, both = matrices_in(left, COLUMNS)[1], slopes_in(left, COLUMNS)
    values, vectors = np.linalg.eigh(2 * squares - np.outer(both, both))
    apart = np.sqrt(values[-1]) * vectors[:, -1]
    guesses = [(both + sign * apart) / 2 for sign in (1, -1)]
    # Which of them is whose stays open.
    for _, own in parts[3:]:
        assert min(np.abs(guess - own).max() for guess in guesses) < 1e-9 * np.abs(own).max()


@pytest.mark.parametrize("colluding", [1, 2])
def test_fewer_know_them_but_for_a_rotation(colluding):
    parts = [told(site) for site in range(SITES)]
    left = sum(part for part, _ in parts[colluding:])
    squares, total = matrices_in(left, COLUMNS)[1], slopes_in(left, COLUMNS)
    own = np.array([slopes for _, slopes in parts[colluding:]])
    # Another set of slopes, turned around their sum, fits what is known as well.
    axis = np.ones(len(own)) / np.sqrt(len(own))
    plane = np.linalg.svd(axis[None, :])[2][1:3]
    turn, quarter = np.eye(len(own)), np.array([[0.0, -1.0], [1.0, 0.0]])
    turn += plane.T @ (quarter - np.eye(2)) @ plane
    other = turn @ own
    np.testing.assert_allclose(other.T @ other, squares, atol=1e-9 * np.abs(squares).max())
    np.testing.assert_allclose(other.sum(axis=0), total, atol=1e-9 * np.abs(own).max())
    assert np.abs(other - own).max() > 0.1 * np.abs(own).max()
