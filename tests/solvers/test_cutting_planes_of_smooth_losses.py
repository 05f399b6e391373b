"""Cutting planes of smooth losses: they stand in where too few second moments are told."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from weft.data import SPLITS, Table, Tile, load
from weft.errors import ProtocolError
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards import Terms
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.messages import SearchRequest
from weft.solvers.subspace.told_losses_and_vectors_limit import MeasurementLimit

PLANES = "directions come from cutting planes"
LBFGS = "directions come from L-BFGS"
LAM = 1e-3


def made_up(n: int, columns: int, *, regression: bool = False) -> Table:
    random = np.random.default_rng(5)
    block = random.standard_normal((n, columns)) * np.geomspace(0.1, 1.5, columns)
    score = block @ random.standard_normal(columns)
    labels = score + 0.3 * random.standard_normal(n)
    if not regression:
        labels = np.where(score + random.logistic(size=n) > 0, 1, -1)
    ids = np.array([f"i{i}" for i in range(n)], dtype=object)
    names = np.array([f"x{j}" for j in range(columns)], dtype=object)
    task: Any = "regression" if regression else "classification"
    return Table(ids, names, block, labels, task, "made up")


def trained(parties: Any, terms: dict[str, Any] | None = None, how: Any = None, **more: Any) -> Any:
    settings = {
        "lam": LAM,
        "loss": "logistic",
        "solver": "span-newton",
        "gap": 1e-3,
        "cipher": "plain",
        "iterations": 60,
    }
    federation = Federation(
        parties,
        how or Preprocessing(intercept=False),
        terms=Terms(ciphers=("plain",), allow_pairs=True, **{"min_batch": 10, **(terms or {})}),
    )
    return federation, federation.train(Settings(**{**settings, **more}))


def notes(run: Any) -> str:
    return " ".join(run.result.notes)


def optimum(table: Table) -> float:
    """P* on the pooled table, by scikit-learn."""
    x, y = np.asarray(table.block, float), table.labels
    judge = LogisticRegression(C=1 / (LAM * len(x)), fit_intercept=False, tol=1e-10, max_iter=9999)
    w = judge.fit(x, y).coef_[0]
    return float(np.logaddexp(0, -y * (x @ w)).mean() + 0.5 * LAM * w @ w)


@pytest.mark.parametrize(("k", "q"), [(2, 2), (1, 3), (3, 1)])
def test_each_bound_is_one_and_the_end_is_what_scikit_learn_finds(k: int, q: int) -> None:
    table = made_up(1800, 18)
    _, run = trained(SPLITS["grid"](table, k=k, q=q).parties)
    assert PLANES in notes(run)
    best = optimum(table)
    for record in run.result.history:
        assert record.dual <= best * (1 + 1e-7)
        assert best <= record.primal * (1 + 1e-7)
    assert run.result.certificate.gap <= 1e-3


def test_holders_without_labels_make_the_same_vectors() -> None:
    """Else b is no Xᵀa, and D may come out above P*."""
    table = made_up(1400, 12)
    some = np.where(np.arange(1400) < 700, table.labels, np.nan)

    def tile(columns: slice, labels: Any) -> tuple[Tile, ...]:
        block = np.asarray(table.block, float)[:, columns].copy()
        return (Tile(table.ids, table.features[columns], block, labels.astype(float)),)

    parties = {
        "p1": tile(slice(0, 8), some),
        "p2": tile(slice(8, 10), table.labels),
        "p3": tile(slice(10, 12), table.labels),
    }
    _, run = trained(parties)
    assert PLANES in notes(run)
    best = optimum(table)
    for record in run.result.history:
        assert record.dual <= best * (1 + 1e-7)
        assert best <= record.primal * (1 + 1e-7)


def test_guards_hold_it_up_less_than_lbfgs() -> None:
    table = load("digits")
    even = dataclasses.replace(table, labels=np.where(table.labels % 2 == 0, 1, -1))
    split = SPLITS["grid"](even, k=2, q=3)
    how = Preprocessing()
    _, run = trained(split.parties, how=how)
    _, other = trained(split.parties, how=how, solver="lbfgs", iterations=90)
    assert PLANES in notes(run)
    assert run.result.certificate.gap <= 1e-3
    reached = [r.round_trips for r in other.result.history if r.gap <= 1e-3]
    assert not reached or run.result.history[-1].round_trips < 0.8 * reached[0]


def test_they_stop_small_tables_so_that_lbfgs_stands_in() -> None:
    split = SPLITS["grid"](load("breast_cancer"), k=3, q=3)
    how = Preprocessing(scaling="standard")
    _, run = trained(split.parties, how=how)
    assert LBFGS in notes(run)


def test_several_lambdas_and_folds_go_on_with_the_same_planes() -> None:
    table = made_up(2600, 10)
    parties = SPLITS["grid"](table, k=2, q=2).parties
    _, run = trained(parties, path=(1e-2, 1e-3), folds=2)
    assert PLANES in notes(run)
    assert all(stage.certificate.gap <= 1e-3 for stage in run.result.stages)


@pytest.mark.parametrize(
    "more",
    [
        {"penalize_intercept": False},
        {"class_weight": {"1": 3.0, "-1": 0.5}},
        {"gap": 1e-7},
        {"loss": "squared"},
        {"loss": "poisson"},
    ],
    ids=str,
)
def test_lbfgs_stands_in_where_planes_do_not(more: dict[str, Any]) -> None:
    table = made_up(1200, 6, regression="loss" in more)
    if table.task == "regression":
        table = Table(
            table.ids, table.features, table.block, np.abs(table.labels).round(), table.task, "p"
        )
    federation, run = trained(
        SPLITS["grid"](table, k=2, q=2).parties, how=Preprocessing(), **{"iterations": 3, **more}
    )
    assert LBFGS in notes(run)
    assert not any(_kept(party) for party in federation.parties.values())


@pytest.mark.parametrize("column", ["offset", "weight"])
def test_samples_with_offsets_or_weights_are_left_to_lbfgs(column: str) -> None:
    """Also where no weight is above one, so that the largest tells nothing of them."""
    table = made_up(1800, 6)
    table.block[:, 0] = np.linspace(0.6, 1.0, 1800)
    parties = SPLITS["grid"](table, k=3, q=1).parties
    named: dict[str, Any] = {column: "x0"}
    how = Preprocessing(intercept=False, **named)
    _, run = trained(parties, how=how, iterations=3)
    assert LBFGS in notes(run)


def _kept(party: Any) -> bool:
    return bool(party._half.rows.mixtures._held)


def test_dual_vectors_are_kept_for_planes_alone() -> None:
    parties = SPLITS["grid"](made_up(1200, 8), k=2, q=2).parties
    planes, run = trained(parties, iterations=4)
    assert PLANES in notes(run)
    assert all(_kept(party) for party in planes.parties.values())
    for more in ({"solver": "lbfgs"}, {"terms": {"min_batch": 1}}):
        other, run = trained(parties, iterations=4, **more)
        assert PLANES not in notes(run)
        assert not any(_kept(party) for party in other.parties.values())
    kinks, run = trained(parties, iterations=4, loss="hinge", terms={"min_batch": 1})
    assert not any(_kept(party) for party in kinks.parties.values())


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_a_table_of_zeros_is_certified(loss: str) -> None:
    table = made_up(1200, 4)
    table.block[:] = 0.0
    _, run = trained(SPLITS["grid"](table, k=2, q=2).parties, loss=loss, iterations=3)
    assert run.result.certificate.gap <= 1e-9


def test_whoever_makes_planes_tells_no_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "weft.solvers.subspace.coordinator_round_trips.SearchRequest",
        lambda **fields: SearchRequest(**{**fields, "moments": True}),
    )
    with pytest.raises(ProtocolError, match="not told where cutting planes are made"):
        trained(SPLITS["grid"](made_up(1200, 8), k=2, q=2).parties)


def test_more_vectors_are_told_only_where_planes_are_begun() -> None:
    settings = Settings(lam=LAM, loss="logistic", solver="span-newton", gap=1e-3, iterations=1)
    limit = MeasurementLimit.of(settings)
    limit.tell_vectors(8)
    with pytest.raises(ProtocolError, match="more than the iterations"):
        limit.tell_vectors(1)
    limit = MeasurementLimit.of(settings)
    limit.begin_planes()
    limit.begin_planes()
    limit.tell_vectors(16)
    with pytest.raises(ProtocolError, match="more than the iterations"):
        limit.tell_vectors(1)
