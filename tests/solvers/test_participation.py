"""Who takes part when."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covering import before_release
from weft.errors import ConfigError
from weft.solvers.participation import Cyclic, Everyone, RandomFraction, Trace, participation_of

NAMES = tuple(f"p{i}" for i in range(7))


@given(st.integers(1, 30), st.integers(1, 1000), st.integers(0, 5), st.integers(1, 50))
def test_a_fraction_takes_exactly_its_share_rounded_down_but_never_nobody(
    count, thousandths, seed, iteration
):
    names = tuple(f"p{i}" for i in range(count))
    rule = RandomFraction(names, thousandths / 1000, seed)
    present = rule.present(iteration)
    assert len(present) == max(1, thousandths * count // 1000)
    assert [names.index(p) for p in present] == sorted({names.index(p) for p in present})
    assert present == rule.present(iteration)


def test_a_fraction_draws_everyone_sooner_or_later_and_other_seeds_draw_others():
    rule = RandomFraction(NAMES, 0.3, 1)
    turns = [rule.present(i) for i in range(1, 60)]
    assert {p for turn in turns for p in turn} == set(NAMES)
    assert turns != [RandomFraction(NAMES, 0.3, 2).present(i) for i in range(1, 60)]


@pytest.mark.parametrize("fraction", [0.1, 0.5, *before_release(0.3, 0.9)])
def test_the_horizon_of_a_fraction_covers_nineteen_of_twenty_absences(fraction):
    names = tuple(f"p{i}" for i in range(10))
    rule = RandomFraction(names, fraction)
    absences = []
    last = dict.fromkeys(names, 0)
    for iteration in range(1, 600):
        for party in rule.present(iteration):
            absences.append(iteration - last[party])
            last[party] = iteration
    within = np.mean(np.array(absences) <= rule.horizon)
    assert within >= 0.93


@pytest.mark.parametrize("groups", range(1, 8))
def test_cyclic_groups_take_turns_and_together_are_everyone(groups):
    rule = Cyclic(NAMES, groups)
    turns = [rule.present(i) for i in range(1, groups + 1)]
    assert tuple(p for turn in turns for p in turn) == NAMES
    assert all(turns)
    assert rule.present(groups + 1) == turns[0]
    assert rule.horizon == groups


def test_a_trace_is_followed_and_starts_over():
    rule = Trace(("a", "b", "c"), (("a",), ("b", "c"), ("a", "b")))
    assert [rule.present(i) for i in range(1, 5)] == [("a",), ("b", "c"), ("a", "b"), ("a",)]
    assert rule.horizon == 3  # c comes every third iteration


def test_everyone_is_complete_and_nobody_else_claims_to_be():
    assert Everyone(NAMES).complete
    assert Everyone(NAMES).horizon == 1
    assert RandomFraction(NAMES, 1.0).horizon == 1
    for rule in (RandomFraction(NAMES, 0.5), Cyclic(NAMES, 2), Trace(NAMES, (NAMES,))):
        assert not rule.complete


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("everyone", Everyone),
        (1, Everyone),
        (1.0, Everyone),
        (0.5, RandomFraction),
        ({"cyclic": 3}, Cyclic),
        ({"trace": [["p1"], ["p2", "p3"]]}, Trace),
    ],
)
def test_settings_name_the_rules(rule, kind):
    assert type(participation_of(rule, NAMES, 0)) is kind


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (0, "lies above 0"),
        (-0.5, "lies above 0"),
        (1.5, "at most at 1"),
        (math.nan, "lies above 0"),
        ({"cyclic": 0}, "do not fit 7 parties"),
        ({"cyclic": 8}, "do not fit 7 parties"),
        ({"cyclic": 2.5}, "not understood"),
        ({"trace": []}, "empty"),
        ({"trace": [["p1"], ["nobody"]]}, "iteration 2 .* nobody"),
        ({"trace": [["p1"]], "cyclic": 2}, "not understood"),
        ("everybody", "not understood"),
        ({}, "not understood"),
        (None, "not understood"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_with_a_sentence(rule, sentence):
    with pytest.raises(ConfigError, match=sentence):
        participation_of(rule, NAMES, 0)
