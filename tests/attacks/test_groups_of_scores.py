"""Counts of held-out scores of two groups that differ in one sample, and of a class with one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import expit

from weft.guards.score_buckets import LEAVES, line_of
from weft.losses import get_loss
from weft.privacy.ledger.earlier_score_buckets import ScoreMemory
from weft.solvers.held_out_evaluation_settings import EvaluationSettings
from weft.solvers.held_out_score_counts import (
    EXACT,
    HeldOutLayout,
    party_part,
    places_of,
    told_groups,
)

LEAST, SAMPLES, SITES = 10, 400, 3
LINE = line_of(LEAVES)
LOGISTIC = get_loss("logistic")


def drawn(seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(-1.0, 1.5, SAMPLES)
    return scores, rng.random(SAMPLES) < expit(scores + shift)


def layout_of(*columns):
    return HeldOutLayout.of(EvaluationSettings(groups=dict.fromkeys(columns, (0.0,))), 1, SITES)


def nearly_equal(few):
    """Two columns that differ in so many samples."""
    one = (np.arange(SAMPLES) % 2).astype(int)
    other = one.copy()
    other[:few] = 1 - other[:few]
    return one, other


def counted(layout, scores, positive, levels, places):
    truth = np.where(positive, 1.0, -1.0)[:, None]
    told = party_part(layout, scores[:, None], truth, levels, places, LOGISTIC, LEAST)
    return layout.parts(told)[2][:, 0, :, :2]


@pytest.mark.parametrize("few", [1, 7, 60])
def test_groups_of_two_columns_differ_in_many_samples_of_a_place_or_in_none(few):
    """Before, the one sample in which they differ, with its class and the place of its score."""
    scores, positive = drawn()
    layout, levels = layout_of("sex", "sex as corrected"), np.stack(nearly_equal(few), axis=1)
    places = places_of(layout, scores[:, None], levels, LEAST)
    counts = counted(layout, scores, positive, levels, places).sum(axis=-1)
    for first, second in product(range(2), range(2, 4)):
        # Samples of one group that the other lacks, place by place.
        apart = np.abs(counts[first] - counts[second])
        assert ((apart == 0) | (apart >= LEAST)).all()
    # With enough of them in both, they are counted.
    assert bool(counts.any()) == (few >= 2 * LEAST)


@pytest.mark.parametrize("few", [1, 30])
def test_groups_of_another_column_in_a_second_run_keep_apart(few):
    scores, _ = drawn()
    layout, (one, other) = layout_of("sex"), nearly_equal(few)
    memory, samples = ScoreMemory.new(), np.arange(SAMPLES, dtype=np.uint64)
    before = places_of(layout, scores[:, None], one[:, None], LEAST)[0]
    memory.remember(samples, memory.place(LINE.start[before], one), "then")
    known = memory.earlier(samples)

    def closest(places):
        """How few samples counts up to edges of the two runs differ in, group by group."""
        if (places < 0).any():
            return LEAST
        found = []
        leaf, kinds = LINE.leaf_of(scores), [(0, 1), (0,), (1,)]
        ends = [np.unique(LINE.end[row]) for row in (before, places)]
        for then, now, mine, theirs in product(*ends, kinds, kinds):
            earlier = (leaf < then) & np.isin(one, mine)
            later = (leaf < now) & np.isin(other, theirs)
            found.append(int((earlier != later).sum()))
        return min((apart for apart in found if apart), default=LEAST)

    assert closest(places_of(layout, scores[:, None], other[:, None], LEAST)[0]) < LEAST
    assert closest(places_of(layout, scores[:, None], other[:, None], LEAST, known)[0]) >= LEAST
    # Groups of the same column again are told as before.
    again = places_of(layout, scores[:, None], one[:, None], LEAST, known)[0]
    assert (again == before).all()


def test_who_of_an_interval_has_the_rare_outcome_changes_nothing_that_is_told():
    """Before, the sum of scores by class: of a lone positive sample, its score."""
    scores, _ = drawn()
    layout, levels = layout_of(), np.zeros((SAMPLES, 1), int)
    places = places_of(layout, scores[:, None], levels, LEAST)
    mates = np.flatnonzero(places[0] == places[0, 0])
    assert len(mates) >= LEAST
    told = []
    for one in mates[:2]:
        truth = np.where(np.arange(SAMPLES) == one, 1.0, -1.0)[:, None]
        part = party_part(layout, scores[:, None], truth, levels, places, LOGISTIC, LEAST)
        told.append(part[EXACT:])
    np.testing.assert_allclose(told[0], told[1], atol=1e-9)


@pytest.mark.parametrize("having", [0, 1, 9])
def test_a_value_that_few_have_is_told_like_one_that_nobody_has(having):
    """Before, a party with a few of them was in no bucket, which told who guesses that it has."""
    scores, positive = drawn()
    layout, levels = layout_of("income"), np.ones((SAMPLES, 1), int)
    levels[:having] = 0
    told = told_groups(layout, levels, LEAST)
    places = places_of(layout, scores[:, None], told, LEAST)
    nobody = counted(layout, scores, positive, np.ones((SAMPLES, 1), int), places)
    assert (places >= 0).all()
    assert (counted(layout, scores, positive, told, places) == nobody).all()


@pytest.mark.parametrize(("sizes", "left"), [((30, 5, 365), 370), ((200, 195, 5), 200)])
def test_groups_that_are_told_are_of_many_and_so_are_those_in_none(sizes, left):
    layout = HeldOutLayout.of(EvaluationSettings(groups={"ward": (0.0, 1.0)}), 1, SITES)
    told = told_groups(layout, np.repeat([0, 1, 2], sizes)[:, None], LEAST)
    counts = np.bincount(told[:, 0], minlength=3)
    assert ((counts == 0) | (counts >= LEAST)).all()
    assert counts[2] == left
