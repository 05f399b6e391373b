"""Folds in a sealed run: each has the model of the other samples, and losses choose λ."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, xlogy
from sealed_runs import CUTS, cut, held, table, train

from weft.crypto.keys import ephemeral_keys
from weft.errors import ConfigError
from weft.estimators import HybridClassifier
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import OPEN
from weft.report.lambda_path import choice_sentence
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.fold_rows import rows_of_folds

PATH, FOLDS = (1.0, 1e-2), 3
#: At 1e-5, losses left out were off by up to 8e-4.
GAP = 2e-6


def fold_of_samples(federation):
    """By the number of the sample, from row numbers as parties know them; −1: it is left out."""
    out = {}
    for party in federation.parties.values():
        half = party._half
        for ids, rows in zip(party._matching.ids, party.view.tile_rows, strict=True):
            for name, row in zip(ids.tolist(), rows.tolist(), strict=True):
                fold = half._fold_rows.fold[half._place.rows[row]] if row >= 0 else -1
                out[int(name[1:])] = max(out.get(int(name[1:]), -1), int(fold))
    return np.array([out[i] for i in sorted(out)])


def losses(z, y, loss):
    if loss == "poisson":
        return np.exp(z) - y * z + xlogy(y, y) - y
    return (z - y) ** 2 / 2 if loss == "squared" else np.logaddexp(0, -y * z)


def slopes(z, y, loss):
    if loss == "poisson":
        return np.exp(z) - y
    return z - y if loss == "squared" else -y * expit(-y * z)


def fitted(x, y, lam, loss):
    def value(w):
        z = x @ w
        gradient = x.T @ slopes(z, y, loss) / len(x) + lam * w
        return losses(z, y, loss).mean() + lam / 2 * w @ w, gradient

    return minimize(value, np.zeros(x.shape[1]), jac=True, tol=1e-10).x


def left_out_loss(block, targets, there, lam, loss):
    """The sum over what a fold leaves out, of models trained by scipy on the rest."""
    total = 0.0
    for target in targets:
        z = block[there] @ fitted(block[~there], target[~there], lam, loss)
        total += losses(z, target[there], loss).sum()
    return total


@pytest.mark.parametrize(
    ("how", "loss", "classes"),
    [
        ("overlapping", "logistic", 3),
        ("grid", "squared", 0),
        ("vertical", "poisson", 0),
        pytest.param("vertical", "logistic", 2, marks=pytest.mark.release),
    ],
)
def test_losses_of_what_folds_leave_out_are_those_of_scipy(how, loss, classes):
    block, labels = table(classes=classes)
    if loss == "poisson":
        labels = np.floor(np.abs(labels))
    tiles = cut(block, labels, CUTS[how])
    settings = {"loss": loss, "lam": PATH[-1], "path": PATH, "folds": FOLDS, "gap": GAP}
    # Noise keeps models without a fold from their optimum in one of twenty runs, which say so.
    for _ in range(4):
        federation, trained = train(tiles, **settings)
        if not any("models without a fold" in note for note in trained.result.notes):
            break
    block = held(block, CUTS[how])
    targets = [labels] if classes == 0 else [2.0 * labels - 1]
    if classes == 3:
        targets = [np.where(labels == c, 1.0, -1.0) for c in range(3)]
    fold = fold_of_samples(federation)
    assert set(np.bincount(fold)) == {len(block) // FOLDS}
    means, told = {}, {}
    for stage in trained.result.stages:
        assert stage.certificate.gap <= GAP
        # One figure of all folds: parties know who is in which.
        ((count, total, good),) = stage.scores
        means[stage.lam] = sum(
            left_out_loss(block, targets, fold == number, stage.lam, loss)
            for number in range(FOLDS)
        )
        told[stage.lam] = total
        assert count == len(block)
        assert total == pytest.approx(means[stage.lam], rel=2e-3)
        assert good == 2 * total if loss == "squared" else np.isnan(good)
    chosen = trained.result.stage.lam
    assert chosen == min(told, key=told.get)
    # Folds are drawn: two λ may come to the same but for what figures are off by.
    assert means[chosen] <= min(means.values()) * (1 + 2 * 2e-3)


def test_models_of_folds_that_are_not_what_was_asked_for_are_told():
    block, labels = table()
    tiles = cut(block, labels, CUTS["vertical"])
    settings = {"loss": "logistic", "lam": 1e-3, "folds": 2, "iterations": 3, "gap": 1e-6}
    _, trained = train(tiles, **settings)
    assert any("λ = 0.001, models without a fold are within" in n for n in trained.result.notes)
    _, trained = train(tiles, **{**settings, "iterations": 40, "gap": 1e-2})
    assert not any("models without a fold" in note for note in trained.result.notes)


def test_samples_that_no_problem_has_are_in_no_fold_and_small_folds_are_refused():
    block, labels = table(classes=3)
    labels[np.flatnonzero(labels == 0)[4:]] = 2
    tiles = cut(block, labels, CUTS["horizontal"])
    terms = msgspec.structs.replace(OPEN, min_batch=8)

    def run(folds):
        how = Preprocessing(intercept=False, scaling="maxabs")
        federation = Federation(tiles, how, terms=terms)
        asked = Settings(lam=1e-1, loss="logistic", solver="sealed", folds=folds, gap=1e-5)
        return federation, federation.train(asked)

    federation, trained = run(2)
    assert trained.holdings.n_samples < len(block)
    fold = fold_of_samples(federation)
    block, labels, fold = block[fold >= 0], labels[fold >= 0], fold[fold >= 0]
    block = block / np.abs(block).max(axis=0)
    targets = [np.where(labels == c, 1.0, -1.0) for c in range(3)]
    assert np.bincount(fold).min() >= 8
    ((count, total, _),) = trained.result.stages[0].scores
    assert count == len(block)
    true = sum(left_out_loss(block, targets, fold == f, 1e-1, "logistic") for f in range(2))
    assert total == pytest.approx(true, rel=1e-3)
    with pytest.raises(ConfigError, match=r"samples of a class at once.*use fewer folds"):
        run(6)
    with pytest.raises(ConfigError, match=r"samples at once.*use fewer folds"):
        run(12)


def test_an_estimator_says_that_losses_chose_the_lambda():
    block, labels = table()
    model = HybridClassifier(
        loss="logistic", lam=1e-2, path=(1e-1,), folds=2, privacy="sealed"
    ).fit(cut(block, labels, CUTS["vertical"]))
    results = model.cv_results_
    assert (results["mean_score"] == -results["mean_loss"]).all()
    assert model.lambda_ == results.loc[results["mean_loss"].idxmin(), "lambda"]
    assert "fold_1" not in results
    assert choice_sentence(results, "classification").endswith("on samples left out")


def test_parties_have_the_same_folds_in_all_runs_of_the_same_samples():
    """Other folds would be further equations about the losses of single samples."""
    block, labels = table()
    keys = ephemeral_keys(tuple(CUTS["vertical"]))

    def drawn(keys, seed, rows=90):
        tiles = cut(block[:rows], labels[:rows], CUTS["vertical"])
        federation = Federation(tiles, Preprocessing(intercept=False), keys=keys)
        asked = Settings(lam=1.0, loss="logistic", solver="sealed", folds=FOLDS, gap=0.5, seed=seed)
        federation.train(asked)
        folds = [party._half._fold_rows.fold.tolist() for party in federation.parties.values()]
        assert all(fold == folds[0] for fold in folds)
        return folds[0]

    first = drawn(keys, 0)
    assert drawn(keys, 1) == first
    assert drawn(keys, 0, 88) != first[:88]
    assert drawn(ephemeral_keys(tuple(CUTS["vertical"])), 0) != first
    assert np.bincount(first).tolist() == rows_of_folds(len(first), FOLDS).tolist()
