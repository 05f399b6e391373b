"""FedHybrid by the paper's rules: a grid of constant steps takes the steps of a federation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.losses import get_loss
from weft_papers.fedhybrid.constant_step_grid import Grid, Rows
from weft_papers.fedhybrid.paper_search import best_fedavg, best_fedhybrid, candidates
from weft_papers.fedhybrid.replication_results_page import page
from weft_papers.fedhybrid.run_by_paper_rules import KEY, read_runs
from weft_papers.fedhybrid.runs_tracked_to_optimum import Workbench
from weft_papers.fedhybrid.setups import tiny_setup

COMMITTED = Path(__file__).parents[2] / "docs" / "results" / "fedhybrid"
STEPS = {"mu": 0.3, "gradient_a": 0.2, "gradient_b": 0.1, "newton_a": 0.9, "newton_b": 0.05}


@pytest.fixture(scope="module")
def bench():
    setup = tiny_setup()
    return Workbench(setup.split, setup.loss, setup.lam, "parties")


def test_a_candidate_takes_the_steps_of_a_federation(bench):
    """Beside one that diverges, with one of three parties Newton-type."""
    options = {
        "newton": ["p2"],
        "steps": "fixed",
        "mu": STEPS["mu"],
        "a": [STEPS["gradient_a"], STEPS["newton_a"]],
        "b": [STEPS["gradient_b"], STEPS["newton_b"]],
    }
    federated = bench.run("fedhybrid", options, 20)
    tried = candidates([STEPS, {**STEPS, "gradient_a": 1e9}])
    found = Grid(bench).fedhybrid(["p2"], tried, 20).errors
    np.testing.assert_allclose(found[:, 0], federated.errors, rtol=1e-4)
    assert np.isinf(found[-1, 1])


def test_fedavg_is_gradient_descent(bench):
    problem, w = bench.problem, np.zeros((4, 1))
    for _ in range(5):
        w = w - 0.2 * problem.gradient(w)
    best = bench.optimum.w
    expected = np.linalg.norm(w - best) / np.linalg.norm(best)
    found = Grid(bench).fedavg(np.array([0.01, 0.2]), 5, losses=True).errors[-1]
    assert found[1] == pytest.approx(expected)


def test_the_search_ends_with_steps_that_no_single_value_of_the_grid_betters(bench):
    grid = Grid(bench)
    chosen = best_fedhybrid(grid, ["p2"], 15, [STEPS])
    least = grid.fedhybrid(["p2"], candidates([chosen]), 15).errors[-1, 0]
    for name in STEPS:
        others = [{**chosen, name: value} for value in (1e-3, 1e-2, 1e-1, 1.0)]
        other = grid.fedhybrid(["p2"], candidates(others), 15).errors[-1].min()
        assert least <= other * (1 + 1e-9)
    assert best_fedavg(grid, 15) <= 1


def test_newton_solves_with_the_hessian_of_the_gradient():
    """Against differences of gradients, at another point for every candidate."""
    random = np.random.default_rng(0)
    labels = np.sign(random.normal(size=9))
    rows = Rows(random.normal(size=(9, 3)), labels, 1 / 9, get_loss("logistic"), 0.1)
    x, right, apart = random.normal(size=(3, 3, 2))
    mu = np.array([0.2, 2.0])
    solved, times = rows.newton(x, mu, right, apart)

    def bent(direction):
        step = 1e-6 * direction
        return (rows.gradient(x + step) - rows.gradient(x - step)) / 2e-6 + mu * direction

    np.testing.assert_allclose(times, bent(apart), rtol=1e-6)
    np.testing.assert_allclose(bent(solved), right, rtol=1e-6)


def test_gradients_of_some_rows_are_those_of_all_on_average():
    random = np.random.default_rng(1)
    block, labels = random.normal(size=(4, 2)), random.normal(size=4)
    rows = Rows(block, labels, 1 / 4, get_loss("squared"), 0.1)
    x = random.normal(size=(2, 1))
    drawn = [rows.some(0.5, random).gradient(x) for _ in range(4000)]
    spread = np.std(drawn, axis=0) / np.sqrt(len(drawn))
    assert (np.abs(np.mean(drawn, axis=0) - rows.gradient(x)) < 5 * spread).all()


def test_the_committed_page_is_that_of_its_runs():
    runs = read_runs(COMMITTED / "runs.jsonl")
    assert page(runs) == (COMMITTED / "README.md").read_text(encoding="utf-8")
    assert len({tuple(run[name] for name in KEY) for run in runs}) == len(runs)
