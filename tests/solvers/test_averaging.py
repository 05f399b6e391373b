"""FedAvg, FedProx and linear HyFEM: their steps, what they are on rows, what they miss on tiles."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from weft.data import SPLITS
from weft.errors import ConfigError
from weft.federation.local_federation import Federation, Preprocessing
from weft.losses import LOSSES, get_loss
from weft.losses.compiled_sample_losses import formula_of, slope, step
from weft.solvers.rounds.sequential_kernels import descend, shared_change
from weft.solvers.run_settings import Settings
from weft.solvers.shared_sample_draws import order_of, party_draw

NUMBER = st.floats(-3, 3, allow_subnormal=False)
#: Methods of first order need a bound on slope or curvature, and losses of one class.
BOUNDED = st.sampled_from(
    [name for name in LOSSES if get_loss(name).bounded and not get_loss(name).joint]
)


@hypothesis_settings(deadline=None, derandomize=True)
@given(NUMBER, st.sampled_from([-1.0, 1.0]), NUMBER, st.floats(0.01, 5), BOUNDED)
def test_compiled_losses_are_the_losses(z, y, alpha, q, name):
    loss = get_loss(name)
    formula = formula_of(loss)
    start = float(loss.project(np.array([alpha]), np.array([y]))[0])
    told = loss.dual_step(np.array([start]), np.array([z]), np.array([y]), q)[0]
    assert step(formula, start, z, y, q) == told
    assert slope(formula, z, y) == pytest.approx(
        float(loss.u(np.array([z]), np.array([y]))[0]), abs=1e-12
    )


@hypothesis_settings(deadline=None, derandomize=True)
@given(st.integers(1, 40), st.integers(1, 100), st.integers(0, 9))
def test_orders_are_whole_passes_and_what_a_party_draws(n, count, iteration):
    order = order_of(7, iteration, 3, n, count)
    assert len(order) == count
    whole, part = divmod(count, n)
    for k in range(whole):
        assert sorted(order[k * n : (k + 1) * n]) == list(range(n))
    drawn = party_draw(7, iteration, 3, n, part) if part else []
    assert sorted(order[whole * n :]) == sorted(drawn)


def test_nobody_is_drawn_twice():
    """Also where places in a small table of those drawn so far are taken."""
    for n, count in ((4, 2), (5, 4), (12, 8)):
        for iteration in range(2000):
            drawn = party_draw(3, iteration, 0, n, count).tolist()
            assert len(set(drawn)) == count
            assert set(drawn) <= set(range(n))


def test_orders_are_shuffled():
    orders = {tuple(order_of(1, iteration, 0, 5, 5)) for iteration in range(200)}
    assert len(orders) > 80  # of 120


@pytest.mark.parametrize("mu", [0.0, 0.7])
@pytest.mark.parametrize("rate", [0.05, 1.0 / 1.2])
def test_steps_of_descent_are_those_of_the_formula(mu, rate):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(9, 4)) * (rng.random((9, 4)) < 0.6)
    y = np.sign(rng.normal(size=(9, 2)))
    lam, loss = 0.5, get_loss("logistic")
    rows = sp.csr_array(x)
    order = np.array([3, 1, 8, 3, 0], np.int32)
    start = rng.normal(size=(4, 2))
    w, used = start.copy(), np.zeros((9, 2))
    packed = (rows.indptr, rows.indices, rows.data)
    descend(packed, order, y, formula_of(loss), rate, lam, mu, w, used)
    slow = start.copy()
    for i in order:
        u = loss.u(x[i] @ slow, y[i])
        slow = slow - rate * (lam * slow + mu * (slow - start) - x[i][:, None] * u)
    np.testing.assert_allclose(w, slow, rtol=1e-12, atol=1e-13)
    assert (used != 0).any(axis=1).tolist() == [i in order for i in range(9)]


def test_a_change_that_is_no_number_shows():
    w = np.array([[1.0], [np.nan], [2.0]])
    change = np.zeros((3, 1))
    cohort = np.zeros(3, np.int32)
    largest = shared_change(np.zeros((3, 1)), w, 1, np.array([2]), 1, 3, cohort, change)
    assert largest == math.inf


# ── on tables ─────────────────────────────────────────────────────────────────────────────


def train(split, preprocessing=None, **settings):
    how = {"loss": "logistic", "lam": 1e-2, "gap": None, "iterations": 30, "cipher": "plain"}
    federation = Federation(split.parties, preprocessing or Preprocessing(overlap=split.overlap))
    return federation.train(Settings(**{**how, **settings}))


def test_hyfem_prox_with_all_features_is_fedprox_to_the_bit(tables):
    split = SPLITS["rows"](tables.breast(200), parties=4)
    how = {"mu": 0.3, "a": 0.5, "average": "equal"}
    prox = train(split, solver="fedprox", options=how, iic=0.5)
    hyfem = train(split, solver="hyfem", options=how, iic=0.5)
    assert prox.model.coef.tobytes() == hyfem.model.coef.tobytes()
    assert prox.result.certificate == hyfem.result.certificate
    # The weights of a mean are the only difference: parties of equal size weigh the same.
    weighted = train(split, solver="hyfem", options={**how, "average": "samples"}, iic=0.5)
    np.testing.assert_allclose(weighted.model.coef, prox.model.coef, rtol=1e-9)


def test_one_full_step_on_rows_is_gradient_descent(tables, judge):
    split = SPLITS["rows"](tables.breast(200), parties=4)
    trained = train(split, solver="fedavg", options={"gradient": "full", "a": 0.8}, iterations=25)
    problem = judge.problem("logistic", split, 1e-2)
    w = np.zeros(problem.x.shape[1])
    for _ in range(25):
        slope = problem.lam * w + problem.x.T @ problem.slopes(problem.x @ w) / problem.n
        w = w - 0.8 * slope
    np.testing.assert_allclose(judge.weights(trained.model, split)[0], w, rtol=1e-7, atol=1e-9)


@pytest.mark.release
def test_several_local_steps_on_unlike_rows_end_beside_the_optimum(tables, judge):
    """What FedAvg is known for: local steps pull towards local minima.

    That averages of tiles end somewhere else is in ``test_every_method.py`` with every change.
    """
    table = tables.breast(120)
    ordered = table.rows(np.argsort(table.labels, kind="stable")).to_tile()
    parts = {f"p{k}": (ordered.rows(slice(30 * k, 30 * k + 30)),) for k in range(4)}
    split = replace(SPLITS["rows"](table, parties=4), parties=parts)
    problem = judge.problem("logistic", split, 1e-3)
    best = judge.optimum(problem)

    def distance(steps, iterations):
        options = {"gradient": "full", "steps": steps, "a": 4.0}
        how = {"iterations": iterations, "certify_every": iterations, "lam": 1e-3}
        trained = train(split, solver="fedavg", options=options, **how)
        return problem.primal(judge.weights(trained.model, split)[0]) / best - 1

    assert distance(1, 1000) < 1e-5
    stuck = distance(40, 60)
    assert stuck > 5e-5
    # More iterations bring it no nearer.
    assert distance(40, 90) == pytest.approx(stuck, rel=0.05)


def test_the_mean_over_those_who_take_part_is_that_of_the_formula(tables):
    """One iteration with two of four parties, against numpy."""
    table = tables.breast(40)
    split = SPLITS["rows"](table, parties=4)
    names = list(split.parties)
    trained = train(
        split,
        solver="fedavg",
        options={"gradient": "full", "a": 1.0},
        iterations=1,
        participation={"trace": [[names[1], names[3]], names]},
    )
    moved = []
    for name in (names[1], names[3]):
        tile = split.parties[name][0]
        y = np.where(tile.labels == max(table.labels), 1.0, -1.0)
        moved.append((np.asarray(tile.block) * y[:, None]).mean(axis=0) / 2)
    np.testing.assert_allclose(trained.model.coef[0], np.mean(moved, axis=0), atol=1e-9)


@pytest.mark.parametrize(
    ("solver", "options", "sentence"),
    [
        ("fedavg", {"a": -1.0}, "give a above 0"),
        ("fedavg", {"mu": 1.0}, "do not fit .*it knows a, b, gradient, steps, average"),
        ("fedprox", {"mu": -1.0}, "mu is -1; give at least 0"),
        ("hyfem", {"variant": "both"}, "the options of solver 'hyfem' do not fit"),
        ("fedavg", {"gradient": "full", "steps": 0}, "give at least 1 local step"),
    ],
)
def test_options_that_make_no_sense_are_refused(tables, solver, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        train(SPLITS["rows"](tables.breast(40), parties=2), solver=solver, options=options)


def test_steps_that_run_away_end_in_a_sentence(tables):
    split = SPLITS["rows"](tables.diabetes(40), parties=2)
    with pytest.raises(Exception, match="grow without end under solver 'fedavg'; give it smaller"):
        train(split, loss="squared", solver="fedavg", options={"a": 1e6}, iterations=200)
