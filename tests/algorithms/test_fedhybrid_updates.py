"""FedHybrid's updates, local functions and step rules, against plain numpy and closed forms."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from weft.algorithms.fedhybrid import local
from weft.algorithms.fedhybrid.local import LocalFunction, sample_weight
from weft.algorithms.fedhybrid.simulation import Simulation, draws
from weft.algorithms.fedhybrid.steps import Auto, Fixed, Pair, Safeguard, grid, tuned
from weft.algorithms.fedhybrid.updates import State, gap_bound, newton_update, stand
from weft.data.synthetic import scaled_squares
from weft.errors import ConfigError, DataError
from weft.experiments.fedhybrid import Setup
from weft.losses import get_loss
from weft.sums.local_table import DensePiece, LocalTable

LAM = 0.02


def table(block):
    n, d = block.shape
    piece = DensePiece(block, np.arange(n, dtype=np.int32), np.arange(d, dtype=np.int32), n, d)
    return LocalTable(n, d, [piece], (block**2).sum(axis=1, keepdims=True))


def parties(loss, count=4, columns=3, classes=2, seed=0, scale=2.0):
    """Blocks, labels and functions of parties whose rows differ in size."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        block = rng.normal(size=(6 + 3 * i, columns)) * scale ** rng.normal()
        y = np.sign(rng.normal(size=(len(block), classes)))
        weight = 1.0 / len(block)
        made.append((block, y, LocalFunction(table(block), y, get_loss(loss), LAM, weight)))
    return made


def formulas(loss, block, y, x):
    """Mean loss + λ/2‖x‖²: value, gradient and Hessian of one class, written out."""
    z = block @ x
    if loss == "squared":
        value, slope, bend = (z - y) ** 2 / 2, z - y, np.ones_like(z)
    else:
        value, slope = np.logaddexp(0, -y * z), -y * expit(-y * z)
        bend = expit(z) * expit(-z)
    hessian = (block.T * bend) @ block / len(y) + LAM * np.eye(len(x))
    return value.mean() + LAM / 2 * x @ x, block.T @ slope / len(y) + LAM * x, hessian


def reference(loss, made, newton, mu, steps, iterations):
    """Algorithm 1 line by line, one class at a time; (x₀, x, λ) stacked over classes."""
    ends = []
    for c in range(made[0][1].shape[1]):
        n, d = len(made), made[0][0].shape[1]
        x, lam, x0 = np.zeros((n, d)), np.zeros((n, d)), np.zeros(d)
        for _ in range(iterations):
            x_new, lam_new = x.copy(), lam.copy()
            for i, (block, y, _) in enumerate(made):
                _, slope, hessian = formulas(loss, block, y[:, c], x[i])
                d_i = hessian + mu * np.eye(d) if newton[i] else np.eye(d)
                a, b = steps[int(newton[i])]
                x_new[i] = x[i] - a * np.linalg.solve(d_i, slope - lam[i] + mu * (x[i] - x0))
                lam_new[i] = lam[i] + b * d_i @ (x0 - x[i])
            x, lam = x_new, lam_new
            x0 = x.sum(axis=0) / n - lam.sum(axis=0) / (mu * n)
        ends.append((x0, x, lam))
    return [np.stack(parts, axis=-1) for parts in zip(*ends, strict=True)]


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("newton", [[False] * 4, [True, False, True, False], [True] * 4])
def test_updates_are_those_of_algorithm_1(loss, newton):
    made = parties(loss)
    mu, steps = 0.7, [(0.05, 0.2), (0.8, 0.1)]
    rule = Fixed(mu, Pair(*steps[0]), Pair(*steps[1]))
    run = Simulation([function for *_, function in made], newton).run(rule)
    *_, last = islice(run, 7)
    x0, x, lam = reference(loss, made, newton, mu, steps, 7)
    np.testing.assert_allclose(last.x0, x0, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([s.x for s in last.states], x, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([s.multiplier for s in last.states], lam, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_values_gradients_and_hessians_are_those_written_out(loss):
    (block, y, function), *_ = parties(loss)
    x = np.random.default_rng(1).normal(size=function.shape)
    v = np.random.default_rng(2).normal(size=function.shape)
    system = function.system(x, 0.3)
    for c in range(2):
        value, slope, hessian = formulas(loss, block, y[:, c], x[:, c])
        assert function.value(x)[c] == pytest.approx(value)
        np.testing.assert_allclose(function.gradient(x)[:, c], slope)
        assert function.bend(x, v)[c] == pytest.approx(v[:, c] @ hessian @ v[:, c])
        shifted = hessian + 0.3 * np.eye(3)
        np.testing.assert_allclose(system.times(v)[:, c], shifted @ v[:, c])
        np.testing.assert_allclose(system.solve(v)[:, c], np.linalg.solve(shifted, v[:, c]))


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_many_columns_give_the_same_without_a_matrix(loss, monkeypatch):
    (_, _, dense), *_ = parties(loss, columns=5)
    (_, _, sparse), *_ = parties(loss, columns=5)
    x = np.random.default_rng(1).normal(size=dense.shape)
    right = np.random.default_rng(2).normal(size=dense.shape)
    expected, known = dense.system(x, 0.3), dense.curvature
    monkeypatch.setattr(local, "DENSE_COLUMNS", 4)
    system = sparse.system(x, 0.3)
    assert type(system) is not type(expected)
    np.testing.assert_allclose(system.times(right), expected.times(right))
    np.testing.assert_allclose(system.solve(right), expected.solve(right), rtol=1e-7)
    bound = sparse.curvature
    assert known.upper <= bound.upper <= 1.02 * known.upper
    assert bound.lower == LAM


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), loss=st.sampled_from(["squared", "logistic", "huber"]))
def test_bounds_enclose_the_hessian_everywhere(seed, loss):
    (_, _, function), *_ = parties(loss, seed=seed)
    x = 3.0 * np.random.default_rng(seed).normal(size=function.shape)
    v = np.random.default_rng(seed + 1).normal(size=function.shape)
    share = function.bend(x, v) / (v * v).sum(axis=0)
    bound = function.curvature
    assert (bound.lower <= share * (1 + 1e-9)).all()
    assert (share <= bound.upper * (1 + 1e-9)).all()


def test_bounds_of_least_squares_are_the_extreme_eigenvalues():
    (block, y, function), *_ = parties("squared")
    eigenvalues = np.linalg.eigvalsh(formulas("squared", block, y[:, 0], np.zeros(3))[2])
    assert function.curvature.lower == pytest.approx(eigenvalues[0])
    assert function.curvature.upper == pytest.approx(eigenvalues[-1])


@pytest.mark.parametrize("weighting", ["samples", "parties"])
def test_both_weightings_have_the_mean_objective_they_promise(weighting):
    rng = np.random.default_rng(0)
    blocks = [rng.normal(size=(rows, 3)) for rows in (5, 40, 9)]
    labels = [np.sign(rng.normal(size=(len(block), 1))) for block in blocks]
    total = sum(len(block) for block in blocks)
    functions = [
        LocalFunction(
            table(block), y, get_loss("logistic"), LAM, sample_weight(weighting, 3, len(y), total)
        )
        for block, y in zip(blocks, labels, strict=True)
    ]
    x = rng.normal(size=(3, 1))
    losses = [np.logaddexp(0, -y * (b @ x)) for b, y in zip(blocks, labels, strict=True)]
    pooled = np.concatenate(losses).mean()
    by_party = np.mean([part.mean() for part in losses])
    expected = (pooled if weighting == "samples" else by_party) + LAM / 2 * float((x * x).sum())
    mean = Simulation(functions, [True] * 3).objective(x)
    assert mean == pytest.approx(expected)
    assert pooled != pytest.approx(by_party)


def optimum(functions):
    """P* of 1/n Σ f_i for one class, by scipy."""
    shape = functions[0].shape
    n = len(functions)

    def value(w):
        x = w.reshape(shape)
        slopes = sum(function.gradient(x) for function in functions) / n
        return sum(function.value(x).sum() for function in functions) / n, slopes.ravel()

    options = {"maxiter": 10_000, "ftol": 1e-16, "gtol": 1e-12}
    return scipy.optimize.minimize(
        value, np.zeros(shape[0] * shape[1]), jac=True, method="L-BFGS-B", options=options
    ).fun


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
@pytest.mark.parametrize("newton", [0, 2, 4])
@pytest.mark.parametrize("share", [1.0, 0.4])
def test_auto_steps_reach_the_optimum_with_everyone_and_with_some(loss, newton, share):
    functions = [function for *_, function in parties(loss, scale=1.5)]
    simulation = Simulation(functions, [i < newton for i in range(4)])
    run = simulation.run(simulation.auto(), draws(4, share, seed=3))
    best = optimum(functions)
    lower = np.mean([function.curvature.lower for function in functions])
    before = np.zeros(functions[0].shape)
    for moment in islice(run, 800):
        # The residual is that of the point the parties were given: the one before.
        gap = simulation.objective(before) - best
        if share == 1.0:
            assert gap <= gap_bound(moment.residual, lower).sum() + 1e-12
        before = moment.x0
        if gap <= 1e-8 * best:
            break
    assert gap <= 1e-8 * best


def test_ten_newton_parties_reach_two_billionths_within_300_iterations():
    setup = Setup("ten", scaled_squares(10), get_loss("squared"), 1e-2, ())
    functions = setup.functions("samples")
    simulation = Simulation(functions, [True] * 10)
    system = sum(f.system(np.zeros(f.shape), 0.0).times(np.eye(30)) for f in functions)
    slope = -sum(f.gradient(np.zeros(f.shape)) for f in functions)
    best = simulation.objective(np.linalg.solve(system, slope))
    *_, last = islice(simulation.run(simulation.auto()), 300)
    assert simulation.objective(last.x0) - best <= 2e-9


def test_the_safeguard_brings_back_steps_that_are_far_too_long():
    functions = [function for *_, function in parties("squared")]
    simulation = Simulation(functions, [True, True, False, False])
    auto = simulation.auto()
    wild = Auto(auto.mu, auto.upper, primal=30.0, dual=30.0)
    *_, last = islice(simulation.run(wild), 1500)
    best = optimum(functions)
    assert simulation.objective(last.x0) - best <= 1e-6 * best
    fixed = Fixed(wild.mu, wild.own(functions[3].curvature, False), wild.own(None, True))
    with np.errstate(all="ignore"):
        *_, lost = islice(simulation.run(fixed), 60)
        assert not simulation.objective(lost.x0) < 1e6


def test_the_safeguard_bears_fluctuations_and_minds_growth():
    guard = Safeguard()
    assert not any(guard.too_long(r) for r in (5.0, 1.0, 8.0, 0.5, 4.0))
    assert guard.too_long(5.1)
    assert not guard.too_long(40.0)
    assert guard.too_long(float("nan"))


def test_parties_not_heard_yet_leave_the_residual_unknown_and_the_steps_alone():
    functions = [function for *_, function in parties("squared")]
    simulation = Simulation(functions, [True] * 4)
    late = [np.arange(4) < present for present in (0, 1, 4, *[4] * 40)]
    moments = list(islice(simulation.run(simulation.auto(), iter(late)), 43))
    assert [np.isfinite(m.residual).all() for m in moments[:3]] == [False, False, True]
    rule = simulation.auto()
    fixed = Fixed(rule.mu, Pair(1.0, 1.0), rule.own(functions[0].curvature, True))
    *_, same = islice(simulation.run(fixed, iter(late)), 43)
    np.testing.assert_array_equal(moments[-1].x0, same.x0)


def test_a_newton_step_is_cut_where_a_full_one_would_rise():
    """Logistic margins far out: the curvature is nearly nil there and a full step flies away."""
    block, y = np.array([[1.0]]), np.array([[1.0]])
    function = LocalFunction(table(block), y, get_loss("logistic"), 1e-6, 1.0)
    state, x0, mu = State(np.full((1, 1), -12.0), np.zeros((1, 1))), np.zeros((1, 1)), 1e-6
    here = stand(function, state, x0, mu)

    def augmented(x):
        return float(function.value(x)[0] + mu / 2 * ((x - x0) ** 2).sum())

    full = newton_update(function, state, here, x0, mu, Pair(1.0, 0.1)).x
    cut = newton_update(function, state, here, x0, mu, Pair(1.0, 0.1, 1.0)).x
    assert augmented(full) > augmented(state.x)
    assert augmented(cut) < augmented(state.x)


def test_tuning_takes_the_best_of_the_grid():
    functions = [function for *_, function in parties("squared")]
    simulation = Simulation(functions, [True, False, False, False])
    rules = grid(simulation.auto(), mus=(0.3, 1.0, 3.0), primals=(1.0,), duals=(0.5, 1.0, 40.0))

    def score(rule):
        *_, last = islice(simulation.run(rule), 25)
        return simulation.objective(last.x0)

    best = tuned(rules, score)
    assert len(rules) == 9
    assert all(not score(rule) < score(best) for rule in rules)
    with pytest.raises(ConfigError, match="widen the grid"):
        tuned(rules, lambda rule: float("nan"))


def test_what_cannot_work_is_refused_early():
    with pytest.raises(ConfigError, match="hinge has one"):
        LocalFunction(table(np.eye(2)), np.ones((2, 1)), get_loss("hinge"), LAM, 1.0)
    with pytest.raises(DataError, match="no labelled sample"):
        sample_weight("parties", 3, 0, 10)
    with pytest.raises(ConfigError, match="positive numbers"):
        Fixed(1.0, Pair(0.1, 0.0), Pair(1.0, 0.1))
