"""The four set-ups of the FedHybrid paper: as it describes them, and what its Figure 2 shows."""

from __future__ import annotations

import numpy as np
import pytest

from weft.data import pool
from weft.errors import ConfigError
from weft.losses import get_loss
from weft_papers.data.synthetic import one_sided_logistic, party_sizes, scaled_squares
from weft_papers.fedhybrid.runs_tracked_to_optimum import Workbench
from weft_papers.fedhybrid.setups import fedhybrid_setup


def labels_held(split):
    return [frozenset(tiles[0].labels.tolist()) for tiles in split.parties.values()]


def sides(split):
    held = labels_held(split)
    return tuple(held.count(frozenset(kind)) for kind in ([-1], [1], [-1, 1]))


def test_sizes_of_synthetic_parties_are_log_normal_from_fifty_and_cut_at_a_thousand():
    sizes = party_sizes(4000, np.random.default_rng(0))
    assert (sizes.min(), sizes.max()) == (50, 1000)
    assert 95 < np.median(sizes) < 115  # 50 + e⁴


def test_synthetic_least_squares_has_one_model_and_rows_of_all_sizes():
    split = scaled_squares(seed=1)
    assert [tiles[0].m for tiles in split.parties.values()] == [30] * 20
    table = pool(split)
    model, (left,), *_ = np.linalg.lstsq(table.block, table.labels, rcond=None)
    assert left / table.n == pytest.approx(0.25, rel=0.15)  # the noise is 0.5
    assert 0.4 < model.std() < 1.8
    scale = [np.abs(tiles[0].block).max() for tiles in split.parties.values()]
    assert max(scale) > 10 * min(scale)
    # η_i may be negative, and a party's cells all have its sign.
    signs = [set(np.sign(tiles[0].block).ravel().tolist()) for tiles in split.parties.values()]
    assert {frozenset(s) for s in signs} == {frozenset({1.0}), frozenset({-1.0})}


def test_synthetic_logistic_parties_have_the_labels_they_should():
    split = one_sided_logistic(seed=2)
    assert sides(split) == (11, 8, 1)
    assert pool(split).m == 30
    spread = np.mean([tiles[0].block.var(axis=0) for tiles in split.parties.values()], axis=0)
    # Σ_jj = j^−1.2; keeping one side of a plane takes a little off.
    np.testing.assert_allclose(spread[5:], np.arange(6, 31) ** -1.2, rtol=0.35)


@pytest.mark.parametrize("name", ["synthetic_squares", "synthetic_logistic"])
def test_seeds_make_set_ups_and_the_same_one_the_same(name):
    first, again, other = (pool(fedhybrid_setup(name, seed).split) for seed in (3, 3, 4))
    assert np.array_equal(first.block, again.block)
    assert np.array_equal(first.labels, again.labels)
    assert first.block.shape != other.block.shape or not np.array_equal(first.block, other.block)


def test_boston_is_standardised_with_a_constant_and_sorted_by_response(data_dir):
    split = fedhybrid_setup("boston", 0, data_dir).split
    table = pool(split)
    assert (len(split.parties), table.block.shape) == (8, (506, 14))
    np.testing.assert_allclose(table.block[:, :13].mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(table.block[:, :13].std(axis=0), 1)
    assert (table.block[:, 13] == 1).all()
    assert (np.diff(table.labels) >= 0).all()


def test_mushroom_parties_have_one_label_but_for_one(data_dir):
    split = fedhybrid_setup("mushroom", 0, data_dir).split
    table = pool(split)
    assert (sides(split), table.block.shape) == ((4, 3, 1), (5644, 99))
    np.testing.assert_allclose(np.linalg.norm(table.block, axis=1), 1)


def test_an_unknown_set_up_is_refused():
    with pytest.raises(ConfigError, match="synthetic_squares, boston"):
        fedhybrid_setup("iris")


# With every change `weft reproduce fedhybrid --quick` compares the same methods.
@pytest.mark.release
def test_more_newton_parties_need_fewer_iterations_on_boston(data_dir):
    setup = fedhybrid_setup("boston", 0, data_dir)
    workbench = Workbench(setup.split, setup.loss, setup.lam, "samples")
    taken = [
        workbench.run("fedhybrid", {"newton": setup.newton(k)}, 150, near=1e-4).reached(1e-4)
        for k in (0, 4, 8)
    ]
    assert taken == sorted(taken, reverse=True)
    assert taken[-1] * 4 < taken[0]
    # FedAvg with full gradients is gradient descent; at nearly the longest step that is stable.
    bend = np.linalg.eigvalsh(workbench.problem.x.T @ workbench.problem.x / 506)[-1] + setup.lam
    options = {"gradient": "full", "average": "samples", "a": float(1.9 / bend)}
    descent = workbench.run("fedavg", options, 3 * taken[-1])
    assert descent.reached(1e-4) is None
    assert descent.reached(1.0) is not None


@pytest.mark.parametrize("weigh", ["samples", "parties"])
def test_distances_of_a_trial_are_those_of_the_pooled_problem(weigh):
    """FedAvg with full gradients is gradient descent on P, which numpy can follow."""
    split = scaled_squares(4, 3, seed=5)
    workbench = Workbench(split, get_loss("squared"), 0.1, weigh)
    average = "samples" if weigh == "samples" else "equal"
    run = workbench.run("fedavg", {"gradient": "full", "average": average, "a": 0.3}, 5)
    held = [tiles[0] for tiles in split.parties.values()]
    total = sum(tile.n for tile in held)
    shares = [tile.n / total if weigh == "samples" else 1 / 4 for tile in held]

    def primal(w):
        losses = [((tile.block @ w - tile.labels) ** 2).mean() / 2 for tile in held]
        return 0.05 * w @ w + np.dot(shares, losses)

    hessian = sum(s * t.block.T @ t.block / t.n for s, t in zip(shares, held, strict=True))
    hessian += 0.1 * np.eye(3)
    target = sum(s * t.block.T @ t.labels / t.n for s, t in zip(shares, held, strict=True))
    best, w, expected = primal(np.linalg.solve(hessian, target)), np.zeros(3), []
    for _ in range(6):
        expected.append(primal(w) / best - 1)
        w = w - 0.3 * (hessian @ w - target)
    np.testing.assert_allclose(run.distances, expected, rtol=1e-7)
    assert run.updates.tolist() == [0, 1, 2, 3, 4, 5]
    assert np.diff(run.round_trips).tolist() == [1] * 5
