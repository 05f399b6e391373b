"""``weft reproduce fedhybrid``: the table, its files, and what happens without data."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from weft.losses import get_loss
from weft_papers.data.synthetic import scaled_squares
from weft_papers.fedhybrid import setups
from weft_papers.fedhybrid.methods_comparison import Outcome, Study, fedh
from weft_papers.fedhybrid.option_by_option_search import tune
from weft_papers.fedhybrid.report import rows_of
from weft_papers.fedhybrid.runs_tracked_to_optimum import TrackedRun, Workbench


@pytest.mark.release
@pytest.mark.usefixtures("no_pictures")
def test_quick_compares_all_methods_and_writes_what_it_found(weft, tmp_path):
    done = weft("reproduce", "fedhybrid", "--quick", "--out", "found")
    assert done.code == 0, done.err
    assert "one exchange of its conjugate gradients" in done.out
    folder = tmp_path / "found"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "table.csv",
        "curves.csv",
        "summary.json",
        "README.md",
        "figure-1.png",
        "figure-2.png",
    }
    summary = json.loads((folder / "summary.json").read_text())
    rows = {row["method"]: row for row in summary["rows"]}
    assert list(rows) == [
        "FedAvg",
        "DiSCO",
        "DiSCO diagonal",
        "DiSCO none",
        "FedH-G",
        "FedH-N",
    ]
    # All reach the optimum, which no federation found, and the table says what the curves say.
    curves = pd.read_csv(folder / "curves.csv")
    for name, row in rows.items():
        curve = curves[curves["method"] == name]
        near = curve[curve["distance"] <= 1e-6].iloc[0]
        assert row["iterations_fine"] == near["iteration"], name
        assert row["round_trips_fine"] == near["round_trips"], name
        assert row["updates_fine"] == near["updates"], name
        assert str(row["iterations_fine"]) in done.out
    assert rows["FedH-N"]["iterations_fine"] < rows["FedH-G"]["iterations_fine"]
    # An iteration of DiSCO is an exchange: Newton steps are fewer.
    assert rows["DiSCO"]["updates_fine"] < rows["DiSCO"]["iterations_fine"]
    assert summary["optima"]["tiny"]["primal"] == pytest.approx(closed_form(), rel=1e-9)
    assert weft("reproduce", "fedhybrid", "--quick", "--out", "found").code == 2


def closed_form():
    """P* of the tiny set-up, every party weighing the same."""
    held = [tiles[0] for tiles in scaled_squares(3, 4, seed=0).parties.values()]
    x = np.vstack([tile.block / np.sqrt(3 * tile.n) for tile in held])
    y = np.concatenate([tile.labels / np.sqrt(3 * tile.n) for tile in held])
    w = np.linalg.solve(x.T @ x + 0.1 * np.eye(4), x.T @ y)
    return 0.05 * w @ w + ((x @ w - y) ** 2).sum() / 2


def untuned(study):
    """One run instead of a comparison."""
    run = study.workbench.run("fedhybrid", {}, 30, near=1e-7)
    yield Outcome(study.setup.name, study.seed, "FedH-N", 3, run)


@pytest.mark.usefixtures("no_pictures")
def test_set_ups_without_their_data_are_named_with_a_way_to_get_them(weft, monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_DATA", "nowhere")
    alone = weft("reproduce", "fedhybrid", "--setup", "boston")
    assert alone.code == 2
    assert "boston/boston_house_prices.csv" in alone.err
    tiny = {"tiny": lambda seed, folder: setups.tiny_setup(seed), "boston": setups.SETUPS["boston"]}
    monkeypatch.setattr(setups, "SETUPS", tiny)
    monkeypatch.setattr(Study, "outcomes", untuned)
    some = weft("reproduce", "fedhybrid", "--seeds", 2, "--weigh", "samples", "--out", "two")
    assert some.code == 0
    assert "not run: boston" in some.out
    assert "WEFT_DATA" in some.out
    assert json.loads((tmp_path / "two" / "summary.json").read_text())["seeds"] == 2


def test_an_unknown_set_up_is_refused(weft):
    done = weft("reproduce", "fedhybrid", "--setup", "iris")
    assert done.code == 2
    assert "synthetic_squares, boston" in done.err


def tracked(distances):
    length = len(distances)
    trips = np.arange(7, 7 + length)
    found = np.array(distances)
    return TrackedRun("fedhybrid", {}, found, found, found, trips, np.arange(length))


def test_rows_hold_medians_over_seeds_and_say_where_most_runs_never_came():
    runs = [[1, 1e-5], [1, 1e-5, 1e-7], [1, 1e-1, 1e-5]]
    outcomes = [Outcome("s", k, "FedH-N", 3, tracked(run)) for k, run in enumerate(runs)]
    (row,) = rows_of(outcomes)
    assert (row.iterations_coarse, row.round_trips_coarse) == (1, 8)
    assert (row.iterations_fine, row.round_trips_fine, row.updates_fine) == (None, None, None)


def test_the_search_finds_the_best_steps_of_its_grid():
    """FedAvg on one quadratic is gradient descent: the best rate is 2/(ℓ + m)."""
    split = scaled_squares(3, 2, seed=1)
    workbench = Workbench(split, get_loss("squared"), 0.5, "samples")
    x, p = workbench.problem.x, workbench.problem.p
    low, *_, high = np.linalg.eigvalsh((x.T * p) @ x + 0.5 * np.eye(2)).tolist()
    grid = [factor / (low + high) for factor in (0.5, 1.0, 2.0, 2.3, 40.0)]
    options = {"gradient": "full", "average": "samples", "a": grid[0]}
    best = tune(workbench, "fedavg", [options], {"a": grid}, iterations=40, near=1e-6)
    assert best.options["a"] == grid[2]
    short = tune(workbench, "fedavg", [options], {"a": grid[:2]}, iterations=2, near=1e-6)
    assert short.reached(1e-6) is None
    assert short.options["a"] == grid[1]


def test_names_are_those_of_the_paper():
    assert [fedh(k, 8) for k in (0, 4, 8)] == ["FedH-G", "FedH-4", "FedH-N"]
