"""The channel: who answered, what it cost, and who takes part when."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError, DataError, ProtocolError
from weft.protocol import (
    Cyclic,
    Everyone,
    LocalChannel,
    RandomFraction,
    Request,
    Trace,
    participation_of,
    size_of,
)


def good(phase, message):
    return {"phase": phase, "echo": message.get("n", 0)}


def broken(phase, message):
    raise ZeroDivisionError("no such number")


def key_error(phase, message):
    return {}["gone"]


def refusing(phase, message):
    raise DataError("party c: the file is empty")


class Clock:
    """Time that passes only when a handler says so, whatever the machine is doing."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def taking(self, seconds):
        def answer(phase, message):
            self.now += seconds
            return {}

        return answer


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr("weft.protocol.local_channel.perf_counter", made)
    return made


def test_every_kind_of_failure_is_reported_and_none_is_raised(clock):
    slow = clock.taking(3.0)
    handlers = {"a": good, "b": broken, "c": refusing, "d": slow, "e": key_error}
    channel = LocalChannel(handlers, timeout=2.5)
    replies = channel.ask("hello", {name: {} for name in "abcdef"})
    assert set(replies.answered) == {"a"}
    kinds = {party: failure.kind for party, failure in replies.missing.items()}
    assert kinds == {"b": "failed", "c": "refused", "d": "late", "e": "failed", "f": "unknown"}
    assert replies.missing["b"].reason == "ZeroDivisionError: no such number"
    assert replies.missing["c"].reason == "party c: the file is empty"
    assert "2.5 s" in replies.missing["d"].reason


def test_only_a_refusal_stops_a_phase_that_can_go_on_without_everyone():
    channel = LocalChannel({"a": good, "b": broken, "c": refusing})
    channel.ask("hello", {"a": {}, "b": {}}).stop_on_refusal()
    with pytest.raises(ProtocolError, match=r"party c: .*the file is empty"):
        channel.ask("hello", {"a": {}, "c": {}}).stop_on_refusal()


def test_a_phase_that_needs_everyone_names_who_is_missing():
    channel = LocalChannel({"a": good, "b": broken})
    with pytest.raises(ProtocolError, match="matching needs every party, but b did not answer"):
        channel.ask("hello", {"a": {}, "b": {}}).insist("matching")
    assert channel.ask("hello", {"a": {}}).insist("matching") == {
        "a": {"phase": "hello", "echo": 0}
    }


@pytest.mark.parametrize("phases", [1, 2, 5])
def test_one_exchange_is_one_round_trip_however_many_phases_it_carries(phases):
    channel = LocalChannel({"a": good, "b": good})
    channel.exchange([Request(f"phase {i}", {"a": {}, "b": {}}) for i in range(phases)])
    assert channel.meter.round_trips == 1
    assert [c.calls for c in channel.meter.phases.values()] == [1] * phases


def test_a_party_works_through_its_phases_in_order():
    heard = []
    channel = LocalChannel({n: lambda p, m, n=n: heard.append((n, p)) or {} for n in "ab"})
    channel.exchange([Request("one", {"a": {}, "b": {}}), Request("two", {"b": {}, "a": {}})])
    assert [p for n, p in heard if n == "a"] == ["one", "two"]


@pytest.mark.parametrize("how", [broken, refusing, "slow"])
def test_a_party_that_fails_at_one_phase_is_missing_from_the_later_ones(how, clock):
    how = clock.taking(3.0) if how == "slow" else how
    calls = Counter()

    def handler(phase, message):
        calls[phase] += 1
        return how(phase, message) if phase == "second" else {}

    channel = LocalChannel({"a": handler, "b": good}, timeout=2.5)
    both = {"a": {}, "b": {}}
    replies = channel.exchange([Request(p, both) for p in ("first", "second", "third")])
    assert [sorted(r.answered) for r in replies] == [["a", "b"], ["b"], ["b"]]
    assert replies[1].missing == replies[2].missing
    assert calls == {"first": 1, "second": 1}
    # The next exchange starts afresh.
    assert "a" in channel.ask("first", both).answered


arrays = st.builds(
    lambda n, m, t: np.zeros((n, m), t),
    st.integers(0, 5),
    st.integers(0, 3),
    st.sampled_from([np.int64, np.int32, np.uint8, np.float64, bool]),
)
values = st.one_of(arrays, st.binary(max_size=20), st.integers(0, 9), st.floats(), st.booleans())


@given(st.dictionaries(st.text(max_size=3), values, max_size=5))
def test_the_meter_counts_the_bytes_of_arrays_and_byte_strings_and_eight_for_a_number(message):
    expected = sum(
        v.nbytes if isinstance(v, np.ndarray) else len(v) if isinstance(v, bytes) else 8
        for v in message.values()
    )
    assert size_of(message) == expected
    channel = LocalChannel({"a": lambda p, m: {}, "b": lambda p, m: m})
    channel.ask("both", {"a": message, "b": message})
    cost = channel.meter.phases["both"]
    assert (cost.bytes_down, cost.bytes_up) == (2 * expected, expected)


def test_a_reading_subtracts_to_the_cost_in_between():
    channel = LocalChannel({"a": lambda p, m: {"x": np.zeros(3)}})
    channel.ask("one", {"a": {}})
    before = channel.meter.read()
    channel.ask("two", {"a": {"y": b"12345"}})
    channel.ask("one", {"a": {}})
    cost = channel.meter.read() - before
    assert (cost.round_trips, cost.bytes_down, cost.bytes_up) == (2, 5, 48)
    assert before + cost == channel.meter.read()


def test_parties_work_in_parallel_so_a_phase_takes_as_long_as_its_slowest_party(clock):
    channel = LocalChannel({"a": clock.taking(1), "b": clock.taking(3), "c": clock.taking(0)})
    for _ in range(2):
        channel.ask("work", {name: {} for name in "abc"})
    channel.ask("rest", {"a": {}})
    assert (channel.meter.phases["work"].slowest, channel.meter.phases["work"].total) == (6, 8)
    assert channel.meter.read().slowest == 7


def test_the_transcript_keeps_messages_and_replies_only_when_asked():
    channel = LocalChannel({"a": good}, record=True)
    channel.ask("hello", {"a": {"n": 7}})
    (entry,) = channel.transcript
    assert (entry.phase, entry.party, entry.message, entry.reply["echo"]) == (
        "hello",
        "a",
        {"n": 7},
        7,
    )
    assert LocalChannel({"a": good}).transcript is None


# ── participation ────────────────────────────────────────────────────────────────────────────

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


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.5, 0.9])
def test_the_horizon_of_a_fraction_covers_nineteen_of_twenty_absences(fraction):
    names = tuple(f"p{i}" for i in range(10))
    rule = RandomFraction(names, fraction)
    absences = []
    last = dict.fromkeys(names, 0)
    for iteration in range(1, 1500):
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
