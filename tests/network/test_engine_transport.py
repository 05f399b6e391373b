"""The post over the engine's cells: every letter has a fate, and no fault of a party is raised.

The cells are played here; everything between them and the site is the real thing.
"""

import threading
import time
from types import SimpleNamespace

import pytest
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.message import Message

from covering import before_release
from weft.network.nvflare_processes import nvflare_transport as post_module
from weft.network.nvflare_processes.client_party import PartyComponent
from weft.network.nvflare_processes.nvflare_transport import (
    ANSWERED,
    ASK,
    MOST_BYTES,
    NvflareTransport,
    reply_with,
)
from weft.network.transport_interface import Stopped
from weft.protocol import Failure

ORIGIN = "server.f00d"


class Echo:
    """A site that answers what it was told, backwards, when it may."""

    def __init__(self):
        self.may = threading.Event()
        self.may.set()
        self.told = []

    def answer(self, envelope):
        self.told.append(envelope)
        self.may.wait(10)
        return envelope[::-1]


class Process:
    """A party's process: connected or not, with what its component remembers."""

    def __init__(self, site=None):
        self.site = site or Echo()
        self.connected = True
        self.begin()

    def begin(self):
        """Start anew: what was remembered is gone, and letters at work on are never answered."""
        self.component = PartyComponent()
        self.component.site = self.site
        self.alive = threading.Event()
        self.alive.set()

    def die(self):
        self.alive.clear()
        self.connected = False

    def take(self, topic, message, timeout):
        if not self.connected:
            return Message({MessageHeaderKey.RETURN_CODE: ReturnCode.COMM_ERROR}, None)
        alive, component = self.alive, self.component
        handle = component.ask if topic == ASK else component.seen
        found = []
        worker = threading.Thread(target=lambda: found.append(handle(message)), daemon=True)
        worker.start()
        until = time.monotonic() + timeout
        while not found or not alive.is_set():
            if time.monotonic() > until:
                return Message({MessageHeaderKey.RETURN_CODE: ReturnCode.TIMEOUT}, None)
            time.sleep(0.001)
        return found[0]


class Core:
    """The engine's end of the wire in the coordinator's job."""

    def __init__(self, processes, origin=ORIGIN):
        self.processes = processes
        self.origin = origin
        self.lost = False

    def broadcast_multi_requests(self, messages, timeout):
        ((party, wanted),) = messages.items()
        if self.lost:
            return {party: Message({MessageHeaderKey.RETURN_CODE: ReturnCode.TARGET_UNREACHABLE})}
        wanted.message.add_headers({MessageHeaderKey.ORIGIN: self.origin})
        return {party: self.processes[party].take(wanted.topic, wanted.message, timeout)}


@pytest.fixture
def parties(monkeypatch):
    monkeypatch.setattr(post_module, "_PROBE", 0.02)
    monkeypatch.setattr(post_module, "_LOOK", 0.01)
    return {name: Process() for name in ("a", "b", "c")}


def post_to(processes, stopped=lambda: False, **options):
    core = Core(processes, **options)
    return NvflareTransport(SimpleNamespace(core_cell=core), ("a", "b", "c"), stopped), core


def envelopes(*names):
    return {name: f"to {name}".encode() for name in names or ("a", "b", "c")}


def test_everybody_gets_its_own_letter_and_its_own_reply_comes_back(parties):
    transport, _ = post_to(parties)
    assert transport.send(envelopes(), 60.0) == {"a": b"a ot", "b": b"b ot", "c": b"c ot"}
    assert [process.site.told for process in parties.values()] == [[b"to a"], [b"to b"], [b"to c"]]


def test_a_party_that_is_not_connected_costs_no_timeout(parties):
    transport, _ = post_to(parties)
    parties["b"].connected = False
    began = time.monotonic()
    found = transport.send(envelopes(), 240.0)
    assert time.monotonic() - began < 40.0
    assert found["b"] == Failure("failed", "is not connected")
    assert (found["a"], found["c"]) == (b"a ot", b"c ot")


def test_a_party_that_works_for_too_long_is_late_and_the_others_are_heard(parties):
    transport, _ = post_to(parties)
    parties["b"].site.may.clear()
    found = transport.send(envelopes(), 0.3)
    assert found["b"].kind == "late"
    assert (found["a"], found["c"]) == (b"a ot", b"c ot")
    parties["b"].site.may.set()
    assert transport.send(envelopes("b"), 5.0) == {"b": b"b ot"}


def test_a_party_that_works_long_and_lives_is_waited_for(parties):
    transport, _ = post_to(parties)
    parties["b"].site.may.clear()
    # Many questions after the letter are asked until then.
    threading.Timer(0.5, parties["b"].site.may.set).start()
    assert transport.send(envelopes(), 10.0)["b"] == b"b ot"


def test_a_party_that_dies_over_a_letter_is_found_out_before_the_timeout(parties):
    transport, _ = post_to(parties)
    parties["b"].site.may.clear()
    threading.Timer(0.1, parties["b"].die).start()
    began = time.monotonic()
    found = transport.send(envelopes(), 240.0)
    assert time.monotonic() - began < 40.0
    assert found["b"] == Failure("failed", "is not connected")


def test_a_party_that_was_started_again_has_lost_the_letter(parties):
    transport, _ = post_to(parties)
    parties["b"].site.may.clear()

    def restart():
        parties["b"].die()
        parties["b"].begin()
        parties["b"].connected = True

    threading.Timer(0.1, restart).start()
    began = time.monotonic()
    found = transport.send(envelopes(), 240.0)
    assert time.monotonic() - began < 40.0
    assert found["b"].kind == "failed"
    assert "lost the envelope" in found["b"].reason


def test_an_answer_that_is_lost_on_its_way_is_asked_for_again(parties):
    """What a site says before it has logged in, the engine drops."""
    transport, _ = post_to(parties)
    dropped = []

    def take(topic, message, timeout, take=parties["b"].take):
        reply = take(topic, message, timeout)
        if topic == ASK and not dropped:
            dropped.append(reply)
            time.sleep(timeout)
        return reply

    parties["b"].take = take
    began = time.monotonic()
    assert transport.send(envelopes(), 240.0)["b"] == b"b ot"
    assert time.monotonic() - began < 40.0
    assert len(dropped) == 1
    assert parties["b"].site.told == [b"to b"] * 2


@pytest.mark.parametrize("size", [b"many", *before_release(b"", b"-1", b"9" * 5000)])
def test_a_party_that_tells_no_size_keeps_no_death_of_others_from_being_noticed(parties, size):
    transport, _ = post_to(parties)
    parties["a"].take = says_answered(size, [])
    take = parties["b"].take

    def forgets(topic, message, timeout):
        if topic == ASK:
            time.sleep(timeout)
        return take(topic, message, timeout)

    parties["b"].take = forgets
    found = transport.send(envelopes("a", "b"), 1.0)
    assert found["a"].kind == "late"
    assert "lost the envelope" in found["b"].reason


def test_a_party_that_says_for_ever_that_it_answered_is_sent_a_letter_a_few_times(parties):
    transport, _ = post_to(parties)
    sent = []
    parties["a"].take = says_answered(b"0", sent)
    assert transport.send(envelopes("a"), 0.7)["a"].kind == "late"
    # After 1, 2, 4 … times 0.02 s and the time of a question or two, not every 0.02 s.
    assert 2 <= len(sent) <= 8


def says_answered(size, sent):
    def take(topic, message, timeout):
        if topic == ASK:
            sent.append(message)
            time.sleep(timeout)
            return Message({MessageHeaderKey.RETURN_CODE: ReturnCode.TIMEOUT}, None)
        return reply_with(ANSWERED + size)

    return take


def test_a_large_answer_may_be_long_on_its_way(parties, monkeypatch):
    monkeypatch.setattr(post_module, "_SLOWEST_ANSWER", 1.0)
    transport, _ = post_to(parties)
    take = parties["b"].take

    def slowly(topic, message, timeout):
        reply = take(topic, message, timeout)
        time.sleep(0.3 if topic == ASK else 0.0)
        return reply

    parties["b"].take = slowly
    assert transport.send(envelopes("b"), 10.0) == {"b": b"b ot"}
    assert parties["b"].site.told == [b"to b"]


def test_who_has_not_answered_yet_can_be_asked_at_any_time(parties):
    transport, _ = post_to(parties)
    parties["b"].site.may.clear()
    seen = []

    def look():
        until = time.monotonic() + 10.0
        while transport.unanswered != ("b",) and time.monotonic() < until:
            time.sleep(0.001)
        seen.append(transport.unanswered)
        parties["b"].site.may.set()

    threading.Thread(target=look).start()
    transport.send(envelopes(), 60.0)
    assert seen == [("b",)]
    assert transport.unanswered == ()


def test_a_large_letter_may_be_long_on_its_way(parties, monkeypatch):
    monkeypatch.setattr(post_module, "_SLOWEST", 1.0)
    transport, _ = post_to(parties)
    parties["b"].component._remember = lambda envelope, how: None
    parties["b"].site.may.clear()
    threading.Timer(0.4, parties["b"].site.may.set).start()
    assert transport.send(envelopes("b"), 10.0) == {"b": b"b ot"}


def test_strangers_and_letters_beyond_the_engines_frame_are_not_sent(parties):
    transport, _ = post_to(parties)

    class Huge(bytes):
        def __len__(self):
            return MOST_BYTES + 1

    found = transport.send({"a": Huge(), "zoe": b"?"}, 5.0)
    assert found["a"].kind == "failed"
    assert found["zoe"].kind == "unknown"
    assert parties["a"].site.told == []


def test_a_coordinator_without_its_server_blames_no_party(parties):
    transport, core = post_to(parties)
    core.lost = True
    with pytest.raises(Stopped, match="lost its server"):
        transport.send(envelopes(), 240.0)


def test_a_run_that_is_stopped_waits_for_nobody(parties):
    asked = threading.Event()
    transport, _ = post_to(parties, stopped=asked.is_set)
    parties["b"].site.may.clear()
    threading.Timer(0.1, asked.set).start()
    began = time.monotonic()
    with pytest.raises(Stopped, match="was stopped"):
        transport.send(envelopes(), 240.0)
    assert time.monotonic() - began < 40.0


@pytest.mark.parametrize("origin", ["b", "server", "serverless.f00d", "", "b.server.f00d"])
def test_a_party_answers_jobs_of_the_server_and_nobody_else(parties, origin):
    transport, _ = post_to(parties, origin=origin)
    found = transport.send(envelopes("a"), 5.0)
    assert isinstance(found["a"], Failure)
    assert parties["a"].site.told == []
