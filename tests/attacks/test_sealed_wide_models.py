"""Cells and labels from the weights of sealed models alone, by columns that a reader made up.

At the optimum λN w = −Σ α x for every column. Whoever brought a column knows its x: an equation
about the slopes of the samples. As many columns as samples tell all slopes; so do several runs with
fewer.
"""

from __future__ import annotations

import numpy as np
import pytest

from weft.data import Tile
from weft.errors import WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import Terms
from weft.privacy.ledger.ledger_file import read_books
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.label_telling_model_guard import refuse_wide, told_by_model
from weft.solvers.secret_sharing.table_positions import Place, WholeTable

ROWS, LAM = 60, 0.1
CAREFUL, EXPOSING = Terms(), Terms(allow_exposure=True)
IDS = [f"i{n}" for n in range(ROWS)]


def train(tiles, terms, loss, gap, ledger=None):
    asked = Settings(lam=LAM, loss=loss, solver="sealed", gap=gap)
    how = Preprocessing(intercept=False, scaling="none")
    model = Federation(tiles, how, terms=terms, ledger=ledger).train(asked).model
    return dict(zip(model.features.astype(str), model.coef.ravel(), strict=True))


def cells_of_runs(terms, ledger, columns, runs):
    """b makes up columns and targets; a's one column is all that it does not know."""
    rng = np.random.default_rng(3)
    secret = rng.normal(size=ROWS)
    names, factors, sums = [f"b{n:02d}" for n in range(columns)], [], []
    for _ in range(runs):
        made = np.linalg.qr(rng.normal(size=(ROWS, columns)))[0] * np.sqrt(ROWS)
        targets = rng.normal(size=ROWS)
        tiles = {
            "a": [Tile.make(IDS, ["secret"], secret[:, None], None)],
            "b": [Tile.make(IDS, names, made, targets)],
        }
        weights = train(tiles, terms, "squared", 1e-5, ledger)
        mine = np.array([weights[name] for name in names])
        factors.append(weights["secret"] * made.T)
        sums.append(made.T @ (targets - made @ mine) - LAM * ROWS * mine)
    found = np.linalg.lstsq(np.vstack(factors), np.concatenate(sums), rcond=1e-4)[0]
    return int((np.abs(found - secret) < 0.2).sum())


def labels_of_one_run(terms):
    """b has no label, but more columns than there are samples."""
    rng = np.random.default_rng(2)
    block, made = rng.normal(size=(ROWS, 3)), rng.normal(size=(ROWS, ROWS + 5))
    labels = (block[:, 0] + rng.normal(size=ROWS) > 0).astype(int)
    names = [f"b{n:02d}" for n in range(made.shape[1])]
    tiles = {
        "a": [Tile.make(IDS, ["x", "y", "z"], block, labels)],
        "b": [Tile.make(IDS, names, made, None)],
    }
    weights = train(tiles, terms, "logistic", 1e-4)
    mine = np.array([weights[name] for name in names])
    slopes = np.linalg.lstsq(made.T, -LAM * ROWS * mine, rcond=None)[0]
    return int(((slopes < 0) == labels).sum())


def test_a_model_with_many_columns_of_a_reader_tells_cells_and_labels(record):
    cells, labels = cells_of_runs(EXPOSING, None, ROWS, 1), labels_of_one_run(EXPOSING)
    assert cells == labels == ROWS
    record("70", "unguarded", f"one run: {cells} of {ROWS} cells, {labels} of {ROWS} labels")
    with pytest.raises(WeftError, match=r"so many columns.*would tell its cells and labels"):
        cells_of_runs(CAREFUL, None, ROWS, 1)
    with pytest.raises(WeftError, match=r"so many columns.*would tell its cells and labels"):
        labels_of_one_run(CAREFUL)
    record("70", "guarded", "refused")


def test_models_of_many_runs_tell_no_more_than_one(tmp_path, record):
    found = cells_of_runs(EXPOSING, None, 12, 6)
    assert found > 0.9 * ROWS
    record("70", "unguarded", f"6 runs of 12 columns: {found} of {ROWS} cells")
    with pytest.raises(WeftError, match="refuses a further sealed model over these samples"):
        cells_of_runs(CAREFUL, Ledger(tmp_path / "careful"), 12, 2)
    record("70", "guarded", "the second run refused")
    first, *more = read_books(tmp_path / "careful")["a"].runs
    assert (first.weights, more) == (12, [])


def shape(rows, columns, down, across):
    """A table that is cut into blocks, with a constant column that all have."""
    places = [
        Place(part, np.append(some, columns))
        for part in np.array_split(np.arange(rows), down)
        for some in np.array_split(np.arange(columns), across)
    ]
    return WholeTable(rows, columns + 1, tuple(places))


@pytest.mark.parametrize(
    ("table", "targets", "numbers"),
    [
        (shape(569, 30, 1, 2), 1, 16),
        (shape(30_000, 24, 1, 3), 1, 17),
        (shape(1797, 64, 3, 3), 10, 43),
        (shape(600, 13, 1, 13), 10, 130),
    ],
)
def test_honest_tables_pass_and_more_classes_than_columns_count(table, targets, numbers):
    """Ten classes tell ten numbers about one column, but one about each of ten."""
    told = told_by_model(table, 0, targets, labelled=True)
    assert told.by_row.tolist() == [numbers] * len(told.by_row)
    if numbers <= len(told.by_row) // 5:
        refuse_wide(told)
    else:
        with pytest.raises(WeftError, match="so many columns"):
            refuse_wide(told)


def test_columns_count_against_the_samples_that_their_holders_share():
    """Others of a party's 800 hide nothing; two that collude have columns and samples of both."""

    def told(*shared):
        own = Place(np.arange(800), np.arange(1))
        others = [Place(np.arange(*ends), columns) for ends, columns in shared]
        return told_by_model(WholeTable(800, 41, (own, *others)), 0, 1, labelled=True)

    few, many = np.arange(1, 13), np.arange(1, 14)
    refuse_wide(told(((0, 60), few)))
    with pytest.raises(WeftError, match="so many columns"):
        refuse_wide(told(((0, 60), many)))
    refuse_wide(told(((0, 60), few), ((60, 120), few + 12)))
    with pytest.raises(WeftError, match="so many columns"):
        refuse_wide(told(((0, 60), few), ((10, 70), few + 12)))
