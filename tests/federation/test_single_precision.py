"""Tables in single precision: the model and its certificate, beside those of all digits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from covering import every_value
from weft.data import Tile
from weft.errors import ConfigError, ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.preprocessing_settings import ONE_TABLE
from weft.guards import Terms
from weft.solvers.run_settings import MOST_PENALTY, Settings
from weft.sums import scaling_coordinator

ROWS, COLUMNS, LAM, GAP = 180, 6, 1e-2, 1e-4
#: Relative rounding of a cell, and the steepest slope of the logistic loss.
SINGLE, SLOPE = 2.0**-24, 1.0


@pytest.fixture(scope="module")
def table():
    draws = np.random.default_rng(7)
    cells = draws.standard_normal((ROWS, COLUMNS)) * np.logspace(-1, 1, COLUMNS)
    scores = cells @ draws.standard_normal(COLUMNS) + draws.logistic(size=ROWS)
    return cells, (scores > 0).astype(np.int64)


def trained(table, scaling="none", *, short, factors=None, unit_rows=False):
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
    preprocessing = Preprocessing(
        scaling=scaling, intercept=False, confirmed=ONE_TABLE, unit_rows=unit_rows
    )
    federation = Federation(tiles, preprocessing, terms=Terms())
    settings = Settings(
        lam=LAM, loss="logistic", solver="lbfgs", gap=GAP, penalty_factors=factors or {}
    )
    found = federation.train(settings)
    order = np.argsort(found.model.features.tolist())
    return found.model.coef[0][order], found.result.history[-1]


@pytest.fixture(scope="module")
def short(table):
    return trained(table, short="float32")


def judged(cells, labels, w, last, moved):
    """The certificate of weights, with so much as rounding may move a loss, at either point."""
    signs = np.where(labels > 0, -1.0, 1.0)

    def objective(w):
        return np.logaddexp(0.0, signs * (cells @ w)).mean() + LAM / 2 * (w @ w)

    best = LogisticRegression(C=1 / (LAM * ROWS), fit_intercept=False, tol=1e-12, max_iter=5000)
    optimum = best.fit(cells, labels).coef_[0]
    above = objective(w) - objective(optimum)
    assert -1e-12 <= above <= last.gap * last.primal + moved(w) + moved(optimum)
    assert last.gap <= GAP
    assert abs(objective(w) - last.primal) <= moved(w) + 1e-9 * last.primal
    assert moved(w) < 1e-4 * last.primal


def test_the_certificate_holds_for_the_table_of_all_digits(table, short):
    cells, labels = table
    judged(cells, labels, *short, lambda w: SLOPE * SINGLE * (np.abs(cells) @ np.abs(w)).mean())


def test_scaled_cells_are_rounded_once_more_which_the_bound_has_too(table):
    """Columns far from zero lose most as they are read, the others as much as they are scaled."""
    cells, labels = table[0] + np.array([0.0, 0.0, 300.0, 300.0, 1000.0, 1000.0]), table[1]
    coef, last = trained((cells, labels), "standard", short="float32")
    kept = cells.astype(np.float32).astype(np.float64)
    mean, spread = kept.mean(axis=0), kept.std(axis=0)
    scaled = (cells - mean) / spread
    lost = np.abs(cells) / spread + np.abs(scaled)
    judged(
        scaled,
        labels,
        coef * spread,
        last,
        lambda w: SLOPE * SINGLE * (lost @ np.abs(w)).mean(),
    )


def test_the_model_is_that_of_the_rounded_table(table, short):
    rounded, _ = trained(table, short="rounded")
    np.testing.assert_allclose(short[0], rounded, rtol=1e-9)


def test_no_cell_vanishes_under_the_largest_factors_and_unit_rows(table):
    most = {"x0": MOST_PENALTY, "x1": 1 / MOST_PENALTY}
    short, rounded = (
        trained(table, short=kept, factors=most, unit_rows=True)[0]
        for kept in ("float32", "rounded")
    )
    np.testing.assert_allclose(short, rounded, rtol=1e-4, atol=1e-30)


# ── factors that would let cells vanish, or overflow ─────────────────────────────────────────

#: By 1/√f, cells below 4.5 fell under the smallest float32, or those above 6 over the largest.
NO_ROOM = "party p0.?: its cells are in single precision, which has no room for factors"
BEYOND = (4.1e91, 3.1e-76, np.inf, np.nan)


@pytest.mark.parametrize("factor", BEYOND)
def test_penalty_factors_far_from_one_are_refused_in_settings(factor):
    with pytest.raises(ConfigError, match="the penalty factor of 'x1' is"):
        Settings(lam=LAM, penalty_factors={"x1": factor})


@pytest.fixture(scope="module")
def with_outlier(table):
    """The table, and the same with one cell that stands out."""
    cells = table[0].copy()
    cells[7, 1] = 60.0
    return table, (cells, table[1])


@every_value(kept=["float32", "rounded"], factor=BEYOND)
def test_parties_refuse_them_by_the_message_alone(with_outlier, kept, factor, monkeypatch):
    monkeypatch.setattr(Settings, "trained_factors", {"x1": factor})
    for held in with_outlier:
        with pytest.raises(ProtocolError, match=r"'factors' are not one from 9\.1e-13 to 1\.1e"):
            trained(held, short=kept, factors={"x1": 2.0})


@pytest.mark.parametrize("factor", [2.0**-110, 2.0**110])
def test_parties_refuse_factors_of_rows_that_single_precision_has_no_room_for(
    with_outlier, factor, monkeypatch
):
    request = scaling_coordinator.ScaleRowsRequest
    monkeypatch.setattr(scaling_coordinator, "ScaleRowsRequest", lambda **_: request(factor=factor))
    for held in with_outlier:
        with pytest.raises(ProtocolError, match=NO_ROOM):
            trained(held, short="float32", unit_rows=True)


@pytest.mark.parametrize("factor", [0.0, -1.0, np.inf, np.nan])
def test_factors_of_rows_are_numbers_above_zero(table, factor, monkeypatch):
    request = scaling_coordinator.ScaleRowsRequest
    monkeypatch.setattr(scaling_coordinator, "ScaleRowsRequest", lambda **_: request(factor=factor))
    with pytest.raises(ProtocolError, match="'factor' is"):
        trained(table, short="rounded", unit_rows=True)


def test_a_column_that_others_hold_in_quite_another_unit_is_refused(table):
    cells, labels = table
    tiles = {}
    for i, rows in enumerate(np.split(np.arange(ROWS), 3)):
        ids = [f"s{n}" for n in rows]
        unit = 1e60 if i else 1.0
        tile = Tile.make(ids, ["x0", "x1"], unit * cells[rows, :2], labels[rows])
        tiles[f"p{i}"] = [tile if i else tile.in_single_precision()]
    federation = Federation(
        tiles, Preprocessing(scaling="maxabs", confirmed=ONE_TABLE), terms=Terms()
    )
    with pytest.raises(ProtocolError, match=NO_ROOM):
        federation.train(Settings(lam=LAM, loss="logistic", solver="lbfgs", gap=GAP))
