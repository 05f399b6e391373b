"""Block-splitting ADMM: the textbook's iterates, the judge's optimum, and certificates of kinks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from covering import before_release, every_value
from weft.data import SPLITS, pool
from weft.errors import ConfigError
from weft.federation.local_federation import Federation, Preprocessing
from weft.losses import LOSSES, get_loss
from weft.solvers.admm import AdmmCoordinator, Graph, prox
from weft.solvers.run_settings import Settings
from weft.sums.party_table_products import DensePiece, LocalTable, SparsePiece

LAM = 0.02


def settings_of(**changes):
    how = {"loss": "logistic", "lam": LAM, "gap": None, "iterations": 20, "cipher": "plain"}
    return Settings(solver="admm", **{**how, **changes})


def train(split, how, **preprocessing):
    prepared = Preprocessing(overlap=split.overlap, **preprocessing)
    return Federation(split.parties, prepared).train(how)


CUTS = {
    "one block": lambda table: SPLITS["grid"](table, k=1, q=1),
    "2×2": lambda table: SPLITS["grid"](table, k=2, q=2),
    "3×3": lambda table: SPLITS["grid"](table, k=3, q=3),
    "rows": lambda table: SPLITS["rows"](table, parties=3),
    "columns": lambda table: SPLITS["columns"](table, parties=3),
    "labels at one": lambda table: SPLITS["columns"](table, parties=3, labels="first"),
    "overlap": lambda table: SPLITS["overlapping"](table, parties=4, seed=3),
}
every_cut = pytest.mark.parametrize("cut", CUTS)


@pytest.fixture(scope="module")
def breast(tables):
    return tables.breast(60)


# ── parts ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "name", [name for name in LOSSES if get_loss(name).bounded and not get_loss(name).joint]
)
@settings(deadline=None)
@given(
    s=st.floats(-4.0, 4.0),
    y=st.floats(-2.0, 2.0),
    c=st.floats(-3.0, 3.0).map(lambda power: 10.0**power),
)
def test_the_proximal_point_is_the_minimum_found_by_search(name, s, y, c):
    loss = get_loss(name)
    label = np.array([np.sign(y) or 1.0 if loss.task == "classification" else y])

    def value(z):
        return float(loss.value(np.array([z]), label)[0] + c / 2 * (z - s) ** 2)

    found = float(prox(loss, np.array([s]), label, c)[0])
    # From s the minimum lies within the slope of the loss at s over c.
    away = 1.0 + 10.0 / c
    best = minimize_scalar(
        value, bounds=(s - away, s + away), method="bounded", options={"xatol": 1e-11}
    )
    assert value(found) <= best.fun + 1e-9 * (1.0 + abs(best.fun))


def table_of(x, sparse):
    rows, columns = (np.arange(size, dtype=np.int32) for size in x.shape)
    block = sp.csr_array(x) if sparse else x
    piece = (SparsePiece if sparse else DensePiece)(block, rows, columns, *x.shape)
    return LocalTable(*x.shape, [piece], (x**2).sum(axis=1)[:, None])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("largest", [3000, 4], ids=["factorised", "conjugate gradients"])
@pytest.mark.parametrize("shape", [(30, 7), (7, 30)], ids=["tall", "wide"])
def test_projections_give_the_nearest_point_of_the_graph(shape, largest, sparse):
    rng = np.random.default_rng(5)
    x = rng.standard_normal(shape) * (rng.random(shape) < (0.08 if sparse else 1.0))
    a, b = rng.standard_normal((shape[1], 2)), rng.standard_normal((shape[0], 2))
    stacked = np.concatenate([np.eye(shape[1]), x])
    nearest = np.linalg.lstsq(stacked, np.concatenate([a, b]), rcond=None)[0]
    w, z = Graph(table_of(x, sparse), largest).project(a, b, np.zeros_like(a))
    np.testing.assert_allclose(w, nearest, atol=1e-10)
    np.testing.assert_allclose(z, x @ w, atol=1e-12)


# ── the textbook's iterates ───────────────────────────────────────────────────────────────


class Textbook:
    """ADMM for Φ(u) + [v ∈ C], u = v, with u = (w, z, w_1, z_1, …) and dense projections onto C.

    Φ is λ/2 ‖w‖² + 1/N Σ max(0, 1 − y_i z_i) and, for every block, that (w_k, z_k) lies on its
    graph. C says that copies agree with w and that copies of z add up.
    """

    def __init__(self, split, judge):
        self.problem = judge.problem("hinge", split, LAM)
        table = pool(split)
        self._row = {name: i for i, name in enumerate(table.ids.tolist())}
        self._column = {name: i for i, name in enumerate(table.features.tolist())}
        n, m = self.problem.x.shape
        held = [self._mask(tiles) for tiles in split.parties.values()]
        share = 1.0 / np.maximum(sum(held), 1)
        self.blocks = []
        at = m + n
        for mask in held:
            rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
            x = (self.problem.x * share * mask)[np.ix_(rows, columns)]
            self.blocks.append((x, rows, columns, at, at + len(columns)))
            at += len(columns) + len(rows)
        constraints = []
        for _, _, columns, begin, _ in self.blocks:
            rows = np.zeros((len(columns), at))
            rows[np.arange(len(columns)), columns] = -1.0
            rows[np.arange(len(columns)), begin + np.arange(len(columns))] = 1.0
            constraints.append(rows)
        add_up = np.zeros((n, at))
        add_up[:, m : m + n] = -np.eye(n)
        for _, rows, _, _, middle in self.blocks:
            add_up[rows, middle + np.arange(len(rows))] = 1.0
        matrix = np.concatenate([*constraints, add_up])
        self._onto = np.eye(at) - np.linalg.pinv(matrix) @ matrix

    def _mask(self, tiles):
        mask = np.zeros(self.problem.x.shape, bool)
        for tile in tiles:
            rows = [self._row[name] for name in tile.ids.tolist()]
            columns = [self._column[name] for name in tile.features.tolist()]
            mask[np.ix_(rows, columns)] = True
        return mask

    def _nearest(self, s, rho):
        n, m = self.problem.x.shape
        y, c = self.problem.y, rho * n
        u = np.empty_like(s)
        u[:m] = rho * s[:m] / (LAM + rho)
        z = s[m : m + n]
        short = 1.0 - y * z
        u[m : m + n] = z + y * np.where(short < 0, 0.0, np.minimum(short, 1.0 / c))
        for x, rows, columns, begin, middle in self.blocks:
            end = middle + len(rows)
            stacked = np.concatenate([np.eye(len(columns)), x])
            w = np.linalg.lstsq(stacked, s[begin:end], rcond=None)[0]
            u[begin:middle], u[middle:end] = w, x @ w
        return u

    def run(self, penalties):
        v = np.zeros(len(self._onto))
        dual, before = v, penalties[0]
        for rho in penalties:
            dual, before = dual * before / rho, rho
            u = self._nearest(v - dual, rho)
            v = self._onto @ (u + dual)
            dual = dual + u - v
        return v[: self.problem.x.shape[1]]


@pytest.mark.parametrize("cut", ["one block", "2×2", "columns", "overlap"])
def test_iterates_are_those_of_admm_with_dense_projections(tables, judge, monkeypatch, cut):
    """Also where the penalty changes on the way, at all parties in the same iteration."""
    split = CUTS[cut](tables.breast(30))
    penalties = [0.03] * 4 + [0.01] * 3 + [0.05] * 5
    monkeypatch.setattr(AdmmCoordinator, "_rho", lambda self, run: penalties[run.iteration - 1])
    trained = train(split, settings_of(loss="hinge", iterations=len(penalties)))
    w = Textbook(split, judge).run(penalties)
    assert np.abs(w).max() > 0.1
    np.testing.assert_allclose(judge.weights(trained.model, split)[0], w, atol=1e-10)


# ── the optimum ───────────────────────────────────────────────────────────────────────────


def check(judge, split, loss, how, within):
    trained = train(split, how)
    problem = judge.problem(loss, split, LAM)
    best = judge.optimum(problem)
    reached = problem.primal(judge.weights(trained.model, split)[0])
    assert reached == pytest.approx(best, rel=within)
    certificate = trained.result.certificate
    assert certificate.dual[0] <= best * (1 + 1e-7)
    assert certificate.primal[0] == pytest.approx(reached, rel=1e-8)
    assert "certified gap" in trained.result.stopped
    return trained


@every_value(cut=CUTS, loss=["logistic", "hinge"])
def test_it_reaches_and_certifies_the_optimum_on_every_cut(breast, judge, cut, loss):
    within = 1e-4 if loss == "logistic" else 1e-3
    how = settings_of(loss=loss, gap=within, iterations=400)
    check(judge, CUTS[cut](breast), loss, how, within)


@pytest.mark.parametrize(
    "loss", ["squared", "epsilon_insensitive", *before_release("absolute", "huber")]
)
def test_it_reaches_the_optimum_of_regression(tables, judge, loss):
    split = CUTS["2×2"](tables.diabetes(60))
    parameters = {"huber": {"g": 0.5}, "epsilon_insensitive": {"epsilon": 0.1}}.get(loss, {})
    how = settings_of(loss=loss, loss_parameters=parameters, gap=1e-3, iterations=400)
    check(judge, split, loss, how, 1e-3)


@pytest.mark.parametrize("rho", [0.002, 0.1])
def test_it_reaches_the_optimum_with_a_penalty_that_is_given(breast, judge, rho):
    how = settings_of(gap=1e-4, iterations=600, options={"rho": rho})
    check(judge, CUTS["2×2"](breast), "logistic", how, 1e-4)


def test_all_tiles_of_a_party_are_one_block(breast, judge):
    split = CUTS["3×3"](breast)
    tiles = list(split.parties.values())
    parties = {
        "a": tiles[0] + tiles[4],
        "b": tiles[1] + tiles[3] + tiles[8],
        "c": tiles[2] + tiles[5] + tiles[6] + tiles[7],
    }
    how = settings_of(loss="hinge", gap=1e-3, iterations=400)
    check(judge, replace(split, parties=parties), "hinge", how, 1e-3)


@pytest.mark.parametrize("cut", ["2×2", "overlap"])
def test_the_constant_column_is_one_more_feature_of_those_who_add_it(breast, judge, cut):
    split = CUTS[cut](breast)
    trained = train(split, settings_of(gap=1e-5, iterations=400), intercept=True)
    problem = judge.problem("logistic", split, LAM)
    problem = replace(problem, x=np.column_stack([problem.x, np.ones(problem.n)]))
    w = np.append(judge.weights(trained.model, split)[0], trained.model.intercept)
    assert abs(w[-1]) > 0.01
    assert problem.primal(w) == pytest.approx(judge.optimum(problem), rel=1e-5)


# ── what travels ──────────────────────────────────────────────────────────────────────────


def test_an_iteration_takes_one_round_trip(breast):
    history = train(CUTS["2×2"](breast), settings_of(iterations=9)).result.history
    assert history[7].round_trips - history[0].round_trips == 7


def test_a_penalty_that_makes_no_sense_is_refused(breast):
    with pytest.raises(ConfigError, match="rho is 0"):
        train(CUTS["2×2"](breast), settings_of(options={"rho": 0.0}))
