"""The last steps of a squared loss, which bring less than noise hides of P: where they end.

Noise is drawn as parties draw it, on products of vectors that are known here. The judge is least
squares in closed form.
"""

from __future__ import annotations

import numpy as np
import pytest

from weft.solvers.secret_sharing.coordinator_lbfgs import Descent
from weft.solvers.secret_sharing.digit_widths import Errors, TableBounds, choose_widths

LAM, PARTIES, ROWS, COLUMNS, STEPS = 1e-7, 3, 400, 12, 32


@pytest.fixture(scope="module")
def fit():
    """Columns of which some say nearly the same as others, and responses far from zero."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, COLUMNS)) @ (np.eye(COLUMNS) + 0.2 * rng.normal(size=(COLUMNS,) * 2))
    x[:, -1] = 1.0
    y = 80 + x @ rng.normal(size=COLUMNS) + 5 * rng.normal(size=ROWS)
    inverse = np.linalg.inv(x.T @ x)
    best = inverse @ x.T @ y
    left = y - x @ best
    errors = np.sqrt(np.diag(inverse) * (left @ left) / (ROWS - COLUMNS))
    bounds = TableBounds(
        samples=ROWS,
        rows=ROWS,
        column_sum=float(np.abs(x).sum(axis=0).max()),
        row_norm=float(np.linalg.norm(x, axis=1).max()),
        mean_square=float((x**2).sum()) / ROWS,
        spread=float(np.linalg.norm(x, 2)) / np.sqrt(ROWS),
        cell_rounding=2.0**-18,
        label_square=float(y @ y) / ROWS,
        column_norm=float(np.linalg.norm(x, axis=0).max()),
    )
    return x, y, best, errors, bounds


def descended(x, y, bounds, seed):
    """A problem after some steps, and its points."""
    rng, columns = np.random.default_rng(seed), x.shape[1]
    errors = Errors(bounds, choose_widths(bounds, "squared", columns), PARTIES, columns)
    problem = Descent(errors, True, LAM, 1.0, 0.5 * bounds.label_square)
    vectors, points = [-x.T @ y / ROWS], [np.zeros(columns)]

    def row(bits):
        most = np.array([errors.product(int(each)) for each in bits]) / PARTIES
        noise = rng.uniform(-most, most, size=(PARTIES, len(bits))).sum(axis=0)
        return np.array(vectors) @ vectors[-1] + noise

    bits = problem.noise_bits()
    problem.begin(row(bits), bits)
    for _ in range(STEPS):
        points.append(problem.propose(0.0).point @ np.array(vectors))
        vectors.append(x.T @ (x @ points[-1] - y) / ROWS)
        bits = problem.noise_bits()
        problem.accept(row(bits), bits, 0.0, None, np.inf)
    return problem, points


@pytest.mark.parametrize("seed", range(6))
def test_steps_end_where_noise_hides_the_gradient(fit, seed):
    """Where points were judged by P alone, chance left some of these 1e-3 errors away."""
    x, y, best, errors, bounds = fit
    problem, points = descended(x, y, bounds, seed)
    assert (np.abs(points[problem.model] - best) / errors).max() < 1e-4
    assert problem.hidden
