"""A column that is large in one row: its weight tells the label, models with and without it the
row of that sample in the columns of others. Whoever brings it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from weft.data import Tile
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import Terms
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.label_leak_by_model_coefficient import (
    largest_of_one,
    refuse_lone_rows,
)
from weft.solvers.secret_sharing.table_positions import Place, WholeTable

N, WHICH = 100, 7
NAMES = ["v0", "v1", "v2"]


def cosine(left, right):
    return abs(left @ right) / np.linalg.norm(left) / np.linalg.norm(right)


@pytest.fixture(scope="module")
def scene():
    """Columns of a victim, responses of another, and a column that is small but at one sample."""
    random = np.random.default_rng(1)
    cells, made_up = random.normal(size=(N, 3)), 0.01 * random.normal(size=N)
    made_up[WHICH] = 10.0
    return cells, cells @ [0.5, -0.3, 0.2] + random.normal(size=N), made_up


def model(scene, folder, factor, terms):
    """Weights of a run in which the made-up column has such a penalty: no cell ever changes."""
    cells, responses, made_up = scene
    ids = [f"s{number:03d}" for number in range(N)]
    tiles = {
        "victim": [Tile.make(ids, NAMES, cells)],
        "labels": [Tile.make(ids, [], np.zeros((N, 0)), responses)],
        "reader": [Tile.make(ids, ["m"], made_up[:, None])],
    }
    how = Preprocessing(intercept=True, scaling="none")
    settings = Settings(lam=1.0, loss="squared", solver="sealed", gap=1e-6,
                        penalty_factors={"m": factor})  # fmt: skip
    trained = Federation(tiles, how, terms=terms, ledger=Ledger(folder)).train(settings)
    weights = dict(zip(trained.model.features, trained.model.coef[0], strict=True))
    return np.array([weights[name] for name in NAMES])


def test_two_models_tell_the_row_of_a_sample_that_a_column_is_about(scene, tmp_path, record):
    """The reader has no labels, and ledgers see the same table twice."""
    with pytest.raises(WeftError, match=r"party reader: .*that of one sample"):
        model(scene, tmp_path / "guarded", 1e-3, Terms())
    open_terms = Terms(allow_exposure=True)
    without, with_it = (model(scene, tmp_path, f, open_terms) for f in (1e9, 1e-3))
    row = (scene[0] - scene[0].mean(axis=0))[WHICH]
    found = cosine(without - with_it, row)
    assert found > 0.98
    record("76", "unguarded", f"the row of a chosen sample, cosine {found:.2f}")
    record("76", "guarded", "refused; by more runs with smaller cells there: admitted")


def table(*places):
    placed = tuple(Place(np.arange(*rows), np.array(columns)) for rows, columns in places)
    return WholeTable(300, 3, placed)


def refuse(whole, cells, counted=(), **how):
    flags = np.isin(np.arange(len(cells)), counted)
    refuse_lone_rows(whole, 0, cells, flags, **{"loss": "squared", "lam": 1e-3, **how})


def test_labels_of_other_samples_force_any_weight():
    """One run was enough: 0.96 to 0.99 of five rows of 600, by responses of 100 own samples."""
    random = np.random.default_rng(0)
    column = 1e-3 * random.normal(size=(300, 1))
    column[200:], column[WHICH] = random.choice([-1.0, 1.0], (100, 1)), 1.0
    whole = table(((0, 300), [0]), ((0, 200), [1, 2]))
    # A penalty by which no label of others moves the weight, and none of its own there is.
    refuse(whole, column, lam=1.0)
    with pytest.raises(ConfigError, match="that of one sample, nearly"):
        refuse(whole, column, range(200, 300), lam=1.0)
    # Nor do samples hide it that another party has, or labels of its own among them.
    both = table(((0, 300), [0]), ((0, 200), [1]), ((200, 300), [2]))
    with pytest.raises(ConfigError, match="that of one sample, nearly"):
        refuse(both, column, lam=1e-5)
    column[200:] = 1e-3
    column[:WHICH] = column[WHICH + 1 : 50] = random.choice([-1.0, 1.0])
    with pytest.raises(ConfigError, match="that of one sample, nearly"):
        refuse(whole, column, [n for n in range(50) if n != WHICH])


def test_a_combination_counts_and_usual_columns_do_not():
    random = np.random.default_rng(0)
    usual = random.normal(size=(300, 2))
    whole = table(((0, 300), [0, 1]), ((0, 300), [2]))
    refuse(whole, usual)
    refuse(whole, np.column_stack([usual[:, 0], np.arange(300) < 10]))
    alike = np.column_stack([usual[:, 0], usual[:, 0]])
    refuse(whole, alike)
    alike[WHICH, 1] += 2.0
    with pytest.raises(ConfigError, match="that of one sample, nearly"):
        refuse(whole, alike)
    # With a penalty of that size no weights are as large.
    refuse(whole, alike, lam=1e-1)
    # Of a level that others have too one own sample says little.
    level = np.column_stack([usual[:, 0], 5.0 * (np.arange(300) == WHICH)])
    shared = WholeTable(600, 3, (*whole.places, Place(np.arange(300, 600), np.array([0, 1]))))
    refuse(shared, level)
    with pytest.raises(ConfigError, match="that of one sample, nearly"):
        refuse(whole, level)


def test_parts_of_rows_are_those_of_the_hat_matrix():
    random = np.random.default_rng(0)
    cells = np.round(random.lognormal(0.0, 1.0, (60, 4)) * 64) / 64
    against = np.array([0.0, 3.0, 10.0, 0.5])
    far = cells - cells.mean(axis=0)
    hat = far @ np.linalg.inv(far.T @ far + np.diag(against)) @ far.T
    assert largest_of_one(cells, against) == pytest.approx(hat.diagonal().max() + 1 / 60)
