"""Sealed training with weights of samples and classes, against scipy and scikit-learn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from sealed_runs import ALL, COLUMNS, CUTS, NAMES, cut, held, optimum, table, weights
from sklearn.linear_model import LogisticRegression
from test_sealed_offsets import tiles_of

from covering import cover, every_value
from weft.crypto.pads.pads_all_parties_know import OpeningPads
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards.privacy_terms import OPEN, Terms
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.coalition_knowledge import Told
from weft.solvers.secret_sharing.label_telling_model_guard import refuse_uneven
from weft.solvers.secret_sharing.messages import WEIGH

ROWS = 90
TWO = {"a": [(ALL, slice(0, 3))], "b": [(ALL, slice(3, None), False)]}
SEALED = {"lam": 0.02, "solver": "sealed", "penalize_intercept": False}


def data(loss, seed=3, rows=ROWS):
    block, labels = table(seed, classes=0 if loss == "squared" else 2, rows=rows)
    return block, labels, np.exp(np.random.default_rng(seed).normal(size=rows))


def train(tiles, loss, *, weight="o", offset=None, record=False, terms=OPEN, **settings):
    how = Preprocessing(intercept=True, weight=weight, offset=offset)
    federation = Federation(tiles, how, record=record, terms=terms)
    return federation, federation.train(Settings(loss=loss, **{**SEALED, **settings}))


def judged(trained, block, target, lam, loss, counts):
    """P at the model less P*, which is no more than is certified."""
    best, value = optimum(block, target, lam, loss, free=True, counts=counts)
    w = np.append(weights(trained.model), trained.model.intercept)
    certificate = trained.result.certificate
    assert certificate.dual[0] <= best * (1 + 1e-9)
    assert value(w) - best <= certificate.primal[0] - certificate.dual[0] + 1e-12
    return value(w)


@cover(
    ("loss", "how"),
    [("logistic", "overlapping"), ("squared", "grid")],
    others=[("logistic", "vertical")],
)
def test_weights_give_the_certified_optimum(loss, how):
    block, labels, counts = data(loss)
    how = CUTS[how]
    _, trained = train(tiles_of(block, labels, counts, how), loss)
    target = labels if loss == "squared" else 2.0 * labels - 1
    found = judged(trained, held(block, how), target, 0.02, loss, counts)
    assert trained.result.certificate.gap <= 1e-3
    # Weights matter: at the optimum without them P is another.
    alone = optimum(held(block, how), target, 0.02, loss, free=True)[0]
    assert abs(found - alone) > 0.01


def scaled(counts):
    return 1e-4 * counts


def far_apart(counts):
    return np.where(np.arange(len(counts)) % 9 == 0, 2000.0, 1.0)


HOSTILE = {
    "as they are": lambda counts: counts,
    "tiny": scaled,
    "huge": lambda counts: 1e5 * counts,
    "far apart": far_apart,
}


@every_value(harm=HOSTILE, lam=[1e-4, 1.0], loss=["logistic", "squared"], outliers=[False, True])
def test_hostile_weights_are_certified_truly_or_refused(harm, lam, loss, outliers):
    block, labels, counts = data(loss, rows=40)
    counts = HOSTILE[harm](counts)
    block[3] *= 50.0 if outliers else 1.0
    target = labels if loss == "squared" else 2.0 * labels - 1
    refused = ""
    try:
        _, trained = train(tiles_of(block, labels, counts), loss, lam=lam, iterations=12)
    except WeftError as error:
        refused = str(error)
    if refused:
        assert "sealed training" in refused
    else:
        judged(trained, block, target, lam, loss, counts)


def test_balanced_classes_are_those_of_scikit_learn():
    block, labels = table(rows=120)
    labels = ((block[:, 0] + 0.3 * block[:, 4]) > 0.9).astype(int)
    tiles = cut(block, labels, CUTS["horizontal"])
    _, trained = train(
        tiles, "logistic", weight=None, class_weight="balanced", lam=0.02, gap=1e-5, iterations=60
    )
    theirs = LogisticRegression(C=1 / (0.02 * 120), class_weight="balanced", tol=1e-10).fit(
        block, labels
    )
    np.testing.assert_allclose(weights(trained.model), theirs.coef_, atol=3e-3)
    np.testing.assert_allclose(trained.model.intercept, theirs.intercept_, atol=3e-3)


@pytest.fixture(scope="module")
def run():
    """A recorded run with weights and offsets, folds and a Hessian, and what parties opened."""
    opened = []
    take_off = OpeningPads.take_off

    def taking(self, total, count, label):
        found = take_off(self, total, count, label)
        opened.append((self._party, label, found.copy()))
        return found

    block, labels, counts = data("logistic", rows=400)
    offsets = np.random.default_rng(1).normal(size=len(labels))
    tiles = tiles_of(block, labels, counts, TWO)
    tiles["a"] = [_with(tile, offsets) for tile in tiles["a"]]
    asked = {"second_moments": ("hessian",), "folds": 2, "lam": 0.3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpeningPads, "take_off", taking)
        _, trained = train(tiles, "logistic", offset="p", record=True, **asked)
    return trained, opened, block, labels, counts, offsets


def _with(tile, offsets):
    block = np.c_[tile.block, offsets]
    return replace(tile, features=np.append(tile.features, "p"), block=block)


def test_a_hessian_and_folds_have_weights_and_offsets_in_them(run):
    trained, _, block, labels, counts, offsets = run
    x = np.c_[block, np.ones(len(block))]
    w = np.append(weights(trained.model), trained.model.intercept)
    p = expit(x @ w + offsets)
    moments = trained.second_moments
    order = [list(moments.names).index(name) for name in NAMES] + [COLUMNS]
    found = moments.hessian[0][np.ix_(order, order)]
    true = x.T @ (x * (counts * p * (1 - p))[:, None]) / len(x)
    np.testing.assert_allclose(found, true, atol=moments.hessian_error.max())
    np.testing.assert_allclose(found, true, atol=1e-6)
    ((count, loss, _),) = trained.result.stages[0].scores
    assert count == len(labels)
    losses = [_loss_of_folds(block, labels, counts, offsets, seed) for seed in range(20)]
    # The folds are drawn: of 1,500 draws one was five deviations above the mean, none more.
    assert abs(loss - np.mean(losses)) < 10 * np.std(losses)


def _loss_of_folds(block, labels, counts, offsets, seed):
    drawn = np.random.default_rng(seed).permutation(len(labels)) % 2 == 0
    target, x, loss = 2.0 * labels - 1, np.c_[block, np.ones(len(block))], 0.0
    for half in drawn, ~drawn:
        fit = optimum(
            block[half], target[half], 0.3, "logistic", free=True, offset=offsets[half],
            counts=counts[half], weights=True,
        )  # fmt: skip
        z = x[~half] @ fit + offsets[~half]
        loss += (counts[~half] * np.logaddexp(0, -target[~half] * z)).sum()
    return loss


def test_all_that_weights_open_is_uniform_and_tells_none_of_them(run):
    trained, opened, _, labels, counts, _ = run
    asked = [e.phase for e in trained.channel.transcript if e.party == "a"]
    assert asked.count(WEIGH.name) == asked.count("sealed.slopes") > 3
    words = [found for party, label, found in opened if party == 0 and not label.endswith("sums")]
    assert sum(label.endswith("weights") for party, label, _ in opened if party == 0) == 1
    # Of every phase by itself, since a few words that are not would not show among many.
    for found in words:
        whole = found[found >= 1 << 40]
        if len(whole) > 300:
            counted = np.bincount((whole >> np.uint64(60)).astype(int), minlength=16)
            expected = len(whole) / 16
            assert ((counted - expected) ** 2 / expected).sum() < 60
    small = np.concatenate(words).view(np.int64)
    for bits in range(14, 47):
        for values in (counts, -0.5 * counts * (2 * labels - 1)):
            told = np.rint(values * 2.0**bits).astype(np.int64)
            assert not np.isin(small, told[np.abs(told) > 1 << 12]).any()


def test_what_hides_weights_hides_nothing_else(run):
    """E of the weights is opened once, and no two openings are alike."""
    _, opened, *_ = run
    labels = [label for party, label, _ in opened if party == 0]
    assert len(labels) == len(set(labels))
    words = np.concatenate([found[found >= 1 << 40] for party, _, found in opened if party == 0])
    assert len(np.unique(words)) == len(words)


def test_weights_that_make_a_model_of_few_samples_are_refused():
    rows = np.arange(100)
    told = Told(((rows, 12),), np.zeros(100, np.int64))
    refuse_uneven(told, np.ones(100), 10, wide=False)
    uneven = np.where(rows < 5, 1000.0, 1.0)
    for wide, counts in ((True, uneven), (False, np.where(rows < 30, 9.0, 1.0))):
        with pytest.raises(ConfigError, match="so few samples have nearly all"):
            refuse_uneven(told, counts, 10, wide=wide)
    refuse_uneven(told, np.where(rows < 30, 9.0, 1.0), 10, wide=True)
    # As many as 26 of one weight, by the rule above; but one has 0.97 of all squares.
    many = np.arange(600)
    told = Told(((many, 5),), np.zeros(600, np.int64))
    with pytest.raises(ConfigError, match="so few samples have nearly all"):
        refuse_uneven(told, np.where(many == 3, 145.0, 1.0), 10, wide=False)
    refuse_uneven(told, np.random.default_rng(0).lognormal(0.0, 1.0, 600), 10, wide=False)


def test_one_who_alone_has_labels_tells_no_sizes_of_classes():
    block, labels, counts = data("logistic")
    careful = Terms(min_batch=4, allow_exposure=True)
    for weight, more in (("o", {}), (None, {"class_weight": "balanced"})):
        tiles = tiles_of(block, labels, counts) if weight else cut(block, labels, TWO)
        asked = {"penalize_intercept": True, "weight": weight, "terms": careful, **more}
        with pytest.raises(WeftError, match="being the only one with labels"):
            train(tiles, "logistic", **asked)


@pytest.mark.parametrize("how", ["vertical", "grid"])
def test_standard_errors_are_those_of_weighted_least_squares(how):
    """The judge is the closed form, which var_weights of statsmodels have too."""
    block, labels, counts = data("squared", rows=300)
    how = CUTS[how]
    _, trained = train(
        tiles_of(block, labels, counts, how), "squared", inference="model", lam=1e-7, gap=1e-5,
        iterations=25, second_moments=("hessian",),
    )  # fmt: skip
    summary = trained.inference.summary
    assert summary is not None, trained.inference.why_not
    x, root = np.column_stack([held(block, how), np.ones(len(labels))]), np.sqrt(counts)
    coef = np.linalg.lstsq(x * root[:, None], labels * root, rcond=None)[0]
    residual = len(labels) - x.shape[1]
    deviance = float((counts * (labels - x @ coef) ** 2).sum())
    inverse = np.linalg.inv(x.T @ (counts[:, None] * x))
    order = [NAMES.index(name) for name in summary.names[:-1]] + [-1]
    errors = np.sqrt(np.diag(inverse) * deviance / residual)[order]
    np.testing.assert_allclose(summary.errors, errors, rtol=1e-4)
    off = np.abs(summary.coef - coef[order])
    assert (off / errors).max() < 1e-2
    assert (off <= summary.distance).all()
    # By how long the slope is, however small λ: the certified gap alone would leave whole errors.
    assert (summary.distance / errors).max() < 0.1
    assert summary.measures.deviance == pytest.approx(deviance, rel=1e-4)
    null = float((counts * (labels - np.average(labels, weights=counts)) ** 2).sum())
    assert summary.measures.null_deviance == pytest.approx(null, rel=1e-3)
    # It takes Σ log ω, which nobody tells.
    assert summary.measures.log_likelihood is None


def test_a_hessian_that_few_samples_weigh_in_is_kept_back():
    """(Σω)²/Σω² is 21 at each: enough for a model of min_batch = 10, not for five times that."""
    block, labels, _ = data("squared", rows=300)
    uneven = np.where(np.arange(300) % 15 == 0, 30.0, 1.0)
    halves = {"a": [(slice(0, 150), ALL)], "b": [(slice(150, None), ALL)]}
    terms = Terms(min_batch=10, allow_pairs=True, allow_lone_labels=True, allow_exposure=True,
                  allow_second_moments=True, allow_rare_pairs=True)  # fmt: skip
    tiles = tiles_of(block, labels, uneven, halves)
    asked = {"inference": "model", "second_moments": ("hessian",), "lam": 1e-3, "iterations": 2}
    _, trained = train(tiles, "squared", terms=terms, **asked)
    assert "a few samples have nearly all, by their weights" in trained.inference.why_not
    assert any("keeps it back" in note for note in trained.result.notes)


def test_weights_that_are_too_small_and_matrices_of_squares_are_refused_in_a_sentence():
    block, labels, counts = data("squared")
    few = np.where(np.arange(ROWS) == 7, 1e-5, 1.0)
    with pytest.raises(WeftError, match="a weight below a 4,096th of the largest"):
        train(tiles_of(block, labels, few), "squared")
    with pytest.raises(WeftError, match="no Gram matrix of a squared loss whose samples"):
        train(tiles_of(block, labels, counts), "squared", second_moments=("gram",))
