"""The queue of runs: submitters take turns, and none has more than its share."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weft.network.run_queue import QueueLimits, Submission, in_order, next_to_begin, too_many

WHO = ("anna", "bert", "carl")
QUEUES = st.lists(st.sampled_from(WHO), max_size=12)


def queue(names, began=None):
    """Runs that were submitted one after the other; ``began``: when a submitter's last one did."""
    over = [Submission(f"o-{who}", f"o-{who}", who, 0.0, at) for who, at in (began or {}).items()]
    return over + [
        Submission(f"{n:02}", f"{who}-{n}", who, 100.0 + n, waits=True)
        for n, who in enumerate(names)
    ]


def names(found):
    return [one.submitter for one in found]


@given(QUEUES, st.dictionaries(st.sampled_from(WHO), st.floats(1.0, 99.0)))
def test_nobody_has_two_turns_while_another_waits_for_one(whose, began):
    found = in_order(queue(whose, began))
    assert Counter(names(found)) == Counter(whose)
    for who in WHO:
        mine = [one.submitted for one in found if one.submitter == who]
        assert mine == sorted(mine)
        places = [n for n, one in enumerate(found) if one.submitter == who]
        for one, other in pairwise(places):
            between = names(found[one + 1 : other])
            # Everybody who still has a run after this had exactly one turn in between.
            assert set(names(found[other + 1 :])) - {who} <= set(between)
            assert len(set(between)) == len(between)


def test_who_was_served_longest_ago_is_next():
    whose = ["anna", "bert", "carl"]
    assert names(in_order(queue(whose, {"anna": 9.0, "bert": 5.0}))) == ["carl", "bert", "anna"]
    assert names(in_order(queue(whose))) == whose


def test_who_has_as_many_under_way_as_allowed_lets_others_pass():
    limits = QueueLimits(at_once=2, each_at_once=1)
    known = queue(["anna", "anna", "bert"])
    assert next_to_begin(known, {}, limits).submitter == "anna"
    assert next_to_begin(known, {"x": "anna"}, limits).submitter == "bert"
    assert next_to_begin(known, {"x": "anna", "y": "carl"}, limits) is None
    assert next_to_begin(known[:2], {"x": "anna"}, limits) is None
    assert next_to_begin(known[:2], {"x": "anna"}, QueueLimits(at_once=2)).submitter == "anna"


@given(QUEUES, st.integers(1, 4))
def test_the_last_ones_of_a_submitter_with_too_many_are_refused(whose, most):
    waiting = [one for one in queue(whose) if one.waits]
    begun = Submission("o", "anna-0", "anna", 1.0, 2.0, kept=True)
    again = Submission("99", "anna-0", "anna", 999.0, waits=True)
    refused = too_many([begun, *waiting, again], QueueLimits(each_waiting=most))
    assert again not in refused
    left = [one for one in waiting if one not in refused]
    for who in WHO:
        mine = [one for one in waiting if one.submitter == who]
        assert [one for one in left if one.submitter == who] == mine[:most]


def test_a_run_that_was_submitted_twice_is_under_way_once():
    one = Submission("1", "a-1", "anna", 1.0, 2.0)
    again = Submission("2", "a-1", "anna", 3.0, waits=True)
    other = Submission("3", "b-1", "anna", 4.0, waits=True)
    assert next_to_begin([one, again, other], {"1": "anna"}, QueueLimits(at_once=2)) == other
