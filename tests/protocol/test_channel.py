"""The channel: who answered, and what it cost."""

from __future__ import annotations

import threading
from collections import Counter
from time import sleep
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from weft.errors import DataError, ProtocolError
from weft.protocol import (
    LocalChannel,
    Request,
    size_of,
)
from weft.protocol import phase_with_request_and_reply as phase_module
from weft.protocol.declared_message_fields import Message, fields_of
from weft.protocol.field_visibility import record
from weft.protocol.phase_with_request_and_reply import Phase

_ANY = record("anything")


class Anything(Message):
    """One field of every type, all of which may be absent."""

    array: Annotated[NDArray[Any] | None, record("anything", "rows", "columns")] = None
    other: Annotated[NDArray[Any] | None, record("anything", "rows", "columns")] = None
    content: Annotated[bytes | None, _ANY] = None
    number: Annotated[int | None, _ANY] = None
    size: Annotated[float | None, _ANY] = None
    flag: Annotated[bool | None, _ANY] = None
    usual: Annotated[int, _ANY] = 7


def phase_of(name):
    """A phase for these tests alone: what the library declares must not know it."""
    with patch.dict(phase_module._PHASES):
        return Phase(name, Anything, Anything)


HELLO, FIRST, SECOND, THIRD, *MORE = map(
    phase_of, ("hello", "first", "second", "third", "fourth", "fifth")
)
NOTHING = Anything()


def good(phase, message):
    return message


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
            return NOTHING

        return answer


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for name in ("perf_counter", "process_time"):
        monkeypatch.setattr(f"weft.protocol.channel.{name}", made)
    return made


def test_every_kind_of_failure_is_reported_and_none_is_raised(clock):
    slow = clock.taking(3.0)
    handlers = {"a": good, "b": broken, "c": refusing, "d": slow, "e": key_error}
    channel = LocalChannel(handlers, timeout=2.5)
    replies = channel.ask(HELLO, dict.fromkeys("abcdef", NOTHING))
    assert set(replies.answered) == {"a"}
    kinds = {party: failure.kind for party, failure in replies.missing.items()}
    assert kinds == {"b": "failed", "c": "refused", "d": "late", "e": "failed", "f": "unknown"}
    assert replies.missing["b"].reason == "ZeroDivisionError: no such number"
    assert replies.missing["c"].reason == "party c: the file is empty"
    assert "2.5 s" in replies.missing["d"].reason


def test_only_a_refusal_stops_a_phase_that_can_go_on_without_everyone():
    channel = LocalChannel({"a": good, "b": broken, "c": refusing})
    channel.ask(HELLO, {"a": NOTHING, "b": NOTHING}).stop_on_refusal()
    with pytest.raises(ProtocolError, match=r"party c: .*the file is empty"):
        channel.ask(HELLO, {"a": NOTHING, "c": NOTHING}).stop_on_refusal()


def test_a_phase_that_needs_everyone_names_who_is_missing():
    channel = LocalChannel({"a": good, "b": broken})
    with pytest.raises(ProtocolError, match="matching needs every party, but b did not answer"):
        channel.ask(HELLO, {"a": NOTHING, "b": NOTHING}).insist("matching")
    said = Anything(number=7)
    assert channel.ask(HELLO, {"a": said}).insist("matching") == {"a": said}


@pytest.mark.parametrize("phases", [1, 2, 5])
def test_one_exchange_is_one_round_trip_however_many_phases_it_carries(phases):
    channel = LocalChannel({"a": good, "b": good})
    asked = (HELLO, FIRST, SECOND, THIRD, *MORE)[:phases]
    channel.exchange([Request(phase, {"a": NOTHING, "b": NOTHING}) for phase in asked])
    assert channel.meter.round_trips == 1
    assert [c.calls for c in channel.meter.phases.values()] == [1] * phases


def test_a_party_works_through_its_phases_in_order():
    heard = []
    channel = LocalChannel({n: lambda p, m, n=n: heard.append((n, p)) or m for n in "ab"})
    channel.exchange(
        [
            Request(FIRST, {"a": NOTHING, "b": NOTHING}),
            Request(SECOND, {"b": NOTHING, "a": NOTHING}),
        ]
    )
    assert [p for n, p in heard if n == "a"] == [FIRST, SECOND]


@pytest.mark.parametrize("how", [broken, refusing, "slow"])
def test_a_party_that_fails_at_one_phase_is_missing_from_the_later_ones(how, clock):
    how = clock.taking(3.0) if how == "slow" else how
    calls = Counter()

    def handler(phase, message):
        calls[phase] += 1
        return how(phase, message) if phase is SECOND else NOTHING

    channel = LocalChannel({"a": handler, "b": good}, timeout=2.5)
    both = {"a": NOTHING, "b": NOTHING}
    replies = channel.exchange([Request(p, both) for p in (FIRST, SECOND, THIRD)])
    assert [sorted(r.answered) for r in replies] == [["a", "b"], ["b"], ["b"]]
    assert replies[1].missing == replies[2].missing
    assert calls == {FIRST: 1, SECOND: 1}
    # The next exchange starts afresh.
    assert "a" in channel.ask(FIRST, both).answered


arrays = st.builds(
    lambda n, m, t: np.zeros((n, m), t),
    st.integers(0, 5),
    st.integers(0, 3),
    st.sampled_from([np.int64, np.int32, np.uint8, np.float64, bool]),
)
messages = st.builds(
    Anything,
    array=st.none() | arrays,
    other=st.none() | arrays,
    content=st.none() | st.binary(max_size=20),
    number=st.none() | st.integers(0, 9),
    size=st.none() | st.floats(),
    flag=st.none() | st.booleans(),
    usual=st.integers(6, 8),
)


@given(messages)
def test_the_meter_counts_the_bytes_of_arrays_and_byte_strings_and_eight_for_a_number(message):
    expected = sum(
        v.nbytes if isinstance(v, np.ndarray) else len(v) if isinstance(v, bytes) else 8
        for v in fields_of(message).values()
    )
    assert size_of(message) == expected
    channel = LocalChannel({"a": lambda p, m: NOTHING, "b": good})
    channel.ask(HELLO, {"a": message, "b": message})
    cost = channel.meter.phases["hello"]
    assert (cost.bytes_down, cost.bytes_up) == (2 * expected, expected)


def test_a_reading_subtracts_to_the_cost_in_between():
    channel = LocalChannel({"a": lambda p, m: Anything(array=np.zeros((3, 1)))})
    channel.ask(FIRST, {"a": NOTHING})
    before = channel.meter.read()
    channel.ask(SECOND, {"a": Anything(content=b"12345")})
    channel.ask(FIRST, {"a": NOTHING})
    cost = channel.meter.read() - before
    assert (cost.round_trips, cost.bytes_down, cost.bytes_up) == (2, 5, 48)
    assert before + cost == channel.meter.read()


def test_parties_work_in_parallel_so_a_phase_takes_as_long_as_its_slowest_party(clock):
    channel = LocalChannel({"a": clock.taking(1), "b": clock.taking(3), "c": clock.taking(0)})
    for _ in range(2):
        channel.ask(FIRST, dict.fromkeys("abc", NOTHING))
    channel.ask(SECOND, {"a": NOTHING})
    assert (channel.meter.phases["first"].slowest, channel.meter.phases["first"].total) == (6, 8)
    assert channel.meter.read().slowest == 7


def test_the_transcript_keeps_messages_and_replies_only_when_asked():
    channel = LocalChannel({"a": good}, record=True)
    channel.ask(HELLO, {"a": Anything(number=7)})
    (entry,) = channel.transcript
    assert (entry.phase, entry.party) == ("hello", "a")
    assert entry.message == entry.reply == {"number": 7}
    assert LocalChannel({"a": good}).transcript is None


@pytest.mark.parametrize("said", [None, {}, {"number": 7}, phase_of("other"), b""])
def test_a_reply_that_is_no_message_of_the_phase_is_a_failure(said):
    replies = LocalChannel({"a": lambda p, m: said}).ask(HELLO, {"a": NOTHING})
    assert replies.missing["a"].kind == "failed"
    assert "no message of this phase" in replies.missing["a"].reason


def test_nobody_waits_for_parties_in_the_same_process():
    """They are not back the sooner; but patience, which goes by this clock, has an end."""
    channel = LocalChannel({})
    with patch("weft.protocol.channel.sleep") as waited:
        before = channel.elapsed
        channel.pause(60.0)
        channel.pause(-1.0)
        assert 60.0 <= channel.elapsed - before < 120.0
    waited.assert_not_called()


def test_seconds_of_a_party_are_those_in_which_it_works():
    def waiting(phase, message):
        sleep(0.05)
        return NOTHING

    channel = LocalChannel({"a": waiting})
    channel.ask(HELLO, {"a": NOTHING})
    assert 0 < channel.meter.phases[HELLO.name].total < 0.04


def test_parties_on_threads_compute_at_once_and_are_read_in_order():
    both = threading.Barrier(2)

    def answer(phase, message):
        # Whoever waits alone for the other fails.
        both.wait(timeout=60)
        return message

    handlers = {"a": answer, "b": answer, "c": broken, "d": good}
    channel = LocalChannel(handlers, threads=2, record=True)
    asked = [Request(phase, dict.fromkeys("abcd", NOTHING)) for phase in (FIRST, SECOND)]
    for replies in channel.exchange(asked):
        assert list(replies.answered) == ["a", "b", "d"]
        assert list(replies.missing) == ["c"]
    said = [(crossed.phase, crossed.party) for crossed in channel.transcript]
    # Who fails is not asked again.
    assert said == [("first", p) for p in "abcd"] + [("second", p) for p in "abd"]
