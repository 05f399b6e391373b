"""Evaluation inside a federation: equal to the pooled held-out scores, and told once, in many."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn import metrics
from sklearn.linear_model import LogisticRegression

from weft import HybridClassifier
from weft.data import SPLITS, Table, Tile
from weft.errors import ProtocolError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import OPEN
from weft.privacy.ledger.run_booking import Ledger
from weft.report.metrics_from_score_counts import evaluation_of
from weft.report.page.evaluation_section import evaluation_section
from weft.solvers.held_out_evaluation_settings import EvaluationSettings
from weft.solvers.held_out_score_counts import EXACT, HeldOutLayout
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.class_fold_problems import held_out_share, large_held_out_share
from weft.sums.scalar_sums import add_scalars

LAM, FOLDS = 1e-2, 3
#: Guards as by default; who shares what with how many is not the subject here.
GUARDED = msgspec.structs.replace(OPEN, min_batch=10)
SETTINGS = Settings(lam=LAM, loss="logistic", solver="lbfgs", folds=FOLDS, gap=1e-4)
CUTS = {
    "horizontal": lambda table: SPLITS["rows"](table, parties=3),
    "vertical": lambda table: SPLITS["columns"](table, parties=3),
    "hybrid": lambda table: SPLITS["grid"](table, k=2, q=2),
}


def make_table(samples=600, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, 6))
    x[:, 5] = rng.integers(0, 2, samples)
    y = rng.random(samples) < expit(x @ [1.2, -0.8, 0.5, 0.3, 0.0, 0.6] - 0.8)
    ids = np.array([f"s{number}" for number in range(samples)], dtype=object)
    names = np.array(["a", "b", "c", "d", "e", "sex"], dtype=object)
    return Table(ids, names, x, y.astype(int), "classification", "made up")


@pytest.fixture(scope="module")
def table():
    return make_table()


@pytest.fixture(scope="module")
def horizontal(table):
    """A recorded run, made once."""
    return train(CUTS["horizontal"](table).parties, record=True)


def train(tiles, settings=SETTINGS, terms=GUARDED, **how):
    federation = Federation(tiles, Preprocessing(intercept=True), terms=terms, **how)
    return federation, federation.train(settings)


def pooled(federation, trained, model=0):
    """Ids, folds, scores and labels that label holders kept of a model of one class."""
    ids, fold, scores, truth = pooled_classes(federation, model)
    return ids, fold, scores[:, 0], truth[:, 0] > 0


def pooled_classes(federation, model=0):
    """The same of all classes."""
    found = []
    for party in federation.parties.values():
        kept = party._half.samples._held_out
        if kept is None or model not in kept._models:
            continue
        left = kept._models[model]
        ids = np.full(party.view.n_rows, "", dtype=object)
        for own, rows in zip(party._matching.ids, party.view.tile_rows, strict=True):
            ids[rows[rows >= 0]] = own[rows >= 0]
        found.append((ids[left.rows], left.fold, left.scores, left.truth))
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def near(figure, truth, slack=1e-9):
    return abs(figure["value"] - truth) <= figure["exact_to"] + slack


@pytest.mark.parametrize("cut", CUTS)
def test_figures_are_those_of_central_models_on_pooled_held_out_samples(table, horizontal, cut):
    federation, trained = horizontal if cut == "horizontal" else train(CUTS[cut](table).parties)
    ids, fold, scores, positive = pooled(federation, trained)
    place = {name: number for number, name in enumerate(table.ids.tolist())}
    rows = np.array([place[name] for name in ids.tolist()])
    # The outside judge: scikit-learn on the pooled table, with the constant column penalised.
    x = np.hstack([table.block, np.ones((len(table.ids), 1))])
    central = np.zeros(len(rows))
    for number in range(FOLDS):
        out = np.isin(np.arange(len(x)), rows[fold == number])
        judge = LogisticRegression(C=1 / (LAM * (~out).sum()), fit_intercept=False, tol=1e-10)
        judge.fit(x[~out], table.labels[~out])
        central[fold == number] = x[rows[fold == number]] @ judge.coef_[0]
    assert np.abs(central - scores).max() < 0.02
    assert (table.labels[rows] == positive).all()
    found = evaluation_of(trained.result.held_out, [0, 1], trained.holdings.parties)
    assert found["samples"] == len(rows) == found["in_buckets"]
    model, chances = found["models"][0], expit(scores)
    assert near(model["auc"], metrics.roc_auc_score(positive, scores))
    assert near(model["auc"], metrics.roc_auc_score(positive, central), 5e-4)
    assert model["auc"]["exact_to"] < 0.06
    assert near(model["average_precision"], metrics.average_precision_score(positive, scores))
    assert found["accuracy"]["value"] == metrics.accuracy_score(positive, scores >= 0)
    assert found["brier"]["value"] == pytest.approx(metrics.brier_score_loss(positive, chances))
    assert found["loss"]["value"] == pytest.approx(metrics.log_loss(positive, chances))
    line = LogisticRegression(C=np.inf, tol=1e-10).fit(scores[:, None], positive)
    assert near(model["calibration"]["slope"], line.coef_[0, 0], 1e-3)
    assert near(model["calibration"]["predicted"], chances.mean(), 1e-3)


def test_a_softmax_is_judged_by_its_own_probabilities():
    """Log-loss, Brier score and AUC are scikit-learn's of probabilities of all classes at once."""
    table = make_table(300)
    three = replace(table, labels=(table.block[:, 0] > 0).astype(int) + table.labels)
    wanted = msgspec.structs.replace(SETTINGS, loss="softmax", penalize_intercept=False, folds=2)
    federation, trained = train(CUTS["horizontal"](three).parties, wanted, terms=OPEN)
    ids, fold, scores, truth = pooled_classes(federation)
    chances, labels = softmax(scores, axis=1), truth.argmax(axis=1)
    found = evaluation_of(trained.result.held_out, [0, 1, 2], trained.holdings.parties)
    assert found["samples"] == len(labels)
    assert found["loss"]["value"] == pytest.approx(metrics.log_loss(labels, chances))
    assert found["accuracy"]["value"] == (scores.argmax(axis=1) == labels).mean()
    squares = ((chances - (truth > 0)) ** 2).sum(axis=1)
    assert found["brier"]["value"] == pytest.approx(squares.mean())
    for number, model in enumerate(found["models"]):
        assert near(model["auc"], metrics.roc_auc_score(labels == number, chances[:, number]))
        assert near(model["calibration"]["predicted"], chances[:, number].mean(), 1e-3)
    # The outside judge, for each fold trained on the others.
    place = {name: number for number, name in enumerate(three.ids.tolist())}
    rows, x = np.array([place[name] for name in ids.tolist()]), three.block
    assert (three.labels[rows] == labels).all()
    for number in range(2):
        mine = rows[fold == number]
        out = np.isin(np.arange(len(x)), mine)
        judge = LogisticRegression(C=1 / (LAM * (~out).sum()), tol=1e-8, max_iter=1000)
        judge.fit(x[~out], three.labels[~out])
        assert np.abs(judge.predict_proba(x[mine]) - chances[fold == number]).max() < 0.01


def test_lambda_is_chosen_by_auc_or_loss(table):
    def fitted(**how):
        model = HybridClassifier(
            loss="logistic", lam=1e-2, path=[3.0, 0.3], folds=FOLDS, gap=1e-2, **how
        )
        return model.fit(SPLITS["columns"](table, parties=2, labels="first"))

    by_auc, by_loss = (fitted(scoring=by) for by in ("auc", "loss"))
    for model in (by_auc, by_loss):
        results = model.cv_results_
        best = results["mean_score"].idxmax()
        assert results["chosen"][best]
        assert model.lambda_ == results["lambda"][best]
    assert (by_loss.cv_results_["mean_score"] == -by_loss.cv_results_["mean_loss"]).all()
    # All labels are at one party, so that pairs are all pairs of a fold, as in scikit-learn.
    federation, trained = train(
        SPLITS["columns"](table, parties=2, labels="first").parties,
        msgspec.structs.replace(SETTINGS, scoring="auc", gap=1e-2),
        terms=OPEN,
    )
    _, fold, scores, positive = pooled(federation, trained)
    aucs = [metrics.roc_auc_score(positive[fold == k], scores[fold == k]) for k in range(FOLDS)]
    assert trained.result.stages[0].fold_aucs == pytest.approx(aucs)


def test_classes_are_judged_against_the_rest():
    from sklearn.datasets import load_iris

    x, y = load_iris(return_X_y=True)
    model = HybridClassifier(loss="logistic", folds=3, scaling="standard").fit(x, y)
    found = model.evaluation_
    assert [one["class"] for one in found["models"]] == ["0", "1", "2"]
    assert found["models"][0]["auc"]["value"] > 0.99
    assert found["majority"] == pytest.approx(1 / 3)
    assert found["accuracy"]["value"] == pytest.approx(model.cv_results_["mean_score"][0], abs=0.02)


def test_a_regression_and_a_run_without_folds_are_not_judged(table):
    _, trained = train(CUTS["horizontal"](table).parties, Settings(lam=1.0, solver="lbfgs",
                       loss="logistic", gap=0.1))  # fmt: skip
    assert trained.result.held_out is None
    squared = Settings(lam=1.0, solver="lbfgs", loss="squared", gap=0.1, folds=2)
    tile = Tile.make(table.ids, table.features, table.block, table.block[:, 0])
    assert train({"p": (tile,)}, squared)[1].result.held_out is None


# ── what is told ──────────────────────────────────────────────────────────────────────────────


def test_recorded_messages_hold_totals_and_no_partys_own_counts(horizontal):
    federation, trained = horizontal
    crossed = [e for e in trained.channel.transcript if e.phase == "subspace.evaluate"]
    assert len(crossed) == len(federation.parties)
    layout = HeldOutLayout.of(SETTINGS.evaluation, 1, len(federation.parties))
    told = [party._half.samples._held_out.told for party in federation.parties.values()]

    class Reply:
        def __init__(self, counts):
            self.counts = counts

    def read(entries):
        replies = {str(n): Reply(e.reply["counts"]) for n, e in enumerate(entries)}
        return np.array(add_scalars(replies, "counts", layout.size, replies))

    # All of them together are the totals; any fewer are noise.
    assert read(crossed) == pytest.approx(np.sum(told, axis=0), abs=1e-9)
    for fewer in (crossed[:1], crossed[1:]):
        assert np.abs(read(fewer)[:EXACT]).max() > 1e15
    for part in told:
        counts = layout.parts(part)[2][..., :2].sum(axis=-1)
        assert ((counts == 0) | (counts >= 10)).all()


def test_counts_are_told_once_and_of_finished_models(horizontal):
    federation, _ = horizontal
    kept = next(iter(federation.parties.values()))._half.samples._held_out
    with pytest.raises(ProtocolError, match="again"):
        kept.judge(0)
    fresh = copy(kept)
    fresh._told = None
    with pytest.raises(ProtocolError, match="not finished"):
        fresh.judge(7)


def test_a_site_is_judged_by_itself_where_its_terms_say_so(table):
    tiles = CUTS["horizontal"](table).parties
    wanted = msgspec.structs.replace(
        SETTINGS, gap=0.1, evaluation=msgspec.structs.replace(SETTINGS.evaluation, by_site=True)
    )
    terms = msgspec.structs.replace(GUARDED, allow_site_scores=False)
    with pytest.raises(WeftError, match="agree on allow_site_scores = true"):
        train(tiles, wanted, terms=terms)
    _, trained = train(tiles, wanted)
    groups = evaluation_of(trained.result.held_out, [0, 1], list(tiles))["groups"]
    assert [row["group"] for row in groups] == list(tiles)


def test_groups_are_of_a_column_that_every_label_holder_has(table):
    groups = msgspec.structs.replace(SETTINGS.evaluation, groups={"sex": (0.0, 1.0)})
    wanted = msgspec.structs.replace(SETTINGS, evaluation=groups, gap=0.1)
    federation, trained = train(CUTS["horizontal"](table).parties, wanted)
    ids, _, scores, positive = pooled(federation, trained)
    of = dict(zip(table.ids.tolist(), table.block[:, 5].tolist(), strict=True))
    sex = np.array([of[name] for name in ids.tolist()])
    found = evaluation_of(trained.result.held_out, [0, 1], [])["groups"]
    for row, value in zip(found, (0.0, 1.0), strict=True):
        mine = sex == value
        assert row["samples"] == mine.sum()
        assert near(row["auc"], metrics.roc_auc_score(positive[mine], scores[mine]))
    with pytest.raises(WeftError, match=r"no column 'sex' for \[evaluation.groups\]"):
        train(CUTS["vertical"](table).parties, wanted)


def test_groups_of_several_classes_are_judged_each_against_the_rest(table):
    kind = np.digitize(table.block[:, 0] + 0.5 * table.block[:, 1], [-0.4, 0.4])
    three = replace(table, labels=kind)
    groups = EvaluationSettings(groups={"sex": (0.0, 1.0)})
    wanted = msgspec.structs.replace(SETTINGS, evaluation=groups, folds=2, gap=0.1)
    # Of fewer than six times min_batch samples of a class none would be left out.
    terms = msgspec.structs.replace(OPEN, min_batch=5)
    federation, trained = train(CUTS["horizontal"](three).parties, wanted, terms)
    ids, scores, truth = [], [], []
    of = dict(zip(table.ids.tolist(), table.block[:, 5].tolist(), strict=True))
    for party in federation.parties.values():
        left = party._half.samples._held_out._models[0]
        names = np.full(party.view.n_rows, "", dtype=object)
        for own, rows in zip(party._matching.ids, party.view.tile_rows, strict=True):
            names[rows[rows >= 0]] = own[rows >= 0]
        ids += names[left.rows].tolist()
        scores.append(left.scores)
        truth.append(left.truth > 0)
    sex = np.array([of[name] for name in ids])
    scores, truth = np.concatenate(scores), np.concatenate(truth)
    judged = evaluation_of(trained.result.held_out, [0, 1, 2], [])
    page = evaluation_section(SimpleNamespace(is_comparison=False, summary={"evaluation": judged}))
    assert "By group, each class against the rest" in str(page)
    found = judged["groups"]
    assert [(row["group"], row["class"]) for row in found] == [
        (level, name) for name in ("0", "1", "2") for level in ("0", "1")
    ]
    for row in found:
        mine, k = sex == float(row["group"]), int(row["class"])
        assert row["samples"] == mine.sum()
        assert row["positive"] == truth[mine, k].sum()
        assert near(row["auc"], metrics.roc_auc_score(truth[mine, k], scores[mine, k]))
        assert row["accuracy"] is None


# ── two runs ──────────────────────────────────────────────────────────────────────────────────


def without(tiles, party, rows):
    """The same tiles, with some samples of a party gone."""
    held = tiles[party]
    left = [np.flatnonzero(~np.isin(np.arange(tile.n), rows)) for tile in held]
    fewer = tuple(
        replace(t, ids=t.ids[k], block=t.block[k], labels=None if t.labels is None else t.labels[k])
        for t, k in zip(held, left, strict=True)
    )
    return {**tiles, party: fewer}


def test_a_second_run_with_one_sample_fewer_is_refused_where_nobody_shares_anything(
    table, tmp_path
):
    """Columns at one party each: no feature sum shows the sample, but counts of scores would."""
    tiles = CUTS["vertical"](table).parties
    first = next(iter(tiles))
    fewer = tiles
    for party in tiles:
        fewer = without(fewer, party, [7])
    ledger = Ledger(tmp_path)
    terms = msgspec.structs.replace(GUARDED, allow_small_changes=False)
    quick = msgspec.structs.replace(SETTINGS, gap=0.1)
    _, before = train(tiles, quick, terms=terms, ledger=ledger)
    with pytest.raises(WeftError, match=f"party {first} refuses to train, because so few"):
        train(fewer, quick, terms=terms, ledger=ledger)
    # What the guard holds back: the sample's class, and about where its score lies.
    _, after = train(fewer, quick)
    change = before.result.held_out.everyone[0] - after.result.held_out.everyone[0]
    gone = change.sum(axis=(0, 1))
    assert gone.tolist() == [1.0 - table.labels[7], float(table.labels[7])]


SHARE = msgspec.structs.replace(SETTINGS, folds=0, evaluation=EvaluationSettings(held_out=0.3))


@pytest.mark.parametrize("cut", ["horizontal", "hybrid"])
def test_a_share_is_held_out_once_and_judged_as_scikit_learn_does(table, cut):
    federation, trained = train(CUTS[cut](table).parties, SHARE)
    ids, fold, scores, truth = pooled(federation, trained)
    assert set(fold) == {0}
    assert 0.25 < len(ids) / len(table.ids) < 0.4
    assert len(set(ids)) == len(ids)
    kept = ~np.isin(table.ids, ids)
    central = LogisticRegression(C=1 / (LAM * kept.sum()), tol=1e-10, max_iter=10_000)
    # The constant column has a penalty here, as in training.
    x = np.column_stack([table.block, np.ones(len(kept))])
    central.set_params(fit_intercept=False).fit(x[kept], table.labels[kept])
    place = {name: k for k, name in enumerate(table.ids.tolist())}
    own = x[[place[name] for name in ids.tolist()]] @ central.coef_[0]
    assert scores == pytest.approx(own, abs=0.05)
    found = evaluation_of(trained.result.held_out, [0, 1], trained.holdings.parties)
    assert found["samples"] == len(ids)
    assert near(found["models"][0]["auc"], metrics.roc_auc_score(truth, scores))
    assert found["accuracy"]["value"] == pytest.approx(metrics.accuracy_score(truth, scores > 0))
    assert trained.model.info["threshold"] == 0.5


def test_shares_that_hardly_differ_leave_out_sets_that_differ_in_many():
    ids = np.array([f"s{k}" for k in range(500)], object)
    group = np.zeros(500, np.int64)
    several = [large_held_out_share(ids, group, 10, share, 3) for share in (0.3, 0.305)]
    alone = [held_out_share(ids, share, 3) for share in (0.3, 0.305)]
    for one, other in (several, alone):
        assert ((one == 0) & (other != 0)).sum() > 50
        assert ((one != 0) & (other == 0)).sum() > 50


def test_a_share_leaves_many_of_a_group_out_or_none_and_all_holders_agree():
    ids = np.array([f"s{k}" for k in range(500)], object)
    group = np.repeat([0, 1, 2], [400, 70, 30])
    found = large_held_out_share(ids, group, 10, 0.2, 3)
    assert [int((found[group == k] == 0).sum()) for k in range(3)] == [80, 30, 0]
    mixed = np.random.default_rng(1).permutation(500)
    assert np.array_equal(large_held_out_share(ids[mixed], group[mixed], 10, 0.2, 3), found[mixed])
    free = held_out_share(ids, 0.2, 3)
    assert np.array_equal(held_out_share(ids[mixed], 0.2, 3), free[mixed])
    assert 60 < (free == 0).sum() < 140


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"folds": 5, "evaluation": EvaluationSettings(held_out=0.2)}, "keep one of the two"),
        ({"folds": 1}, "held_out = 0.2"),
        (
            {"mode": "sealed", "solver": "auto", "evaluation": EvaluationSettings(held_out=0.2)},
            "sealed",
        ),
    ],
)
def test_shares_that_cannot_be_held_out_are_refused(table, changes, words):
    settings = {"lam": LAM, "loss": "logistic", "solver": "lbfgs", **changes}
    with pytest.raises(WeftError, match=words):
        train(CUTS["horizontal"](table).parties, Settings(**settings))
    with pytest.raises(WeftError, match=r"up to 0\.5"):
        EvaluationSettings(held_out=0.7)
