"""What the gradient tells readers, who get it with the Hessian: no more than the model does."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from weft.data.tile import Tile
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import OPEN
from weft.solvers.run_settings import Settings

ROWS, OWN, LAM = 360, 6, 0.05


@pytest.fixture(scope="module")
def runs():
    """A reader with all columns and no label, one who has the labels, and two runs of them."""
    rng = np.random.default_rng(5)
    block = rng.normal(size=(ROWS, OWN))
    labels = (block @ rng.normal(size=OWN) + rng.logistic(size=ROWS) > 0).astype(int)
    ids, names = [f"i{r}" for r in range(ROWS)], [f"c{j}" for j in range(OWN)]
    tiles = {
        "reader": [Tile.make(ids, names, block)],
        "labels": [Tile.make(ids, ["other"], rng.normal(size=(ROWS, 1)), labels)],
    }
    settings = Settings(
        lam=LAM, loss="logistic", solver="sealed", second_moments=("hessian",), gap=1e-6
    )
    trained = [
        Federation(tiles, Preprocessing(intercept=False), terms=OPEN).train(settings)
        for _ in range(2)
    ]
    other = tiles["labels"][0].block
    return np.c_[block, other], 2.0 * labels - 1, trained


def told(table, trained):
    """Weights and N·∇R in the order of the table."""
    moments, model = trained.second_moments, trained.model
    names = [*(f"c{j}" for j in range(OWN)), "other"]
    order = [list(moments.names).index(name) for name in names]
    places = [list(model.features).index(name) for name in names]
    return model.coef[0][places], ROWS * moments.gradient[0][order], moments.gradient_error[0]


def test_it_is_the_gradient_within_its_error_and_not_to_the_last_digit(runs):
    table, labels, trained = runs
    cells = np.rint(table * 2.0**18) * 2.0**-18
    off = []
    for each in trained:
        weights, gradient, error = told(table, each)
        slopes = -labels * expit(-labels * (table @ weights))
        assert np.linalg.norm(gradient - table.T @ slopes) <= ROWS * error
        rounded = -labels * expit(-labels * (cells @ weights))
        off.append(gradient - cells.T @ rounded)
    # Sums of whole numbers that are known exactly would be a puzzle with one solution: each party's
    # noise is some 2^27 of their units, and another in every run.
    assert min(np.abs(each).max() for each in off) > 2.0**-26 * np.sqrt(ROWS)
    assert np.abs(off[0] - off[1]).max() > 2.0**-26 * np.sqrt(ROWS)


def test_slopes_guessed_from_it_are_those_guessed_from_the_model(runs):
    """At the optimum λN w = −Xᵀα: the gradient is an equation for each column that the model tells
    already, and has no other."""
    table, labels, trained = runs
    weights, gradient, _ = told(table, trained[0])
    own = table[:, :OWN]
    from_model = np.linalg.lstsq(own.T, -LAM * ROWS * weights[:OWN], rcond=None)[0]
    from_gradient = np.linalg.lstsq(own.T, gradient[:OWN], rcond=None)[0]
    slopes = -labels * expit(-labels * (table @ weights))
    by_model, by_gradient = (np.corrcoef(g, slopes)[0, 1] for g in (from_model, from_gradient))
    assert by_gradient == pytest.approx(by_model, abs=0.01)
