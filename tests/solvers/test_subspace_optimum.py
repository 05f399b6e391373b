"""The fast solvers reach the optimum of the pooled problem, and their certificates hold there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from covering import before_release, cover
from weft.data import SPLITS, Split, Table, Tile, load, pool
from weft.errors import ConfigError
from weft.federation.local_federation import Federation, Preprocessing, Trained
from weft.solvers.run_settings import Settings

LAM = 1e-2
GAP = 1e-3
KINKED: dict[str, dict[str, float]] = {
    "hinge": {},
    "absolute": {},
    "epsilon_insensitive": {"epsilon": 0.1},
}
SMOOTH: dict[str, dict[str, float]] = {
    "logistic": {},
    "squared": {},
    "squared_hinge": {},
    "smoothed_hinge": {"g": 0.5},
    "huber": {"g": 0.5},
}
PARAMETERS = {**KINKED, **SMOOTH}
REGRESSION = ("squared", "absolute", "epsilon_insensitive", "huber")
METHODS = [
    *(("cutting-planes", loss) for loss in KINKED),
    *((solver, loss) for solver in ("lbfgs", "newton-cg") for loss in SMOOTH),
]
#: One problem of either task for every solver.
SOME = [
    ("cutting-planes", "hinge"),
    ("cutting-planes", "absolute"),
    ("lbfgs", "logistic"),
    ("lbfgs", "squared"),
    ("newton-cg", "squared_hinge"),
    ("newton-cg", "huber"),
]


def irregular(table: Table) -> Split:
    """Parties with several tiles of different shapes; all cells are held, some of them twice."""
    n, m = table.n, table.m
    tile = table.to_tile()
    third, half, two = n // 3, m // 2, 2 * (n // 3)

    def part(rows: slice, columns: slice) -> Tile:
        return tile.rows(rows).columns(columns)

    parties = {
        "a": (part(slice(0, third), slice(0, m)), part(slice(third, two), slice(0, half))),
        "b": (part(slice(third, n), slice(half, m)), part(slice(0, 9), slice(1, 3))),
        "c": (part(slice(two, n), slice(0, half + 2)),),
    }
    return Split(parties, "mean", "", table.task)


CUTTINGS: dict[str, Any] = {
    "rows": lambda table, **how: SPLITS["rows"](table, parties=3, seed=1, **how),
    "columns": lambda table, **how: SPLITS["columns"](table, parties=3, **how),
    "grid": lambda table, **how: SPLITS["grid"](table, k=2, q=2, seed=1, **how),
    "overlapping": lambda table, **how: SPLITS["overlapping"](
        table, parties=4, row_share=0.6, seed=1, **how
    ),
    "one party": lambda table, **how: SPLITS["rows"](table, parties=1, **how),
    "irregular": irregular,
}


def table_for(tables: Any, loss: str) -> Table:
    return tables.diabetes(160) if loss in REGRESSION else tables.digits(160)


def train(
    split: Split,
    solver: str,
    loss: str,
    preprocessing: Preprocessing | None = None,
    **settings: Any,
) -> Trained:
    how: dict[str, Any] = {"lam": LAM, "gap": GAP, "iterations": 300, **settings}
    return Federation(split.parties, preprocessing or Preprocessing(overlap=split.overlap)).train(
        Settings(solver=solver, loss=loss, loss_parameters=PARAMETERS[loss], cipher="plain", **how)
    )


def assert_certified(
    judge: Any, trained: Trained, split: Split, loss: str, *, gap: float = GAP, lam: float = LAM
) -> None:
    """P is that of the released weights, D no more than the judge's optimum, and both are near."""
    problem = judge.problem(loss, split, lam, **PARAMETERS[loss])
    best = judge.optimum(problem)
    certificate = trained.result.certificate
    assert certificate is not None
    primal, dual = certificate.primal[0], certificate.dual[0]
    reached = problem.primal(judge.weights(trained.model, split)[0])
    assert primal == pytest.approx(reached, rel=1e-8)
    # Neither the judge nor fixed point is better than this.
    rounding = 1e-8 * best
    assert dual <= best + rounding
    assert best - rounding <= primal
    assert certificate.gap <= gap
    assert primal - best <= certificate.gap * primal + rounding
    assert "certified gap" in trained.result.stopped


#: Every loss and every solver on every cutting; two solvers share the cuttings of a smooth loss.
CASES = [
    (solver, loss, cutting)
    for turn, (solver, loss) in enumerate(METHODS)
    for cutting in (list(CUTTINGS) if loss in KINKED else list(CUTTINGS)[turn % 2 :: 2])
]
assert {case[1:] for case in CASES} == {(loss, cut) for loss in PARAMETERS for cut in CUTTINGS}


@cover(("solver", "loss", "cutting"), CASES)
def test_every_cutting_gives_the_central_optimum(
    judge: Any, tables: Any, solver: str, loss: str, cutting: str
) -> None:
    split = CUTTINGS[cutting](table_for(tables, loss))
    assert_certified(judge, train(split, solver, loss), split, loss)


@pytest.mark.parametrize(
    ("solver", "loss"),
    [("cutting-planes", "hinge"), ("lbfgs", "logistic"), ("newton-cg", "logistic")],
)
def test_a_gap_of_one_in_a_million_is_reached(
    judge: Any, tables: Any, solver: str, loss: str
) -> None:
    split = SPLITS["grid"](tables.breast(), k=2, q=2, seed=2)
    trained = train(split, solver, loss, gap=1e-6, lam=1e-3)
    assert_certified(judge, trained, split, loss, gap=1e-6, lam=1e-3)


@cover(
    ("solver", "loss", "limit"),
    [(*SOME[0], 4), (*SOME[2], 1), (*SOME[4], 2)],
    others=[(*some, limit) for some in SOME for limit in (1, 2, 4)],
)
def test_a_run_that_is_cut_short_is_certified_for_what_it_is(
    judge: Any, tables: Any, solver: str, loss: str, limit: int
) -> None:
    """However far from the optimum, P is that of the model and D lies below."""
    split = CUTTINGS["grid"](table_for(tables, loss))
    trained = train(split, solver, loss, gap=None, iterations=limit)
    assert trained.result.stopped == f"{limit} iterations"
    problem = judge.problem(loss, split, LAM, **PARAMETERS[loss])
    best = judge.optimum(problem)
    certificate = trained.result.certificate
    assert certificate is not None
    reached = problem.primal(judge.weights(trained.model, split)[0])
    assert certificate.primal[0] == pytest.approx(reached, rel=1e-8)
    assert certificate.dual[0] <= best * (1 + 1e-8)
    assert reached - best <= certificate.gap * reached + 1e-8 * best


@cover(("solver", "loss"), [SOME[0]], others=[SOME[2], SOME[4]])
def test_every_record_of_a_history_bounds_the_optimum(
    judge: Any, tables: Any, solver: str, loss: str
) -> None:
    split = CUTTINGS["overlapping"](tables.digits(240))
    trained = train(split, solver, loss, gap=1e-5)
    best = judge.optimum(judge.problem(loss, split, LAM, **PARAMETERS[loss]))
    duals = [record.dual for record in trained.result.history]
    primals = [record.primal for record in trained.result.history]
    assert len(duals) > 2
    assert max(duals) <= best * (1 + 1e-8)
    assert min(primals) >= best * (1 - 1e-8)
    # Points are only left for better ones, and bounds never fall.
    assert (np.diff(primals) <= 1e-9 * best).all()
    assert (np.diff(duals) >= -1e-12 * best).all()


# ── several classes, intercept ────────────────────────────────────────────────────────────


@cover(
    ("solver", "loss", "cutting"),
    [
        (*method, cutting)
        for method in (SOME[0], SOME[2], SOME[4])
        for cutting in ("grid", "columns")
    ],
)
def test_one_vs_rest_problems_are_all_certified(
    judge: Any, solver: str, loss: str, cutting: str
) -> None:
    whole = load("digits").rows(slice(0, 200))
    block = np.asarray(whole.block) / np.linalg.norm(np.asarray(whole.block), axis=1).max()
    table = Table(whole.ids, whole.features, block, whole.labels % 4, whole.task)
    split = CUTTINGS[cutting](table)
    trained = train(split, solver, loss)
    certificate = trained.result.certificate
    assert certificate is not None
    assert certificate.gap <= GAP
    assert len(certificate.primal) == 4
    pooled = pool(split)
    some = judge.problem(loss, pooled, LAM, **PARAMETERS[loss])
    assert trained.model.classes is not None
    for number, value in enumerate(trained.model.classes.tolist()):
        y = np.where(pooled.labels == value, 1.0, -1.0)
        problem = type(some)(loss, some.x, y, LAM)
        best = judge.optimum(problem)
        reached = problem.primal(judge.weights(trained.model, split)[number])
        assert certificate.primal[number] == pytest.approx(reached, rel=1e-8)
        assert certificate.dual[number] <= best * (1 + 1e-8)
        # The gap is that of all classes together.
        assert reached - best <= GAP * sum(certificate.primal)


@cover(("solver", "loss"), [SOME[0], SOME[2]], others=SOME)
def test_the_intercept_is_a_constant_column(
    judge: Any, tables: Any, solver: str, loss: str
) -> None:
    split = CUTTINGS["grid"](table_for(tables, loss))
    how = Preprocessing(intercept=True, intercept_scaling=2.0)
    trained = train(split, solver, loss, how, gap=1e-5)
    problem = judge.problem(loss, split, LAM, **PARAMETERS[loss])
    x = np.hstack([problem.x, np.full((problem.n, 1), 2.0)])
    problem = type(problem)(loss, x, problem.y, LAM)
    w = np.append(judge.weights(trained.model, split)[0], trained.model.intercept[0] / 2.0)
    best = judge.optimum(problem)
    assert best * (1 - 1e-8) <= problem.primal(w) <= best * (1 + 1.1e-5)


# ── labels at some holders ────────────────────────────────────────────────────────────────


@cover(
    ("solver", "loss", "cutting"),
    [(*SOME[0], "overlapping"), (*SOME[2], "columns"), (*SOME[4], "grid")],
    others=[(*some, cutting) for some in SOME for cutting in ("columns", "grid", "overlapping")],
)
def test_labels_at_the_first_holder_only_give_the_central_optimum(
    judge: Any, tables: Any, solver: str, loss: str, cutting: str
) -> None:
    split = CUTTINGS[cutting](table_for(tables, loss), labels="first")
    trained = train(split, solver, loss)
    assert not trained.holdings.labels_everywhere
    assert_certified(judge, trained, split, loss)


def half_labelled(table: Table, column_parts: int) -> Split:
    """Every party has the labels of some of its samples, everybody of others; nobody of 20."""
    split = SPLITS["columns"](table, parties=column_parts)
    parties = {}
    for number, (name, (tile,)) in enumerate(split.parties.items()):
        assert tile.labels is not None
        labels = tile.labels.astype(float)
        turn = np.arange(tile.n) % (column_parts + 1)
        labels[(turn != number) & (turn < column_parts)] = np.nan
        labels[-20:] = np.nan
        parties[name] = (Tile(tile.ids, tile.features, tile.block, labels),)
    return Split(parties, split.overlap, "", table.task)


@cover(
    ("solver", "loss", "groups"),
    [("cutting-planes", "hinge", 3), (*SOME[3], 1), (*SOME[4], 1)],
    others=[(*each, 1) for each in SOME],
)
def test_cohorts_whose_labels_lie_at_different_parties_give_the_central_optimum(
    judge: Any, tables: Any, solver: str, loss: str, groups: int
) -> None:
    table = table_for(tables, loss)
    split = half_labelled(table, 3)
    trained = train(split, solver, loss, groups=groups)
    assert trained.holdings.n_samples == table.n - 20
    assert not trained.holdings.labels_everywhere
    alone = Split({"p": (table.rows(slice(0, table.n - 20)).to_tile(),)}, "mean", "", table.task)
    assert_certified(judge, trained, alone, loss)


# ── groups of cuts ────────────────────────────────────────────────────────────────────────


@cover(
    ("loss", "groups", "cutting", "labels"),
    [
        (loss, groups, *cut)
        for loss in KINKED
        for groups in (3, 7)
        for cut in (("grid", "all"), ("overlapping", "first"))
    ],
)
def test_groups_of_cuts_give_the_central_optimum(
    judge: Any, tables: Any, loss: str, groups: int, cutting: str, labels: str
) -> None:
    split = CUTTINGS[cutting](table_for(tables, loss), labels=labels)
    assert_certified(judge, train(split, "cutting-planes", loss, groups=groups), split, loss)


@pytest.mark.parametrize(
    "cutting", ["overlapping", "irregular", *before_release("rows", "columns", "grid")]
)
@pytest.mark.parametrize("groups", [3, *before_release(7)])
def test_every_group_has_samples_of_every_cohort_and_all_holders_agree(
    tables: Any, cutting: str, groups: int
) -> None:
    split = CUTTINGS[cutting](tables.digits(240))
    federation = Federation(split.parties, Preprocessing(overlap=split.overlap))
    federation.train(
        Settings(lam=LAM, solver="cutting-planes", groups=groups, iterations=1, cipher="plain")
    )
    of_sample: dict[str, int] = {}
    for party in federation.parties.values():
        inside: Any = party
        group, view = inside._half.rows.group, party.view
        for tile, slots in zip(inside.data.tiles, view.tile_rows, strict=True):
            for sample, slot in zip(tile.ids.tolist(), slots.tolist(), strict=True):
                assert of_sample.setdefault(sample, int(group[slot])) == group[slot]
        for cohort in np.unique(view.row_cohort):
            counts = np.bincount(group[view.row_cohort == cohort], minlength=groups)
            assert counts.max() - counts.min() <= 1
    assert len(of_sample) == 240


def test_more_groups_than_samples_of_a_cohort_do_no_harm(judge: Any, tables: Any) -> None:
    split = SPLITS["grid"](tables.digits(24), k=3, q=2)
    trained = train(split, "cutting-planes", "hinge", groups=9)
    assert_certified(judge, trained, split, "hinge")


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg"])
def test_groups_are_refused_where_there_are_no_cuts(tables: Any, solver: str) -> None:
    with pytest.raises(ConfigError, match=f"groups is 3, but solver '{solver}'") as caught:
        train(CUTTINGS["rows"](tables.digits(60)), solver, "logistic", groups=3)
    assert "\n" not in str(caught.value)
