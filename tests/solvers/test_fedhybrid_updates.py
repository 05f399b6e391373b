"""FedHybrid's local functions, updates and step rules, against plain numpy and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from covering import examples
from weft.errors import ConfigError, DataError
from weft.losses import get_loss
from weft.solvers.fedhybrid import local_function as local
from weft.solvers.fedhybrid.local_function import LocalFunction, sample_weight
from weft.solvers.fedhybrid.step_sizes import Fixed, Pair, Safeguard
from weft.solvers.fedhybrid.updates import State, newton_update, stand
from weft.sums.party_table_products import DensePiece, LocalTable

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


@examples(25, deadline=None)
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
    assert np.mean([function.value(x).sum() for function in functions]) == pytest.approx(expected)
    assert pooled != pytest.approx(by_party)


@examples(25, deadline=None)
@given(seed=st.integers(0, 10_000), loss=st.sampled_from(["squared", "logistic"]))
def test_the_mean_residual_bounds_the_gradient_wherever_the_parties_stand(seed, loss):
    made, mu = parties(loss, seed=seed), 0.3
    rng = np.random.default_rng(seed)
    shape = made[0][2].shape
    states = [State(rng.normal(size=shape), rng.normal(size=shape)) for _ in made]
    x0 = np.mean([state.share(mu) for state in states], axis=0)
    residuals = [
        stand(function, state, x0, mu).residual
        for (*_, function), state in zip(made, states, strict=True)
    ]
    for c in range(2):
        slopes = [formulas(loss, block, y[:, c], x0[:, c])[1] for block, y, _ in made]
        assert np.linalg.norm(np.mean(slopes, axis=0)) <= np.mean(residuals, axis=0)[c] + 1e-12


def test_the_safeguard_bears_fluctuations_and_minds_growth():
    guard = Safeguard()
    assert not any(guard.too_long(r) for r in (5.0, 1.0, 8.0, 0.5, 4.0))
    assert guard.too_long(5.1)
    assert not guard.too_long(40.0)
    assert guard.too_long(float("nan"))


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


def test_what_cannot_work_is_refused_early():
    with pytest.raises(ConfigError, match="hinge has one"):
        LocalFunction(table(np.eye(2)), np.ones((2, 1)), get_loss("hinge"), LAM, 1.0)
    with pytest.raises(DataError, match="no labelled sample"):
        sample_weight("parties", 3, 0, 10)
    with pytest.raises(ConfigError, match="positive numbers"):
        Fixed(1.0, Pair(0.1, 0.0), Pair(1.0, 0.1))
