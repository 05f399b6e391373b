"""Tables in single precision: the model and its certificate, beside those of all digits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from weft.data import Tile
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.preprocessing_settings import ONE_TABLE
from weft.guards import Terms
from weft.solvers.settings import Settings

ROWS, COLUMNS, LAM, GAP = 180, 6, 1e-2, 1e-4
#: Relative rounding of a cell, and the steepest slope of the logistic loss.
SINGLE, SLOPE = 2.0**-24, 1.0


@pytest.fixture(scope="module")
def table():
    draws = np.random.default_rng(7)
    cells = draws.standard_normal((ROWS, COLUMNS)) * np.logspace(-1, 1, COLUMNS)
    scores = cells @ draws.standard_normal(COLUMNS) + draws.logistic(size=ROWS)
    return cells, (scores > 0).astype(np.int64)


def trained(table, scaling="none", *, short):
    """Weights by three by three parties who keep float32, or float64 of the rounded cells."""
    cells, labels = table
    ids = np.array([f"s{n}" for n in range(ROWS)], dtype=object)
    names = np.array([f"x{n}" for n in range(COLUMNS)], dtype=object)
    tiles = {}
    for i, rows in enumerate(np.split(np.arange(ROWS), 3)):
        for j, columns in enumerate(np.split(np.arange(COLUMNS), 3)):
            block = np.ascontiguousarray(cells[np.ix_(rows, columns)])
            tile = Tile(ids[rows], names[columns], block, labels[rows]).in_single_precision()
            if short == "rounded":
                tile = replace(tile, block=tile.block.astype(np.float64))
            tiles[f"p{i}{j}"] = [tile]
    preprocessing = Preprocessing(scaling=scaling, intercept=False, confirmed=ONE_TABLE)
    federation = Federation(tiles, preprocessing, terms=Terms())
    found = federation.train(Settings(lam=LAM, loss="logistic", solver="lbfgs", gap=GAP))
    order = np.argsort(found.model.features.tolist())
    return found.model.coef[0][order], found.result.history[-1]


@pytest.fixture(scope="module")
def short(table):
    return trained(table, short="float32")


def test_the_certificate_holds_for_the_table_of_all_digits(table, short):
    """By as much more as rounding may move a loss, at either point; which is hardly anything."""
    cells, labels = table
    signs = np.where(labels > 0, -1.0, 1.0)

    def objective(w):
        return np.logaddexp(0.0, signs * (cells @ w)).mean() + LAM / 2 * (w @ w)

    def moved(w):
        return SLOPE * SINGLE * (np.abs(cells) @ np.abs(w)).mean()

    w, last = short
    best = LogisticRegression(C=1 / (LAM * ROWS), fit_intercept=False, tol=1e-12, max_iter=5000)
    optimum = best.fit(cells, labels).coef_[0]
    above = objective(w) - objective(optimum)
    assert 0 <= above <= last.gap * last.primal + moved(w) + moved(optimum)
    assert last.gap <= GAP
    assert abs(objective(w) - last.primal) <= moved(w) + 1e-12 * last.primal
    assert moved(w) < 1e-5 * last.primal


def test_the_model_is_that_of_the_rounded_table(table, short):
    rounded, _ = trained(table, short="rounded")
    np.testing.assert_allclose(short[0], rounded, rtol=1e-9)


def test_scaled_cells_are_rounded_once_more_and_no_further(table):
    short, rounded = (trained(table, "standard", short=kept)[0] for kept in ("float32", "rounded"))
    np.testing.assert_allclose(short, rounded, rtol=1e-5)
