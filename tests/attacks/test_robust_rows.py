"""One sample far off in robust standard errors: the two matrices differ by about its row."""

from __future__ import annotations

import numpy as np
import pytest

from weft.errors import ConfigError
from weft.inference.party_sums_for_standard_errors import matrices_in, row_sums, weights_of_rows
from weft.losses import get_loss
from weft.solvers.secret_sharing.second_moment_guard import (
    refuse_combinations,
    refuse_few_weighed,
    refuse_sparse,
)

POISSON, LEAST, ROWS = get_loss("poisson"), 10, 300


def party(seed, scale, more):
    """Cells, scores and counts; the first sample has more events than its score says."""
    rng = np.random.default_rng(seed)
    cells = rng.normal(size=(ROWS, 5))
    cells[0] *= scale * np.sqrt(5) / np.linalg.norm(cells[0])
    scores = 1.0 + 0.3 * cells[:, 0] - 0.2 * cells[:, 1]
    scores[0] = 1.0
    counts = rng.poisson(np.exp(scores)).astype(float)
    counts[0] = round(np.e + more)
    return cells, scores, counts


@pytest.mark.parametrize("seed", range(3))
def test_a_row_that_is_far_off_shows_in_the_difference_and_is_refused(seed):
    cells, scores, counts = party(seed, scale=2.0, more=12.0)
    one, none = np.ones(ROWS), np.zeros(ROWS)
    table = np.column_stack([cells, one])
    sums = row_sums(table, scores, counts, none, one, POISSON, "robust")
    curved, squared = matrices_in(sums, 6)
    guess = np.linalg.eigh(squared - curved)[1][:, -1]
    # What a reader who knows the others' parts has: most of the row, in five cells of ROWS · 5.
    off = np.abs(guess[:5] / guess[5] - cells[0]).max()
    assert off < 0.15 * np.abs(cells[0]).max()
    weights = weights_of_rows(scores, counts, one, POISSON, "robust")[1]
    refuse_sparse(cells, LEAST)
    refuse_combinations(cells, LEAST)
    # As many rows of equal weight as were asked for before.
    assert weights.sum() ** 2 / (weights**2).sum() > 2 * LEAST
    with pytest.raises(ConfigError, match="a few of its samples have nearly all"):
        refuse_few_weighed(cells, weights, LEAST, 2)


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_are_not_far_off_pass_and_stay_unknown(seed):
    cells, scores, counts = party(seed, scale=1.0, more=4.0)
    one = np.ones(ROWS)
    for weights in weights_of_rows(scores, counts, one, POISSON, "robust"):
        refuse_few_weighed(cells, weights, LEAST, 2)
    table = np.column_stack([cells, one])
    sums = row_sums(table, scores, counts, np.zeros(ROWS), one, POISSON, "robust")
    curved, squared = matrices_in(sums, 6)
    guess = np.linalg.eigh(squared - curved)[1][:, -1]
    assert np.abs(guess[:5] / guess[5] - cells[0]).max() > 0.5 * np.abs(cells[0]).max()
