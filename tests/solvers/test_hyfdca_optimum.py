"""HyFDCA reaches the optimum of the pooled problem, however the table is cut."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from covering import before_release, changing, cover, every_value
from weft.data import SPLITS, Split, Table, Tile, load, pool
from weft.federation.local_federation import Federation, Preprocessing, Trained
from weft.solvers.run_settings import Settings

#: A smaller λ takes as many more iterations.
LAM = 5e-2 if changing() else 2e-2
CUTTINGS: dict[str, dict[str, Any]] = {
    "rows": {"parties": 3, "seed": 1},
    "columns": {"parties": 3},
    "grid": {"k": 2, "q": 2, "seed": 1},
    "dealt": {"k": 2, "q": 2},
    "overlapping": {"parties": 4, "row_share": 0.6, "seed": 1},
}
SMOOTH = {
    "smoothed_hinge": {"g": 0.5},
    "squared_hinge": {},
    "logistic": {},
    "squared": {},
    "huber": {"g": 0.5},
}
KINKED: dict[str, dict[str, float]] = {
    "hinge": {},
    "absolute": {},
    "epsilon_insensitive": {"epsilon": 0.1},
}
LOSSES = {**SMOOTH, **KINKED}
REGRESSION = ("squared", "absolute", "epsilon_insensitive", "huber")


def cut(table: Table, cutting: str, **options: Any) -> Split:
    return SPLITS[cutting](table, **{**CUTTINGS[cutting], **options})


def table_for(tables: Any, loss: str) -> Table:
    return tables.diabetes(240) if loss in REGRESSION else tables.digits(240)


def train(
    split: Split, loss: str, preprocessing: Preprocessing | None = None, **settings: Any
) -> Trained:
    how = {
        "lam": LAM,
        "loss": loss,
        "loss_parameters": LOSSES[loss],
        "gap": 5e-5 if loss in SMOOTH else 1e-3,
        "iterations": 20_000,
        "certify_every": 10,
        **settings,
    }
    return Federation(split.parties, preprocessing or Preprocessing(overlap=split.overlap)).train(
        Settings(cipher="plain", **how)
    )


def assert_optimal(judge: Any, trained: Trained, split: Split, loss: str) -> None:
    """The released weights are optimal on the pooled table, and the certificate says no less."""
    problem = judge.problem(loss, split, LAM, **LOSSES[loss])
    best = judge.optimum(problem)
    reached = problem.primal(judge.weights(trained.model, split)[0])
    assert best * (1 - 1e-9) <= reached <= best * (1 + (1e-4 if loss in SMOOTH else 1e-3))
    certificate = trained.result.certificate
    assert certificate is not None
    assert certificate.primal[0] == pytest.approx(reached, rel=1e-8)
    assert certificate.primal[0] - certificate.dual[0] >= reached - best * (1 + 1e-9)


@every_value(loss=LOSSES, cutting=CUTTINGS)
def test_every_cutting_gives_the_central_optimum(
    judge: Any, tables: Any, loss: str, cutting: str
) -> None:
    split = cut(table_for(tables, loss), cutting)
    assert_optimal(judge, train(split, loss), split, loss)


@cover(
    ("loss", "cutting"),
    [("logistic", "grid"), ("hinge", "overlapping"), ("absolute", "rows"), ("squared", "dealt")],
    others=product(LOSSES, ["rows", "grid", "dealt", "overlapping"]),
)
def test_drawing_a_part_of_the_samples_gives_the_central_optimum(
    judge: Any, tables: Any, loss: str, cutting: str
) -> None:
    split = cut(table_for(tables, loss), cutting)
    assert_optimal(judge, train(split, loss, iic=0.3), split, loss)


@cover(
    ("loss", "iic", "cutting"),
    [("hinge", 0.2, "grid"), ("logistic", 1.0, "overlapping")],
    others=product(["hinge", "logistic"], [0.2, 1.0], CUTTINGS),
)
def test_norms_per_cohort_give_the_central_optimum(
    judge: Any, tables: Any, loss: str, cutting: str, iic: float
) -> None:
    split = cut(table_for(tables, loss), cutting)
    assert_optimal(judge, train(split, loss, iic=iic, norms="cohort"), split, loss)


@cover(
    ("loss", "cutting"),
    [("hinge", "columns"), ("logistic", "grid"), ("epsilon_insensitive", "overlapping")],
    others=product(LOSSES, ["columns", "grid", "overlapping"]),
)
def test_labels_at_the_first_holder_only_give_the_central_optimum(
    judge: Any, tables: Any, loss: str, cutting: str
) -> None:
    split = cut(table_for(tables, loss), cutting, labels="first")
    trained = train(split, loss, iic=0.5)
    assert not trained.holdings.labels_everywhere
    assert_optimal(judge, trained, split, loss)


@pytest.mark.parametrize("labels", [*before_release("all"), "first"])
def test_parties_with_several_tiles_give_the_central_optimum(
    judge: Any, tables: Any, labels: str
) -> None:
    split = SPLITS["quadrants"](tables.digits(240), parties=5, bias=0.5, labels=labels)
    assert max(len(held) for held in split.parties.values()) > 1
    assert_optimal(judge, train(split, "hinge", iic=0.5), split, "hinge")


@cover(
    ("loss", "cutting"),
    [("hinge", "grid"), ("logistic", "columns")],
    others=product(["hinge", "logistic"], ["rows", "columns", "grid", "overlapping"]),
)
def test_unit_rows_solve_the_problem_of_the_table_divided_by_its_longest_row(
    judge: Any, loss: str, cutting: str
) -> None:
    raw = load("breast_cancer")
    block = (raw.block - raw.block.mean(axis=0)) / raw.block.std(axis=0)
    split = cut(Table(raw.ids, raw.features, block, raw.labels, raw.task), cutting)
    trained = train(split, loss, Preprocessing(unit_rows=True))

    pooled = pool(split)
    longest = np.linalg.norm(pooled.block, axis=1).max()
    problem = judge.problem(loss, split, LAM)
    problem = type(problem)(loss, problem.x / longest, problem.y, LAM)
    best = judge.optimum(problem)
    reached = problem.primal(judge.weights(trained.model, split)[0] * longest)
    assert abs(reached - best) <= (1e-4 if loss in SMOOTH else 1e-3) * best


# ── overlapping cells ─────────────────────────────────────────────────────────────────────


@every_value(loss=["squared_hinge", "squared"], labels=["all", "first"], overlap=["mean", "first"])
def test_equal_duplicates_give_the_model_of_the_table_without_them(
    tables: Any, loss: str, labels: str, overlap: str
) -> None:
    table = tables.diabetes() if loss == "squared" else tables.digits(200)
    split = cut(table, "overlapping", column_share=0.7, labels=labels)
    once = pool(split)
    alone = Split({"p": (once.to_tile(),)}, "mean", "", once.task)
    how = {"gap": None, "iterations": 80, "certify_every": 1000, "lam": 0.05}
    many = train(split, loss, Preprocessing(overlap=overlap), **how).model  # type: ignore[arg-type]
    one = train(alone, loss, **how).model
    assert many.features.tolist() == one.features.tolist()
    np.testing.assert_allclose(many.coef, one.coef, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("overlap", "value"), [("mean", 2.0), ("first", 1.0), ("sum", 4.0)])
def test_different_duplicates_count_by_the_overlap_rule(
    judge: Any, tables: Any, overlap: str, value: float
) -> None:
    """A column held twice, as x and as 3x, is 2x on average, x at the first holder, 4x in sum."""
    table = tables.digits(200)
    tile = table.to_tile()
    shared = tile.columns(slice(30, 40))
    thrice = Tile(shared.ids, shared.features, shared.block * 3.0, None)
    split = Split(
        {"a": (tile.columns(slice(0, 40)),), "b": (tile.columns(slice(40, 64)), thrice)},
        overlap,  # type: ignore[arg-type]
        "",
        table.task,
    )
    expected = np.array(table.block)
    expected[:, 30:40] *= value
    problem = judge.problem("logistic", split, LAM)
    np.testing.assert_allclose(problem.x, expected)
    assert_optimal(judge, train(split, "logistic"), split, "logistic")


# ── intercept and classes ─────────────────────────────────────────────────────────────────


@cover(
    ("cutting", "scaling"),
    [("grid", 1.0), ("overlapping", 2.0)],
    others=product(["grid", "rows", "overlapping", "columns"], [1.0, 2.0]),
)
def test_the_intercept_is_that_of_liblinear(tables: Any, cutting: str, scaling: float) -> None:
    split = cut(tables.digits(200), cutting, labels="first")
    table = pool(split)
    preprocessing = Preprocessing(intercept=True, intercept_scaling=scaling)
    lam = 0.5
    model = train(split, "squared_hinge", preprocessing, gap=1e-6, lam=lam).model
    central = LinearSVC(
        C=1 / (2 * lam * table.n), dual=True, intercept_scaling=scaling, tol=1e-9, max_iter=100_000
    ).fit(table.block, table.labels)
    order = [table.features.tolist().index(name) for name in model.features]
    np.testing.assert_allclose(model.coef, central.coef_[:, order], atol=1e-3)
    np.testing.assert_allclose(model.intercept, central.intercept_, atol=1e-3)


@cover(
    ("loss", "cutting"),
    [("squared_hinge", "overlapping")],
    others=product(["squared_hinge", "hinge"], ["grid", "overlapping"]),
)
def test_each_class_is_liblinears_one_against_the_rest(
    judge: Any, tables: Any, loss: str, cutting: str
) -> None:
    table = tables.digits(300)
    ten = Table(table.ids, table.features, table.block, load("digits").labels[:300], table.task)
    split = cut(ten, cutting)
    trained = train(split, loss, iic=0.5)
    pooled = pool(split)
    assert trained.model.classes.tolist() == list(range(10))
    certificate = trained.result.certificate
    for digit, weights in enumerate(judge.weights(trained.model, pooled)):
        y = np.where(pooled.labels == digit, 1.0, -1.0)
        binary = judge.problem(
            loss, Table(pooled.ids, pooled.features, pooled.block, y, "classification"), LAM
        )
        best, reached = judge.optimum(binary), binary.primal(weights)
        assert abs(reached - best) <= (1e-4 if loss in SMOOTH else 1e-3) * best
        assert certificate.primal[digit] - certificate.dual[digit] >= reached - best * (1 + 1e-9)
