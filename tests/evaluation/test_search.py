"""Random searches: what is drawn, how a run is judged, and which one is chosen."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covering import examples
from weft.errors import ConfigError
from weft.solvers.algorithm_choice import ALGORITHMS
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Record
from weft_evaluation.tuning.convergence_and_cost_metrics import Metrics, Point, metrics_of
from weft_evaluation.tuning.loss_along_run import Watch, stride
from weft_evaluation.tuning.random_search import Found, Limits, Trial
from weft_evaluation.tuning.search_space import Bound, draws, numeric_options, read_bounds, space_of
from weft_evaluation.tuning.trial_choice import Rules, choose, read_weights


def first(count, space, seed=0, name="fedavg"):
    return list(itertools.islice(draws(space, seed, name), count))


# ── draws ─────────────────────────────────────────────────────────────────────────────────────


@examples(30, deadline=None)
@given(st.floats(1e-8, 1e3), st.floats(1.0, 1e6), st.integers(0, 10), st.booleans())
def test_draws_stay_within_bounds_and_repeat(low, factor, seed, whole):
    high = low * factor
    if whole:
        low, high = math.ceil(low), math.ceil(high)
    space = [Bound("a", low, high, whole), Bound("b", 2.0, 2.0)]
    found = first(20, space, seed)
    assert all(low <= told["a"] <= high for told in found)
    assert all(told["b"] == 2.0 for told in found)
    assert found == first(20, space, seed)
    if whole:
        assert all(type(told["a"]) is int for told in found)


def test_draws_are_uniform_in_the_logarithm():
    """Of 4000 draws over eight decades about an eighth falls into each: within five deviations."""
    drawn = [told["a"] for told in first(4000, [Bound("a", 1e-5, 1e3)])]
    counts, _ = np.histogram(np.log10(drawn), bins=8, range=(-5, 3))
    assert counts.sum() == 4000
    assert np.abs(counts - 500).max() < 5 * math.sqrt(4000 * 1 / 8 * 7 / 8)


def test_another_seed_or_algorithm_draws_others():
    space = [Bound("a", 1e-5, 25.0)]
    assert first(3, space) != first(3, space, seed=1)
    assert first(3, space) != first(3, space, name="hyfem")


# ── bounds ────────────────────────────────────────────────────────────────────────────────────


def ranges(solver, given_=None, **options):
    loss = "hinge" if ALGORITHMS[solver].losses == "kinks" else "logistic"
    told = Settings(lam=0.1, loss=loss, solver=solver, options=options)
    space = space_of(told, given_ or {}, samples=1000, parties=20)
    return {bound.name: (bound.low, bound.high) for bound in space}


def test_the_bounds_of_the_paper():
    """Section 7.3; IIC from clients / samples, so that H = ⌈IIC · N / clients⌉ is at least 1."""
    rate = {"a": (1e-5, 25.0), "b": (1e-5, 25.0)}
    assert ranges("hyfdca") == {"iic": (0.02, 1.0)}
    assert ranges("fedavg") == {"iic": (0.02, 5.0), **rate}
    assert ranges("hyfem") == {"iic": (0.02, 5.0), **rate, "mu": (1e-2, 1e4)}


def test_what_an_algorithm_does_not_read_is_not_searched():
    assert set(ranges("fedavg", gradient="full")) == {"a", "steps"}
    assert set(ranges("hyfem", variant="avg")) == {"iic", "a", "b"}
    assert set(ranges("fedhybrid")) == {"primal", "dual"}
    fixed = {"steps": "fixed", "mu": 1.0, "a": [1.0, 1.0], "b": 1.0}
    assert set(ranges("fedhybrid", **fixed)) == {"mu", "b"}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_takes_both_ends_of_its_bounds(name):
    """And what has nothing to tune says so."""
    if name in ("lbfgs", "newton-cg", "sealed", "span-newton"):
        with pytest.raises(ConfigError, match=f"'{name}' has no number"):
            ranges(name)
        return
    found = ranges(name)
    kinds = numeric_options(name)
    own = set(ALGORITHMS[name].options.__struct_fields__)
    for end in (0, 1):
        values = {o: int(r[end]) if kinds[o] else r[end] for o, r in found.items()}
        options = {option: value for option, value in values.items() if option in own}
        shared = {option: value for option, value in values.items() if option not in own}
        told = Settings(lam=0.1, solver=name, options=options, **shared)
        told.read_options(ALGORITHMS[name].options)


def test_given_bounds_take_the_place_of_usual_ones():
    said = read_bounds(["a=0.1:1", "hyfem.mu=2:2"], ["fedavg", "hyfem"])
    assert said == {"fedavg": {"a": (0.1, 1)}, "hyfem": {"a": (0.1, 1), "mu": (2, 2)}}
    assert ranges("hyfem", said["hyfem"])["a"] == (0.1, 1)
    assert ranges("fedbcd", {"mu": (1e-3, 1.0)})["mu"] == (1e-3, 1.0)


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("a", "OPTION=LOW:HIGH"),
        ("a=1:2:3", "OPTION=LOW:HIGH"),
        ("a=x:2", "OPTION=LOW:HIGH"),
        ("a=0:2", "above 0"),
        ("a=2:1", "lower one first"),
        ("a=1:inf", "above 0"),
        ("rate=1:2", "no number 'rate'"),
        ("gradient=1:2", "no number 'gradient'"),
        ("iics=1:2", "the closest is 'iic'"),
        ("steps=1.5:2", "whole number"),
        ("hyfem.a=1:2", "'hyfem', which is not tuned"),
    ],
)
def test_bounds_that_make_no_sense(pair, words):
    with pytest.raises(ConfigError, match=words):
        read_bounds([pair], ["fedavg"])


# ── metrics ───────────────────────────────────────────────────────────────────────────────────


def record(iteration, round_trips, seconds):
    return Record(iteration, 3, round_trips, 0, 0, seconds, seconds)


def test_the_seven_metrics_by_hand():
    """Setting up took 10 round trips and 5 s; then 2 trips and 0.1 s an iteration."""
    records = [record(t, 10 + 2 * t, 5 + 0.1 * t) for t in range(1, 7)]
    losses = [1.0, 0.6, 0.3, 0.2, 0.15, 0.1, 0.2]
    scores = [None, 0.5, 0.8, 0.9, 0.85, 0.7, 0.7]
    points = [Point(t, l, s) for t, (l, s) in enumerate(zip(losses, scores, strict=True))]
    found = metrics_of(records, points)
    assert found.seconds_near == pytest.approx(0.1)
    assert found.seconds_far == pytest.approx(0.1 + 2 * 0.2575)
    assert found.seconds_satellite == pytest.approx(0.1 + 2 * 0.8)
    assert found.loss == pytest.approx((0.3 + 0.2 + 0.15 + 0.1 + 0.2) / 5)
    assert found.score == 0.9
    steps = [-0.4, -0.3, -0.1, -0.05, -0.05, 0.1]
    mean = sum(steps) / 6
    assert found.volatility == pytest.approx(math.sqrt(sum((s - mean) ** 2 for s in steps) / 6))
    # 90% of the way from 1 to 0.1 ends at 0.19.
    assert found.progress == 4


def test_a_run_that_stays_where_it_is_makes_no_progress():
    records = [record(t, t, t) for t in (1, 2)]
    assert metrics_of(records, [Point(0, 1.0, None), Point(2, 1.0, 0.5)]).progress == 2


def test_what_a_run_begins_with_is_none_of_its_last_losses():
    """Of three points, the mean of the last five is that of two."""
    records = [record(t, t, t) for t in (1, 2)]
    points = [Point(0, 1.0, None), Point(1, 0.4, None), Point(2, 0.2, 0.5)]
    assert metrics_of(records, points).loss == pytest.approx(0.3)


@pytest.mark.parametrize("every", [1, 4])
def test_a_run_that_shows_certificates_alone_has_a_point_for_each(every):
    """At the iteration that it certifies, once, however long it stays the newest one."""
    eye = SimpleNamespace(start=1.0, arena=SimpleNamespace(train=None))
    watch = Watch(eye, every, 10, lambda federation, table: lambda record: None)
    watch.open(None)
    known = [None, (0.9, 0), (0.9, 0), (0.5, 2), (0.5, 2), (0.3, 5), (0.3, 5), (0.3, 5), (0.2, 8)]
    for t, newest in enumerate([*known, (0.1, 10)], 1):
        primal, at = newest or (None, None)
        watch(Record(t, 3, t, 0, 0, t, t, primal=primal, certified_at=at))
    seen = [(point.iteration, point.loss) for point in watch.points]
    assert seen == [(0, 1.0), (2, 0.5), (5, 0.3), (8, 0.2)]


def test_looks_take_half_of_the_time_at_most():
    assert stride(look=0.001, iteration=0.01, iterations=100) == 1
    assert stride(look=0.035, iteration=0.01, iterations=100) == 4
    # But a run has ten points at least.
    assert stride(look=10.0, iteration=0.01, iterations=100) == 10


# ── the choice ────────────────────────────────────────────────────────────────────────────────


def trial(number, *values, failure="", refused=False):
    metrics = None if failure else Metrics(*values)
    return Trial(number, {"a": 1.0}, Settings(lam=1), metrics, 0.1, (), failure, refused)


def found_of(*trials):
    space = (Bound("a", 1.0, 2.0),)
    return Found("fedavg", space, list(trials), 1, 100, 1.0, 0.1, 1.0)


GOOD = trial(1, 2.0, 2.0, 2.0, 0.2, 0.9, 0.1, 5.0)
WORSE = trial(2, 2.0, 2.0, 2.0, 0.3, 0.9, 0.1, 5.0)
#: Fast and steady, since it does next to nothing.
IDLE = trial(3, 1.0, 1.0, 1.0, 0.99, 0.8, 0.0, 90.0)
LOST = trial(4, failure="the weights grow without end")
REFUSED = trial(5, failure="party north refuses", refused=True)


def test_who_hardly_moves_is_left_out_unless_the_paper_is_followed():
    found = found_of(GOOD, WORSE, IDLE, LOST, REFUSED)
    choice = choose(found, Rules())
    standings = [choice.standing(t) for t in found.trials]
    assert standings == ["chosen", "dominated", "idle", "diverged", "refused"]
    assert choice.graded.grades.tolist() == [1.0]
    literal = choose(found, Rules(least_progress=0.0))
    # Four metrics are its best against three: three of seconds, and volatility.
    assert [t.number for t in literal.front] == [3, 1]
    np.testing.assert_allclose(literal.graded.grades, [(4 + 3 * 0.5) / 7, (3 + 4 * 0.5) / 7])
    weighty = choose(found, Rules(least_progress=0.0, weights={"loss": 5.0}))
    assert weighty.chosen is GOOD
    assert weighty.graded.grades[0] == pytest.approx((5 + 2 + 4 * 0.5) / 11)


def test_all_that_did_not_diverge_are_kept_where_none_moved_or_none_need_to():
    """Runs that end below the start but swing above it: their last five losses are above it."""
    swinging = trial(1, 2.0, 2.0, 2.0, 1.2, 0.9, 0.1, 5.0)
    wilder = trial(2, 1.0, 1.0, 1.0, 1.4, 0.8, 0.3, 5.0)
    for rules in (Rules(), Rules(least_progress=0.0)):
        choice = choose(found_of(swinging, wilder, LOST), rules)
        assert {t.number for t in choice.front} == {1, 2}
        assert not choice.idle
    literal = choose(found_of(GOOD, wilder), Rules(least_progress=0.0))
    assert {t.number for t in literal.front} == {1, 2}
    assert choose(found_of(GOOD, wilder), Rules()).idle == {2}


def test_what_weighs_nothing_does_not_decide():
    """Not even who is on the front: seconds, which no two runs have the same, for example."""
    free = dict.fromkeys(("seconds_near", "seconds_far", "seconds_satellite"), 0.0)
    slower = trial(1, 9.0, 8.0, 7.0, 0.2, 0.9, 0.1, 5.0)
    for first_ in (GOOD, slower):
        choice = choose(
            found_of(first_, trial(2, 3.0, 3.0, 3.0, 0.3, 0.9, 0.1, 5.0)), Rules(1.0, free)
        )
        assert [t.number for t in choice.front] == [1]


def test_where_all_diverge_a_sentence_says_where_to_look():
    with pytest.raises(ConfigError, match=r"all 1 trials of 'fedavg' diverged.*a=1:2"):
        choose(found_of(LOST), Rules())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Rules(distinguishing=0.0), "--distinguishing is 0"),
        (lambda: Rules(least_progress=1.5), "--least-progress is 1.5"),
        (lambda: Limits(trials=0), "--trials is 0"),
        (lambda: Limits(seconds=0.0), "--seconds is 0"),
        (lambda: read_weights(["los=1"]), "the closest is 'loss'"),
        (lambda: read_weights(["loss=x"]), "METRIC=NUMBER"),
        (lambda: read_weights(["loss=-1"]), "at least 0"),
    ],
)
def test_rules_that_make_no_sense(make, words):
    with pytest.raises(ConfigError, match=words):
        make()
