"""How many times parties and coordinator speak in an iteration of the fast solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from covering import before_release, cover, every_value
from weft.data import SPLITS, Split
from weft.federation.local_federation import Federation, Preprocessing, Trained
from weft.solvers.run_settings import Settings

ITERATIONS = 12


def cut(tables: Any, cutting: str, labels: str = "all") -> Split:
    how: dict[str, Any] = {"k": 2, "q": 2} if cutting == "grid" else {"parties": 4}
    return SPLITS[cutting](tables.digits(120), labels=labels, **how)


def run(split: Split, solver: str, **settings: Any) -> tuple[Trained, list[int]]:
    """A run of a dozen iterations, and the round trips of all but the first."""
    seen: list[int] = []
    how: dict[str, Any] = {"lam": 1e-3, "gap": None, "iterations": ITERATIONS, **settings}
    trained = Federation(split.parties, Preprocessing(overlap=split.overlap)).train(
        Settings(solver=solver, cipher="plain", **how),
        progress=lambda record: seen.append(record.round_trips),
    )
    return trained, np.diff(seen).tolist()


def calls(trained: Trained) -> dict[str, int]:
    """How often each phase of the solver was asked."""
    return {
        name.partition(".")[2]: cost.calls
        for name, cost in trained.meter.phases.items()
        if name.startswith("subspace.")
    }


@pytest.mark.parametrize("cutting", ["rows", "overlapping", *before_release("columns", "grid")])
def test_cutting_planes_take_two_and_three_in_all_besides(tables: Any, cutting: str) -> None:
    """One for the first dual vector, two to measure the model."""
    trained, each = run(cut(tables, cutting), "cutting-planes")
    assert set(each) == {2}
    assert calls(trained) == {
        "gather": 1,
        "spread": ITERATIONS,
        "search": ITERATIONS,
        "point": 1,
        "close": 1,
    }


@pytest.mark.parametrize("groups", [2, *before_release(5)])
def test_groups_of_cuts_take_three(tables: Any, groups: int) -> None:
    trained, each = run(cut(tables, "grid"), "cutting-planes", groups=groups)
    assert set(each) == {3}
    assert sum(calls(trained).values()) == 3 * ITERATIONS + 3


@pytest.mark.parametrize("cutting", ["overlapping", *before_release("columns", "grid")])
def test_holders_without_labels_add_one_for_every_sum_of_dual_vectors(
    tables: Any, cutting: str
) -> None:
    split = cut(tables, cutting, labels="first")
    trained, each = run(split, "cutting-planes")
    assert set(each) == {3}
    assert calls(trained)["follow"] == ITERATIONS + 1
    trained, each = run(split, "lbfgs", loss="logistic")
    found = calls(trained)
    assert found["follow"] == found["search"] + found["gather"]
    assert set(each) <= {3, 5}


@every_value(
    loss=["logistic", "squared_hinge", "smoothed_hinge"], cutting=["rows", "columns", "grid"]
)
def test_lbfgs_takes_two_or_where_the_full_step_was_wrong_three(
    tables: Any, cutting: str, loss: str
) -> None:
    trained, each = run(cut(tables, cutting), "lbfgs", loss=loss, lam=1e-2)
    assert set(each) <= {2, 3}
    assert 2 in each
    found = calls(trained)
    assert found["spread"] == found["search"] == ITERATIONS
    assert (found["point"], found["close"]) == (1, 1)


def test_newtons_method_takes_two_for_a_product_with_the_hessian(tables: Any) -> None:
    trained, each = run(cut(tables, "grid"), "newton-cg", loss="logistic", iterations=4)
    found = calls(trained)
    # A product is a gather and the spread of what came of it; an iteration has its own spread.
    products = found["spread"] - 4
    assert products > 4
    assert found["gather"] - 1 - products in range(5)
    assert found["search"] == 4
    assert sum(each) <= 2 * products + 3 * 3


@pytest.mark.parametrize(
    ("solver", "loss"),
    [
        ("cutting-planes", "hinge"),
        *(pytest.param(s, "logistic", marks=pytest.mark.release) for s in ("lbfgs", "newton-cg")),
    ],
)
def test_showing_the_weights_takes_no_trip_and_changes_nothing(
    tables: Any, solver: str, loss: str
) -> None:
    split = SPLITS["grid"](tables.digits(120), k=3, q=2)
    runs = [
        run(split, solver, loss=loss, iterations=4, coordinator_sees=sees)
        for sees in ("nothing", "weights")
    ]
    assert runs[0][1] == runs[1][1]
    assert calls(runs[0][0]) == calls(runs[1][0])
    assert runs[0][0].model.coef.tobytes() == runs[1][0].model.coef.tobytes()


@cover(("solver", "loss"), [("lbfgs", "logistic")], others=[("cutting-planes", "hinge")])
def test_folds_and_classes_travel_in_the_same_messages(tables: Any, solver: str, loss: str) -> None:
    for folds in (0, 5):
        trained, each = run(cut(tables, "grid"), solver, loss=loss, folds=folds)
        assert set(each) <= {2, 3}
        assert calls(trained)["search"] == ITERATIONS
    path, _ = run(cut(tables, "grid"), solver, loss=loss, path=(1e-2, 1e-1), iterations=4)
    assert calls(path)["point"] == calls(path)["close"] == 3
    assert [stage.round_trips for stage in path.result.stages] == sorted(
        stage.round_trips for stage in path.result.stages
    )


def test_a_limit_on_round_trips_is_kept_but_for_closing(tables: Any) -> None:
    trained, _ = run(
        cut(tables, "grid"), "cutting-planes", gap=1e-9, round_trips=30, iterations=500
    )
    assert trained.result.stopped == "30 round trips"
    assert 30 <= trained.result.history[-1].round_trips <= 30 + 1 + 2
