"""Figures from counts in buckets against scikit-learn's on the scores themselves."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from sklearn import metrics
from sklearn.linear_model import LogisticRegression

from weft.guards.score_buckets import FARTHEST, LEAVES, REACH, cut, line_of
from weft.losses import get_loss
from weft.privacy.ledger.earlier_score_buckets import ScoreMemory
from weft.report.bucketed_scores import Buckets
from weft.report.metrics_from_score_counts import evaluation_of, headline, shown
from weft.solvers.held_out_evaluation_settings import EvaluationSettings
from weft.solvers.held_out_score_counts import (
    EXACT,
    HeldOutLayout,
    HeldOutSums,
    party_part,
    places_of,
)

LOGISTIC = get_loss("logistic")
PARTIES = 3


def told_by(party, settings, scores, positive, levels, least, loss=LOGISTIC):
    """What one of the parties tells of every third sample."""
    mine = slice(party, None, PARTIES)
    layout = HeldOutLayout.of(settings, 1, PARTIES)
    groups = np.zeros((len(scores), 1), int) if levels is None else levels
    if settings.by_site:
        groups = np.full((len(scores), 1), party)
    truth = np.where(positive, 1.0, -1.0)[:, None]
    places = places_of(layout, scores[mine, None], groups[mine], least)
    return party_part(layout, scores[mine, None], truth[mine], groups[mine], places, loss, least)


def evaluated(scores, positive, *, least=1, levels=None, loss=LOGISTIC, **wanted):
    settings = EvaluationSettings(**wanted)
    parts = [
        told_by(party, settings, scores, positive, levels, least, loss) for party in range(PARTIES)
    ]
    layout = HeldOutLayout.of(settings, 1, PARTIES)
    sums = HeldOutSums.read(layout, np.sum(parts, axis=0), settings, loss)
    return evaluation_of(sums, ["no", "yes"], ["north", "south", "west"])


def drawn(samples, seed=0, spread=1.5, slope=0.8):
    rng = np.random.default_rng(seed)
    scores = rng.normal(-1.0, spread, samples)
    return scores, rng.random(samples) < expit(slope * scores + 0.2)


def near(figure, truth, slack=1e-9):
    return abs(figure["value"] - truth) <= figure["exact_to"] + slack


CASES = [(300, 1, 1.5), (570, 10, 4.0), (3000, 10, 1.0)]


@pytest.mark.parametrize(("samples", "least", "spread"), CASES)
@pytest.mark.parametrize("seed", range(3))
def test_figures_are_scikit_learns_within_the_bound_that_is_told(samples, least, spread, seed):
    scores, positive = drawn(samples, seed, spread)
    found = evaluated(scores, positive, least=least, threshold=0.3)
    model = found["models"][0]
    assert near(model["auc"], metrics.roc_auc_score(positive, scores))
    assert near(model["average_precision"], metrics.average_precision_score(positive, scores))
    down, up, _ = metrics.roc_curve(positive, scores, drop_intermediate=False)
    assert near(model["ks"], (up - down).max())
    chances = expit(scores)
    assert found["brier"]["value"] == pytest.approx(metrics.brier_score_loss(positive, chances))
    assert found["loss"]["value"] == pytest.approx(metrics.log_loss(positive, chances))
    assert found["accuracy"]["value"] == metrics.accuracy_score(positive, scores >= 0)
    assert found["majority"] == pytest.approx(max(positive.mean(), 1 - positive.mean()))
    confusion = model["confusion"]
    assert confusion["score"] == pytest.approx(np.log(0.3 / 0.7), abs=REACH / LEAVES)
    flagged = scores >= confusion["score"]
    recall = metrics.recall_score(positive, flagged)
    assert near(confusion["sensitivity"], recall)
    assert near(confusion["specificity"], metrics.recall_score(~positive, ~flagged))
    (_, wrong), (missed, right) = metrics.confusion_matrix(positive, flagged)
    up, down = confusion["exact_to"]
    assert abs(confusion["true_positives"] - right) <= up + 1e-9
    assert abs(confusion["false_negatives"] - missed) <= up + 1e-9
    assert abs(confusion["false_positives"] - wrong) <= down + 1e-9
    # What is told as open is little where there are many samples.
    assert model["auc"]["exact_to"] < (0.05 if samples < 1000 else 0.012)


@pytest.mark.parametrize(("samples", "least", "spread"), CASES)
@pytest.mark.parametrize("seed", range(3))
def test_calibration_is_that_of_the_scores(samples, least, spread, seed):
    scores, positive = drawn(samples, seed, spread)
    scores = np.clip(scores, -FARTHEST, FARTHEST)
    found = evaluated(scores, positive, least=least)["models"][0]["calibration"]
    line = LogisticRegression(C=np.inf, tol=1e-10).fit(scores[:, None], positive)
    # Sums of scores are told in steps of 2^-12.
    assert near(found["slope"], line.coef_[0, 0], 1e-3)
    shift = brentq(lambda a: (expit(scores + a) - positive).sum(), -9, 9)
    assert near(found["intercept"], shift, 1e-3)
    assert found["predicted"]["value"] == pytest.approx(expit(scores).mean())
    assert found["observed"]["value"] == pytest.approx(positive.mean())
    shares = [point["share"] for point in found["curve"]]
    assert sum(shares) == pytest.approx(1.0)
    observed = np.array([point["observed"] for point in found["curve"]])
    assert np.array(shares) @ observed == pytest.approx(positive.mean())


def test_a_curve_of_leaves_is_that_of_scores_between_their_edges():
    scores, positive = drawn(2000)
    curve = evaluated(scores, positive)["models"][0]["calibration"]["curve"]
    order = np.argsort(scores)
    ends = np.cumsum([round(point["share"] * len(scores)) for point in curve])
    for point, mine in zip(curve, np.split(order, ends[:-1]), strict=True):
        assert point["observed"] == pytest.approx(positive[mine].mean())
        assert abs(point["predicted"] - expit(scores[mine]).mean()) <= point["exact_to"] + 1e-3


def test_intervals_of_the_auc_hold_the_truth_as_often_as_they_say():
    scores, positive = drawn(200_000, 9)
    truth, line = metrics.roc_auc_score(positive, scores), line_of(LEAVES)
    held = 0
    for seed in range(200):
        mine, theirs = drawn(400, seed)
        counts = np.zeros((len(line.start), 2))
        np.add.at(counts, (line.leaf_of(mine), theirs.astype(int)), 1.0)
        auc = Buckets(line, counts, 0.0 * counts[:, 0]).auc
        held += auc.low <= truth <= auc.high
    # 95 of 100, and no more than what the width of leaves adds.
    assert 182 <= held <= 199


def test_losses_without_probabilities_have_no_brier_score_and_no_calibration():
    scores, positive = drawn(300)
    found = evaluated(scores, positive, loss=get_loss("hinge"))
    assert found["brier"] is None
    assert found["models"][0]["calibration"] is None
    assert near(found["models"][0]["auc"], metrics.roc_auc_score(positive, scores))
    assert "AUC" in headline(found)
    assert "Brier" not in headline(found)


def test_groups_and_sites_are_judged_by_themselves():
    scores, positive = drawn(1500)
    levels = (np.arange(1500) % 2)[:, None]
    found = evaluated(scores, positive, least=10, levels=levels, groups={"sex": (0.0, 1.0)})
    assert [(row["variable"], row["group"]) for row in found["groups"]] == [
        ("sex", "0"),
        ("sex", "1"),
    ]
    for number, row in enumerate(found["groups"]):
        mine = levels[:, 0] == number
        assert near(row["auc"], metrics.roc_auc_score(positive[mine], scores[mine]))
        assert row["samples"] == mine.sum()
        assert near(row["predicted"], expit(scores[mine]).mean(), 1e-3)
    assert near(found["models"][0]["auc"], metrics.roc_auc_score(positive, scores))
    sites = evaluated(scores, positive, least=10, by_site=True)["groups"]
    assert [row["group"] for row in sites] == ["north", "south", "west"]
    for number, row in enumerate(sites):
        mine = slice(number, None, PARTIES)
        assert near(row["auc"], metrics.roc_auc_score(positive[mine], scores[mine]))


# ── buckets ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("samples", [40, 200, 3000])
def test_whoever_takes_parts_off_a_total_is_left_with_many_samples_or_none(samples):
    scores, positive = drawn(samples)
    levels = (np.arange(samples) % 5 > 0).astype(int)[:, None]
    settings = EvaluationSettings(groups={"sex": (0.0,)})
    parts = [told_by(party, settings, scores, positive, levels, 10) for party in range(PARTIES)]
    layout = HeldOutLayout.of(settings, 1, PARTIES)
    total = np.sum(parts, axis=0)
    for known in range(PARTIES):
        for taken in combinations(range(PARTIES), known):
            rest = total - sum((parts[party] for party in taken), np.zeros_like(total))
            counts = layout.parts(rest)[2][..., :2].sum(axis=-1)
            assert ((counts == 0) | (counts >= 10)).all()
    if samples == 40:
        # Of fewer than ten of a group, a party is in no bucket at all.
        assert not total[EXACT:].any()
    assert total[0] == samples


def test_a_cut_covers_the_line_and_leaves_the_fewest_pairs_open():
    line, rng = line_of(16), np.random.default_rng(3)
    counts = rng.integers(0, 5, 16)[:, None]
    chosen = cut(line, counts, 6)
    assert chosen is not None
    assert (line.start[chosen][1:] == line.end[chosen][:-1]).all()
    assert line.start[chosen][0] == 0
    assert line.end[chosen][-1] == 16
    below = np.concatenate([[0], np.cumsum(counts[:, 0])])

    def least_open(begin: int) -> float:
        """By trying all cuts."""
        if begin == 16:
            return 0.0
        found = [np.inf]
        for start, end in zip(line.start.tolist(), line.end.tolist(), strict=True):
            inside = int(below[end] - below[start])
            if start == begin and (inside == 0 or inside >= 6):
                found.append(inside**2 + least_open(end))
        return min(found)

    inside = below[line.end[chosen]] - below[line.start[chosen]]
    assert (inside**2).sum() == least_open(0)
    assert cut(line, np.zeros((16, 1), int), 6) is not None
    assert cut(line, np.eye(16, dtype=int)[:, :1], 6) is None


def told_sets(line, places, leaves):
    """The samples counted up to every edge that was cut at."""
    ends = np.unique(line.end[places])
    return [leaves < end for end in ends]


@pytest.mark.parametrize(
    ("change", "gone"), [(0.0, 0), (0.0, 10), (0.01, 0), (0.1, 0), (0.1, 30), (3.0, 30)]
)
def test_counts_of_two_evaluations_are_of_the_same_samples_or_differ_in_many(change, gone):
    line, rng = line_of(LEAVES), np.random.default_rng(0)
    first = rng.normal(0.0, 1.5, 400)
    second = first + change * rng.normal(size=400)
    layout = HeldOutLayout.of(EvaluationSettings(), 1, PARTIES)
    nobody = np.zeros((400, 1), int)
    memory, samples = ScoreMemory.new(), np.arange(400, dtype=np.uint64)
    before = places_of(layout, first[:, None], nobody, 10)[0]
    memory.remember(samples, (line.start[before] + 1).astype(np.int32), "then")
    now, known = slice(gone, None), memory.earlier(samples[gone:])
    after = places_of(layout, second[now, None], nobody[now], 10, known)[0]
    alone = places_of(layout, second[now, None], nobody[now], 10)[0]

    def closest(places):
        found = []
        for earlier in told_sets(line, before, line.leaf_of(first)):
            for later in told_sets(line, places, line.leaf_of(second[now])):
                whole = np.concatenate([np.zeros(gone, bool), later])
                found.append(int((earlier != whole).sum()))
        return min((apart for apart in found if apart), default=10)

    assert closest(after) >= 10
    if (change, gone) in [(0.0, 10), (0.01, 0), (0.1, 0)]:
        assert closest(alone) < 10
    if (change, gone) in [(0.0, 0), (3.0, 30)]:
        # Nothing is lost where the model is the same, and little where it is another.
        assert len(np.unique(after)) > 0.6 * len(np.unique(alone))


def test_figures_say_what_buckets_leave_open_where_it_shows():
    assert shown({"value": 0.5, "exact_to": 1e-5, "low": 0.4, "high": 0.6}) == "0.500 (0.400–0.600)"
    told = shown({"value": 0.5, "exact_to": 0.02, "low": 0.4, "high": 0.6}, percent=True)
    assert told == "50.0 % (40.0–60.0), exact to ±2.0"
    assert shown(None) == "–"


def test_few_positive_scores_among_others_are_told_by_the_mean_of_their_place():
    """The sum that is told is as near to theirs as it says, and not theirs itself."""
    rng = np.random.default_rng(3)
    scores = np.round(rng.uniform(-3.0, 3.0, 400), 3)
    positive = np.zeros(400, bool)
    positive[np.argsort(np.abs(scores + 1.5))[:4]] = True
    layout = HeldOutLayout.of(EvaluationSettings(), 1, 1)
    nobody, truth = np.zeros((400, 1), int), np.where(positive, 1.0, -1.0)[:, None]
    places = places_of(layout, scores[:, None], nobody, 10)
    told = party_part(layout, scores[:, None], truth, nobody, places, LOGISTIC, 10)
    found, off = told[EXACT : EXACT + 2]
    true = scores[positive].sum()
    assert 0 < off < 5.0
    assert 1e-6 < abs(found - true) <= off + 1e-9
