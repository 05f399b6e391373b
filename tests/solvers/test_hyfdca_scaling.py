"""Federated scaling is scikit-learn's, from sums alone, with every cell counted once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from covering import before_release, every_value
from weft.data import SPLITS, Split, Table, load, pool
from weft.errors import ConfigError, ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.model import Model
from weft.solvers.run_settings import Settings
from weft.sums.table_scaling_and_certificate_messages import FinishScalingRequest

LAM = 0.05
SCALERS = {"standard": StandardScaler, "minmax": MinMaxScaler, "maxabs": MaxAbsScaler}


def covering_tiles(table: Table, seed: int, overlap: str = "mean") -> Split:
    """A grid that holds every cell, and random tiles on top of it."""
    rng = np.random.default_rng(seed)
    parties = dict(SPLITS["grid"](table, 2, 2, seed=seed).parties)
    whole = table.to_tile()
    for number in range(4):
        rows = np.sort(rng.choice(table.n, rng.integers(20, table.n), replace=False))
        columns = rng.choice(table.m, rng.integers(2, table.m), replace=False)
        extra = whole.rows(rows).columns(columns)
        if number % 2:
            parties[f"extra{number}"] = (extra,)
        else:
            parties["r1c1"] = (*parties["r1c1"], extra)
    return Split(parties, overlap, "", table.task)  # type: ignore[arg-type]


def trained(split: Split, scaling: str, iterations: int = 5000, **preprocessing: Any) -> Model:
    settings = Settings(
        cipher="plain", lam=LAM, loss="logistic", gap=5e-5, iterations=iterations, certify_every=20
    )
    how = Preprocessing(overlap=split.overlap, scaling=scaling, **preprocessing)  # type: ignore[arg-type]
    return Federation(split.parties, how).train(settings).model


def parameters(scaling: str, block: Any) -> tuple[Any, Any]:
    """Shift and factor of scikit-learn's scaler."""
    scaler = SCALERS[scaling]().fit(block)
    if scaling == "standard":
        return scaler.mean_, 1 / scaler.scale_
    if scaling == "minmax":
        return scaler.data_min_, scaler.scale_
    return np.zeros(block.shape[1]), 1 / scaler.scale_


def assert_scaled_like(model: Model, table: Table, scaling: str) -> None:
    shift, factor = parameters(scaling, table.block)
    place = [table.features.tolist().index(name) for name in model.features]
    np.testing.assert_allclose(model.scaling[0], shift[place], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(model.scaling[1], factor[place], rtol=1e-8)


@every_value(scaling=SCALERS, overlap=["mean", "first"], seed=[0, 1])
def test_shift_and_factor_are_those_of_scikit_learn(scaling: str, overlap: str, seed: int) -> None:
    split = covering_tiles(load("breast_cancer"), seed, overlap)
    assert_scaled_like(trained(split, scaling, iterations=1), pool(split), scaling)


@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_a_column_far_from_zero_is_standardised_as_well(offset: float) -> None:
    """Times of day in seconds since 1970, say: the spread is a tiny part of the values."""
    table = load("diabetes")
    block = table.block / table.block.std(axis=0) + offset
    labels = (table.labels > table.labels.mean()).astype(int)
    far = Table(table.ids, table.features, block, labels, "classification")
    model = trained(covering_tiles(far, 0), "standard", iterations=1)
    np.testing.assert_allclose(model.scaling[0], block.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(model.scaling[1], 1 / block.std(axis=0), rtol=1e-6)


@pytest.mark.parametrize("scaling", SCALERS)
def test_a_column_that_varies_by_rounding_only_is_not_blown_up(scaling: str) -> None:
    table = load("breast_cancer")
    block = np.array(table.block)
    block[:, 0] = np.where(np.arange(table.n) % 2, 0.3, 0.1 + 0.2)
    block[:, 1] = 5.0
    block[:, 2] = 0.0
    flat = Table(table.ids, table.features, block, table.labels, table.task)
    split = SPLITS["grid"](flat, 2, 2)
    assert_scaled_like(trained(split, scaling, iterations=1), flat, scaling)


@pytest.mark.parametrize("scaling", ["maxabs", *before_release("standard", "minmax")])
def test_training_is_central_training_on_the_scaled_table(judge: Any, scaling: str) -> None:
    split = covering_tiles(load("breast_cancer"), 2)
    model = trained(split, scaling)
    table = pool(split)
    block = SCALERS[scaling]().fit_transform(table.block)
    scaled = Table(table.ids, table.features, block, table.labels, table.task)
    problem = judge.problem("logistic", scaled, LAM)
    shift, factor = parameters(scaling, table.block)
    weights = judge.weights(model, table)[0]
    np.testing.assert_allclose(model.intercept, -weights @ shift, rtol=1e-6)
    assert problem.primal(weights / factor) <= judge.optimum(problem) * (1 + 1e-4)


@pytest.mark.parametrize("scaling", SCALERS)
def test_samples_that_nobody_has_a_label_for_do_not_count(scaling: str) -> None:
    table = load("breast_cancer")
    block, labels = np.array(table.block), table.labels.astype(float)
    block[:50] *= 7.0
    labels[:50] = np.nan
    marred = Table(table.ids, table.features, block, labels, table.task)
    model = trained(SPLITS["grid"](marred, 2, 2, seed=0), scaling, iterations=1)
    assert_scaled_like(model, table.rows(slice(50, None)), scaling)


@pytest.mark.parametrize("scaling", SCALERS)
def test_a_tile_without_any_labelled_sample_does_not_count(scaling: str) -> None:
    table = load("breast_cancer")
    labels = table.labels.astype(float)
    labels[:50] = np.nan
    whole = Table(table.ids, table.features, table.block, labels, table.task).to_tile()
    split = Split(
        {
            "a": (whole.rows(slice(50, 300)), whole.rows(slice(0, 50))),
            "b": (whole.rows(slice(300, 569)),),
        },
        "mean",
        "",
        table.task,
    )
    model = trained(split, scaling, iterations=1)
    assert_scaled_like(model, pool(split).rows(np.r_[0:250, 300:569]), scaling)


@pytest.mark.parametrize("scaling", ["none", "minmax", "maxabs"])
def test_filling_blanks_with_the_mean_is_refused_where_zero_is_not_the_mean(scaling: str) -> None:
    split = SPLITS["rows"](load("breast_cancer"), 2)
    with pytest.raises(ConfigError, match="standard"):
        trained(split, scaling, iterations=1, missing="mean")


def test_blank_cells_do_not_count_and_then_stand_at_the_mean(judge: Any) -> None:
    table = load("breast_cancer")
    block = np.array(table.block)
    block[np.random.default_rng(0).random(block.shape) < 0.1] = np.nan
    holes = Table(table.ids, table.features, block, table.labels, table.task)
    model = trained(SPLITS["grid"](holes, 2, 3, seed=0), "standard", missing="mean")
    assert_scaled_like(model, holes, "standard")
    filled = np.nan_to_num(StandardScaler().fit_transform(block))
    problem = judge.problem(
        "logistic", Table(table.ids, table.features, filled, table.labels, table.task), LAM
    )
    _, factor = parameters("standard", block)
    weights = judge.weights(model, holes)[0] / factor
    assert problem.primal(weights) <= judge.optimum(problem) * (1 + 1e-4)


def test_a_rule_of_scaling_that_there_is_not_is_refused_by_parties(monkeypatch: Any) -> None:
    def asked(**fields: Any) -> FinishScalingRequest:
        return FinishScalingRequest(**{**fields, "rule": "best"})

    monkeypatch.setattr("weft.sums.scaling_coordinator.FinishScalingRequest", asked)
    split = SPLITS["rows"](load("breast_cancer").rows(np.arange(40)), parties=2)
    with pytest.raises(ProtocolError, match="'rule' is no rule of scaling"):
        trained(split, "standard", iterations=1)
