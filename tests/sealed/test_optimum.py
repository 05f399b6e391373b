"""Sealed models are certified, and scipy on the pooled table never finds a certificate false."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sealed_runs import COLUMNS, CUTS, cut, held, optimum, table, train, weights

from covering import cover, every_value
from weft.errors import ConfigError
from weft.estimators import HybridClassifier
from weft.report.results_folder import write_results


def judged(trained, block, targets, lam, loss):
    """True gaps, each below what is certified; D is below P*, and P − P* below P − D."""
    gaps = []
    certificate = trained.result.certificate
    for w, target, primal, dual in zip(
        weights(trained.model), targets, certificate.primal, certificate.dual, strict=True
    ):
        best, value = optimum(block, target, lam, loss)
        assert dual <= best * (1 + 1e-9)
        assert value(w) - best <= (primal - dual) * (1 + 1e-9) + 1e-12
        gaps.append((value(w) - best) / value(w))
    assert max(gaps) <= certificate.gap
    return gaps


# The other loss of every cut is in ``test_free_intercept.py``.
@cover(
    ("how", "loss"),
    zip(CUTS, ["squared", "logistic"] * 2, strict=True),
    others=product(CUTS, ["logistic", "squared"]),
)
def test_every_cut_of_a_table_gives_the_certified_optimum(how, loss):
    block, labels = table(classes=0 if loss == "squared" else 2)
    _, trained = train(cut(block, labels, CUTS[how]), loss=loss)
    target = labels if loss == "squared" else 2.0 * labels - 1
    judged(trained, held(block, CUTS[how]), [target], 1e-2, loss)
    assert trained.result.certificate.gap <= 1e-3


def test_classes_are_trained_side_by_side():
    block, labels = table(classes=3)
    how = CUTS["vertical"]
    _, trained = train(cut(block, labels, how), lam=3e-2)
    targets = [np.where(labels == c, 1.0, -1.0) for c in range(3)]
    judged(trained, held(block, how), targets, 3e-2, "logistic")
    assert trained.result.certificate.gap <= 1e-3


def test_a_path_of_lambdas_is_certified_at_every_one():
    block, labels = table()
    _, trained = train(cut(block, labels, CUTS["vertical"]), lam=1e-3, path=(1e-1, 1e-2))
    assert [stage.lam for stage in trained.result.stages] == [1e-1, 1e-2, 1e-3]
    assert all(stage.certificate.gap <= 1e-3 for stage in trained.result.stages)
    judged(trained, block, [2.0 * labels - 1], 1e-3, "logistic")


def test_weights_of_zero_that_are_good_enough_are_a_model_with_a_report(tmp_path):
    _, trained = train(cut(*table(), CUTS["vertical"]), lam=100.0, gap=0.5)
    assert not trained.model.coef.any()
    summary, _ = write_results(tmp_path, trained, trained.settings, name="a run")
    assert summary["cost"]["round_trips"] > 0
    assert summary["certificate"]["gap"] <= 0.5


def test_six_parties_train_as_two_do():
    block, labels = table()
    how = {f"p{j}": [(slice(None), slice(j, j + 1 if j < 5 else None), j == 2)] for j in range(6)}
    _, trained = train(cut(block, labels, how))
    judged(trained, block, [2.0 * labels - 1], 1e-2, "logistic")
    assert trained.result.certificate.gap <= 1e-3


def test_scores_far_beyond_the_first_series_are_certified_too():
    block, labels = table()
    block[3] *= 40.0
    _, trained = train(cut(block, labels, CUTS["vertical"]), lam=1e-3)
    judged(trained, block, [2.0 * labels - 1], 1e-3, "logistic")
    assert trained.result.certificate.gap <= 1e-3
    assert np.abs(block @ weights(trained.model)[0]).max() > 68


def outliers(block):
    block[3] *= 50.0
    return block


HOSTILE = {
    "outliers": outliers,
    "a large column": lambda block: block * np.array([1e6] + [1.0] * (COLUMNS - 1)),
    "a constant column": lambda block: np.where(np.arange(COLUMNS) == 2, 1.0, block),
    "nothing": lambda block: block * 0.0,
}


@every_value(harm=HOSTILE, lam=[1e-6, 1e-3, 1.0], loss=["logistic", "squared"])
def test_a_hostile_table_is_certified_truly_or_refused(harm, lam, loss):
    block, labels = table(classes=0 if loss == "squared" else 2, rows=40)
    block = HOSTILE[harm](block)
    target = labels if loss == "squared" else 2.0 * labels - 1
    tiles = cut(
        block,
        labels,
        {"a": [(slice(None), slice(0, 3))], "b": [(slice(None), slice(3, None), False)]},
    )
    refused = ""
    try:
        _, trained = train(tiles, lam=lam, loss=loss, iterations=12)
    except ConfigError as error:
        refused = str(error)
    if refused:
        assert "sealed training" in refused
    else:
        judged(trained, block, [target], lam, loss)


def test_separable_labels_end_with_a_true_certificate():
    block, _ = table()
    labels = (block[:, 0] > 0).astype(int)
    _, trained = train(cut(block, labels, CUTS["horizontal"]), lam=1e-6, iterations=15)
    judged(trained, block, [2.0 * labels - 1], 1e-6, "logistic")


@pytest.mark.parametrize(
    ("loss", "inference", "patience"),
    [("squared", "none", 2), ("logistic", "none", 2), ("logistic", "model", 4)],
)
def test_a_run_that_no_longer_gets_better_ends_by_itself(loss, inference, patience, monkeypatch):
    """It waits longer for standard errors, of which a gap of a tiny λ says little."""
    monkeypatch.setattr("weft.solvers.secret_sharing.coordinator._MOST_IDLE", 2)
    monkeypatch.setattr("weft.solvers.secret_sharing.coordinator._MOST_IDLE_FOR_ERRORS", 4)
    block, labels = table(classes=0 if loss == "squared" else 2)
    tiles = cut(block, labels, CUTS["vertical"])
    _, trained = train(tiles, loss=loss, gap=1e-12, inference=inference)
    result = trained.result
    assert result.stopped == "rounding and noise keep the gap from falling below this"
    gaps, primals = (np.array([getattr(r, n) for r in result.history]) for n in ("gap", "primal"))
    better = [
        gaps[i] < 0.99 * gaps[:i].min() or primals[i] < (1 - 1e-4) * primals[:i].min()
        for i in range(1, len(gaps))
    ]
    assert better[::-1].index(True) == patience


def test_an_estimator_trains_sealed_and_names_what_it_cannot():
    block, labels = table()
    tiles = cut(block, labels, CUTS["vertical"])
    model = HybridClassifier(loss="logistic", lam=1e-2, privacy="sealed").fit(tiles)
    assert model.solver_ == "sealed"
    assert model.gap_ <= 1e-3
    assert (
        HybridClassifier(loss="logistic", lam=1e-1, privacy="auto").fit(tiles).solver_ == "sealed"
    )
    assert HybridClassifier(loss="hinge", lam=1e-1, privacy="auto").fit(tiles).solver_ != "sealed"
    for wrong in (
        {"loss": "hinge"},
        {"loss": "logistic", "cipher": "plain"},
        {"loss": "logistic", "solver": "hyfdca"},
    ):
        with pytest.raises(ConfigError):
            HybridClassifier(lam=1e-2, privacy="sealed", **wrong).fit(tiles)
    with pytest.raises(ConfigError, match="privacy is 'open'"):
        HybridClassifier(privacy="open").fit(tiles)


def test_a_table_that_64_bits_cannot_hold_is_refused_before_a_cell_is_sent():
    block, labels = table()
    with pytest.raises(ConfigError, match="too large for sealed training"):
        train(cut(block * 1e5, labels, CUTS["vertical"]))
