"""Paths of λ and folds: every model of a run is the one that central training gives."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from covering import before_release, cover
from weft.data import SPLITS, Split, Table, load, pool
from weft.federation.local_federation import Federation, Preprocessing, Trained
from weft.federation.messages import ReleaseRequest
from weft.federation.release.encrypted_model_slices import join_slices
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.class_fold_problems import ALWAYS, folds_of, large_folds_of

GAP = 1e-3
PATH = (0.3, 0.03, 0.003)
FOLDS = 4
METHODS = [
    ("cutting-planes", "hinge"),
    ("cutting-planes", "absolute"),
    ("lbfgs", "logistic"),
    ("lbfgs", "squared"),
    ("newton-cg", "squared_hinge"),
]
#: Rows that overlap, with labels everywhere; columns only, with labels at one party.
everywhere = cover(
    ("solver", "loss", "cutting"),
    [
        ("cutting-planes", "hinge", "columns"),
        ("lbfgs", "squared", "columns"),
        (*METHODS[4], "overlapping"),
    ],
    others=[(*method, "overlapping") for method in METHODS],
)


def split_for(tables: Any, loss: str, cutting: str = "overlapping") -> Split:
    regression = loss in ("absolute", "squared")
    table = tables.diabetes(200) if regression else tables.digits(200)
    if cutting == "overlapping":
        return SPLITS["overlapping"](table, parties=4, row_share=0.6, seed=1)
    return SPLITS["columns"](table, parties=3, labels="first")


class Run:
    """A run whose every model can be looked at."""

    def __init__(self, split: Split, solver: str, loss: str, **settings: Any) -> None:
        how: dict[str, Any] = {"lam": PATH[1], "gap": GAP, "iterations": 300, **settings}
        self.settings = Settings(solver=solver, loss=loss, cipher="plain", **how)
        self.split = split
        self.federation = Federation(split.parties, Preprocessing(overlap=split.overlap))
        self.trained: Trained = self.federation.train(self.settings)
        self.stages = self.trained.result.stages

    def weights(self, judge: Any, stage: int, fold: int = -1) -> NDArray[np.float64]:
        """w of one λ, trained on all samples or without a fold: (classes × features)."""
        classes = self.trained.model.classes
        count = 1 if classes is None or len(classes) == 2 else len(classes)
        which = slice((fold + 1) * count, (fold + 2) * count)

        def chosen(half: Any, model: int | None) -> NDArray[np.float64]:
            return half.features.models[model][:, which]

        parties: list[Any] = list(self.federation.parties.values())
        with patch.object(type(parties[0]._half), "weights", chosen):
            slices = [
                party.training.slice_of_model(ReleaseRequest(model=stage)) for party in parties
            ]
        model = join_slices(slices, self.trained.head)
        return judge.weights(model, self.split)


#: Not the default: folds follow from it.
SEED = 3


@pytest.fixture(scope="module")
def folded(tables: Any) -> Any:
    """A run with folds at every λ of a path, for two tests."""

    @cache
    def train(solver: str, loss: str, cutting: str) -> Run:
        split = split_for(tables, loss, cutting)
        return Run(split, solver, loss, folds=FOLDS, path=PATH, seed=SEED)

    return train


# ── paths ─────────────────────────────────────────────────────────────────────────────────


@everywhere
def test_every_lambda_of_a_path_is_certified_and_optimal(
    judge: Any, folded: Any, solver: str, loss: str, cutting: str
) -> None:
    """With folds beside it; paths by themselves are those of the next three tests."""
    run = folded(solver, loss, cutting)
    split = run.split
    assert [stage.lam for stage in run.stages] == sorted(PATH, reverse=True)
    for stage in run.stages:
        problem = judge.problem(loss, split, stage.lam)
        best = judge.optimum(problem)
        primal, dual = stage.certificate.primal[0], stage.certificate.dual[0]
        reached = problem.primal(run.weights(judge, stage.number)[0])
        assert primal == pytest.approx(reached, rel=1e-8)
        assert dual <= best * (1 + 1e-8)
        assert best * (1 - 1e-8) <= primal <= best + GAP * primal
        assert stage.certificate.gap <= GAP


@cover(("solver", "loss"), [METHODS[3]], others=METHODS)
def test_a_model_of_a_path_is_that_of_its_own_run_within_the_gap(
    tables: Any, solver: str, loss: str
) -> None:
    split = split_for(tables, loss)
    run = Run(split, solver, loss, path=PATH)
    for stage in run.stages:
        alone = Run(split, solver, loss, lam=stage.lam).stages[0].certificate
        lower = max(alone.dual[0], stage.certificate.dual[0])
        for primal in (alone.primal[0], stage.certificate.primal[0]):
            assert lower <= primal * (1 + 1e-8)
            assert primal - lower <= GAP * primal


@pytest.mark.parametrize("lam", [PATH[1], 0.1, *before_release(PATH[0], PATH[2])])
def test_the_model_asked_for_is_released(judge: Any, tables: Any, lam: float) -> None:
    split = split_for(tables, "logistic")
    run = Run(split, "lbfgs", "logistic", path=PATH, lam=lam)
    assert run.trained.model.lam == lam
    problem = judge.problem("logistic", split, lam)
    reached = problem.primal(judge.weights(run.trained.model, split)[0])
    certificate = run.trained.result.certificate
    assert certificate is not None
    assert certificate.primal[0] == pytest.approx(reached, rel=1e-8)
    assert reached <= judge.optimum(problem) * (1 + 1.1 * GAP)


def test_history_names_the_lambda_of_every_record(tables: Any) -> None:
    run = Run(split_for(tables, "hinge"), "cutting-planes", "hinge", path=PATH)
    seen = [record.lam for record in run.trained.result.history]
    assert list(dict.fromkeys(seen)) == sorted(PATH, reverse=True)
    assert [r.iteration for r in run.trained.result.history] == list(range(1, len(seen) + 1))


# ── folds ─────────────────────────────────────────────────────────────────────────────────


def folds_in(split: Split, seed: int = 0) -> NDArray[np.int8]:
    return folds_of(pool(split).ids, FOLDS, seed)


@everywhere
def test_the_model_of_a_fold_is_that_of_central_training_without_it(
    judge: Any, folded: Any, solver: str, loss: str, cutting: str
) -> None:
    run = folded(solver, loss, cutting)
    split, (stage,) = run.split, [stage for stage in run.stages if stage.lam == PATH[1]]
    whole = judge.problem(loss, split, stage.lam)
    fold = folds_in(split, SEED)
    assert sorted(set(fold.tolist())) == list(range(FOLDS))
    for left_out in range(-1, FOLDS):
        used = fold != left_out
        problem = type(whole)(loss, whole.x[used], whole.y[used], whole.lam)
        best = judge.optimum(problem)
        reached = problem.primal(run.weights(judge, stage.number, left_out)[0])
        assert best * (1 - 1e-8) <= reached <= best + 1.01 * GAP * reached


@everywhere
def test_scores_of_samples_left_out_are_those_computed_centrally(
    judge: Any, folded: Any, solver: str, loss: str, cutting: str
) -> None:
    run = folded(solver, loss, cutting)
    split = run.split
    whole = judge.problem(loss, split, 1.0)
    fold = folds_in(split, SEED)
    for stage in run.stages:
        assert stage.scores is not None
        # Squares have no bound but a wide one, at which fixed point is coarser.
        for left_out, (count, losses, good) in enumerate(stage.scores):
            out = fold == left_out
            problem = type(whole)(loss, whole.x[out], whole.y[out], 1.0)
            z = problem.x @ run.weights(judge, stage.number, left_out)[0]
            assert count == out.sum()
            assert losses == pytest.approx(problem.losses(z).sum(), rel=1e-7)
            right = (z - problem.y) ** 2 if loss in ("absolute", "squared") else z * problem.y > 0
            assert good == pytest.approx(right.sum(), rel=1e-7)
            assert stage.fold_scores[left_out] == pytest.approx(right.mean(), rel=1e-7)
            assert stage.fold_losses[left_out] == pytest.approx(problem.losses(z).mean(), rel=1e-7)


@cover(("solver", "loss"), [METHODS[0], METHODS[3]], others=METHODS)
def test_folds_choose_the_lambda_that_predicts_best(tables: Any, solver: str, loss: str) -> None:
    run = Run(split_for(tables, loss), solver, loss, folds=FOLDS, path=(10.0, *PATH))
    means = [float(np.mean(stage.fold_scores)) for stage in run.stages]
    best = min(means) if loss in ("absolute", "squared") else max(means)
    # The largest λ of those that predict equally well.
    assert run.trained.model.lam == run.stages[means.index(best)].lam
    assert run.trained.result.stage is run.stages[means.index(best)]


@pytest.mark.parametrize(("solver", "loss"), [("cutting-planes", "hinge"), ("lbfgs", "logistic")])
def test_folds_of_several_classes_are_those_of_central_training(
    judge: Any, solver: str, loss: str
) -> None:
    whole = load("digits").rows(slice(0, 150))
    block = np.asarray(whole.block) / np.linalg.norm(np.asarray(whole.block), axis=1).max()
    table = Table(whole.ids, whole.features, block, whole.labels % 3, whole.task)
    split = SPLITS["grid"](table, k=2, q=2)
    run = Run(split, solver, loss, folds=FOLDS)
    pooled, fold = pool(split), folds_in(split)
    some = judge.problem(loss, pooled, PATH[1])
    scores = run.stages[0].scores
    assert scores is not None
    for left_out in range(FOLDS):
        used = fold != left_out
        w = run.weights(judge, 0, left_out)
        for number in range(3):
            y = np.where(pooled.labels[used] == number, 1.0, -1.0)
            problem = type(some)(loss, some.x[used], y, PATH[1])
            best = judge.optimum(problem)
            assert problem.primal(w[number]) <= best * (1 + 1.1 * GAP)
        right = (some.x[~used] @ w.T).argmax(axis=1) == pooled.labels[~used]
        assert scores[left_out][2] == right.sum()


def test_groups_of_cuts_serve_folds_and_paths(judge: Any, tables: Any) -> None:
    split = split_for(tables, "hinge")
    run = Run(split, "cutting-planes", "hinge", folds=FOLDS, path=PATH, groups=3)
    whole = judge.problem("hinge", split, PATH[1])
    fold = folds_in(split)
    for stage in run.stages:
        for left_out in range(-1, FOLDS):
            used = fold != left_out
            problem = type(whole)("hinge", whole.x[used], whole.y[used], stage.lam)
            reached = problem.primal(run.weights(judge, stage.number, left_out)[0])
            assert reached <= judge.optimum(problem) + 1.01 * GAP * reached


def test_two_holders_of_a_sample_agree_on_its_fold(tables: Any) -> None:
    split = split_for(tables, "hinge")
    run = Run(split, "cutting-planes", "hinge", folds=FOLDS, iterations=1, seed=5)
    expected = dict(zip(pool(split).ids.tolist(), folds_in(split, 5).tolist(), strict=True))
    seen: dict[str, int] = {}
    for party in run.federation.parties.values():
        inside: Any = party
        folds = inside._half.rows._folds
        for tile, slots in zip(inside.data.tiles, party.view.tile_rows, strict=True):
            for sample, slot in zip(tile.ids.tolist(), slots.tolist(), strict=True):
                assert expected[sample] == folds[slot]
                seen[sample] = seen.get(sample, 0) + 1
    assert len(seen) == 200
    assert max(seen.values()) > 1


def test_folds_depend_on_the_seed_and_are_even() -> None:
    ids = np.array([f"patient {i}" for i in range(5000)], object)
    one, again, other = (folds_of(ids, 5, seed) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert 0.15 < (one == other).mean() < 0.25
    counts = np.bincount(one, minlength=5)
    assert abs(counts - 1000).max() < 5 * np.sqrt(5000 * 0.2 * 0.8)
    # Whatever else a party holds: a sample's fold is its own.
    assert np.array_equal(folds_of(ids[::3], 5, 1), one[::3])


def test_a_fold_has_enough_of_every_group_or_none() -> None:
    """Groups of 9, 59, 65 and 400 samples in five folds, in parts of thirty or more."""
    sizes = [9, 59, 65, 400]
    group = np.repeat([3, 5, 6, 12], sizes)
    ids = np.array([f"patient {i}" for i in range(len(group))], object)
    mixed = np.random.default_rng(0).permutation(len(ids))
    one, other = (large_folds_of(ids, group, 10, 5, seed) for seed in (1, 2))
    assert np.array_equal(large_folds_of(ids[mixed], group[mixed], 10, 5, 1), one[mixed])
    assert (one != other).any()
    parts = [
        sorted(np.unique(one[group == g], return_counts=True)[1].tolist()) for g in (3, 5, 6, 12)
    ]
    assert parts == [[9], [59], [32, 33], [80] * 5]
    assert set(one[group < 6].tolist()) == {ALWAYS}


@cover(
    ("solver", "loss"),
    [("lbfgs", "squared")],
    others=product(["lbfgs", "newton-cg"], ["squared", "huber"]),
)
def test_a_long_path_to_a_tight_gap_does_not_drown_in_rounding(solver, loss, tables, judge):
    """Points of few features are made of many vectors with large coefficients that cancel."""
    table = tables.diabetes()
    split = SPLITS["grid"](table, k=2, q=2)
    path = tuple(np.geomspace(1.0, 1e-4, 9).tolist())
    parameters = {"g": 0.5} if loss == "huber" else {}
    settings = Settings(
        lam=1e-4,
        path=path,
        loss=loss,
        loss_parameters=parameters,
        solver=solver,
        gap=1e-7,
        cipher="plain",
        iterations=100,
    )
    result = Federation(split.parties).train(settings).result
    assert [stage.lam for stage in result.stages] == sorted(path, reverse=True)
    for stage in result.stages:
        assert stage.certificate.gap <= 1e-7
        best = judge.optimum(judge.problem(loss, split, stage.lam, **parameters))
        (primal,), (dual,) = stage.certificate.primal, stage.certificate.dual
        assert dual <= best * (1 + 1e-8)
        assert best <= primal * (1 + 1e-8)
