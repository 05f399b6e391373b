"""The channel over a network: who is away costs once, nothing is asked twice, time repeats."""

from __future__ import annotations

import threading
import time

import pytest
from toys import MemoryTransport, Place, Toy, ToyRequest, toy

from weft.errors import ProtocolError
from weft.network import absent_parties
from weft.network import network_channel as channel_module
from weft.network.envelope_bytes import Hello, Ping, Welcome, Work, Worked, encode
from weft.network.network_channel import NetworkChannel, Timeouts
from weft.network.record_and_replay_absences import Presence, ReplayedPresence
from weft.network.transport_interface import Stopped
from weft.protocol import Failure, LocalChannel, Request, pack
from weft.protocol.recording_file import entries_of
from weft.storage.atomic_files import StorageError
from weft.storage.journal import Journal

NAMES = ("north", "south", "east")


class ScriptedTransport(MemoryTransport):
    """Fates by party; everything else arrives. Remembers the timeouts."""

    def __init__(self, places):
        super().__init__(places)
        self.fates = {}
        self.timeouts = []

    def send(self, envelopes, timeout):
        self.timeouts.append(timeout)
        return super().send(envelopes, timeout)

    def fate(self, party, envelope):
        fate = self.fates.get(party, "fine")
        if isinstance(fate, list):
            fate = fate.pop(0) if fate else "fine"
        return fate

    def asked(self, kind=Work):
        return [party for party, envelope in self.sent if isinstance(envelope, kind)]


class World:
    """Three parties, a post, and a coordinator that can be started again."""

    def __init__(self, folder):
        self.folder = folder
        self.transport = ScriptedTransport([Place(name, folder / name) for name in NAMES])
        self.channel = None

    def start(self, **options):
        self.stop()
        self.journal = Journal(self.folder / "journal")
        self.channel = NetworkChannel(self.transport, "run-1", self.journal, **options)
        self.channel.hello({"about": "a test"})
        return self.channel

    def stop(self):
        if self.channel is not None:
            self.channel.close()
            self.journal.close()


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.stop()


def to_all(**message):
    return {party: ToyRequest(**{"x": 1, **message}) for party in NAMES}


def until(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.005)
    pytest.fail("it did not come to that")


def test_all_parties_answer_as_in_one_process(world):
    channel = world.start(record=True)
    toys = {name: Toy(name) for name in NAMES}
    local = LocalChannel({name: toy.on for name, toy in toys.items()}, record=True)
    requests = [
        Request(toy("match.one"), to_all(told=b"four")),
        Request(toy("two"), {p: ToyRequest(y=2.0) for p in ("east", "north")}),
    ]
    for over in (channel, local):
        over.found = [over.exchange(requests), over.exchange(requests[1:])]
    assert channel.found == local.found
    assert [list(r.answered) for r in channel.found[0]] == [list(NAMES), ["east", "north"]]
    assert channel.meter.round_trips == local.meter.round_trips == 2
    for phase, cost in local.meter.phases.items():
        over = channel.meter.phases[phase]
        assert (cost.calls, cost.bytes_down, cost.bytes_up) == (
            over.calls, over.bytes_down, over.bytes_up
        )  # fmt: skip
        assert 0.0 < over.slowest < over.total
    assert list(entries_of(channel.transcript)) == list(entries_of(local.transcript))


def test_an_unknown_party_is_told(world):
    replies = world.start().ask(toy("a"), dict.fromkeys(("nowhere", "north"), ToyRequest()))
    assert replies.missing == {"nowhere": Failure("unknown", "no such party")}
    assert list(replies.answered) == ["north"]


def test_who_is_away_is_asked_once_and_found_again_beside_the_run(world, monkeypatch):
    monkeypatch.setattr(absent_parties, "_FIRST", 0.01)
    channel = world.start()
    world.transport.fates = {"south": "lost"}
    late = Failure("late", "no reply in time")
    for _ in range(3):
        assert channel.ask(toy("a"), to_all()).missing == {"south": late}
    assert world.transport.asked().count("south") == 1
    assert channel.away == {"south": late}
    until(lambda: world.transport.asked(Ping).count("south") > 1)
    assert set(world.transport.asked(Ping)) == {"south"}
    world.transport.fates = {}
    until(lambda: not channel.away)
    assert list(channel.ask(toy("a"), to_all()).answered) == list(NAMES)
    hows = [m["south"].how for m in (x.missing for x in channel.presence.moments) if m]
    assert hows == ["absent", "away", "away"]


def test_a_party_that_is_being_brought_back_is_not_asked_before_it_is_ready(world, monkeypatch):
    for name in ("_FIRST", "_BUSY"):
        monkeypatch.setattr(absent_parties, name, 0.005)
    channel = world.start()
    place, go_on = world.transport.places["south"], threading.Event()

    def slowly(request):
        go_on.wait(10)
        return Toy("south")

    place.make = slowly
    world.transport.fates = {"south": ["killed after"]}
    channel.ask(toy("a"), to_all())
    returning = Failure("late", "is being brought back from its journal")
    until(lambda: channel.away == {"south": returning})
    pings = len(world.transport.asked(Ping))
    until(lambda: len(world.transport.asked(Ping)) > pings + 3)
    assert channel.ask(toy("a"), to_all()).missing == {"south": returning}
    go_on.set()
    until(lambda: not channel.away)
    assert list(channel.ask(toy("a"), to_all()).answered) == list(NAMES)
    assert world.transport.asked().count("south") == 2


def test_pings_come_less_and_less_often(world, monkeypatch):
    monkeypatch.setattr(absent_parties, "_FIRST", 0.02)
    monkeypatch.setattr(absent_parties, "_LONGEST", 0.08)
    channel = world.start()
    world.transport.fates = {"south": "lost"}
    channel.ask(toy("a"), to_all())
    began = time.monotonic()
    until(lambda: len(world.transport.asked(Ping)) >= 5)
    # 0.02 + 0.04 + 3 · 0.08
    assert time.monotonic() - began > 0.25


def test_a_late_reply_is_told_from_an_absent_party(world, monkeypatch):
    monkeypatch.setattr(absent_parties, "_FIRST", 0.005)
    channel = world.start()
    for fate in ("unheard", "lost", "killed after"):
        world.transport.fates = {"south": [fate]}
        assert list(channel.ask(toy("a"), to_all(said=fate)).missing) == ["south"]
        until(lambda: not channel.away)
    assert [m.missing["south"].how for m in channel.presence.moments] == ["absent"] * 3
    channel.ask(toy("a"), to_all())
    hows = [m.missing["south"].how for m in channel.presence.moments[:3]]
    assert hows == ["late", "absent", "late"]


def test_a_last_late_reply_is_learnt_at_the_end(world):
    channel = world.start()
    world.transport.fates = {"south": ["unheard"]}
    channel.ask(toy("a"), to_all())
    assert channel.end() == {}
    assert channel.presence.moments[0].missing["south"].how == "late"


@pytest.mark.parametrize("way", ["there", "back"])
def test_what_is_damaged_on_the_way_is_asked_once_more(world, way):
    channel = world.start()
    world.transport.fates = {"south": [f"garbled {way}"]}
    assert list(channel.ask(toy("a"), to_all()).answered) == list(NAMES)
    assert world.transport.places["south"].toy.calls == 1
    world.transport.fates = {"south": [f"garbled {way}"] * 2}
    what = {"there": "what it was sent", "back": "its reply"}[way]
    failure = Failure("failed", f"{what} was damaged on the way")
    assert channel.ask(toy("a"), to_all()).missing == {"south": failure}
    # It is there: the next exchange asks it.
    assert list(channel.ask(toy("a"), to_all()).answered) == list(NAMES)
    how = {"there": "absent", "back": "late"}[way]
    assert channel.presence.moments[1].missing["south"].how == how


def test_a_refusal_passes_through_and_its_party_has_left_after_a_restart(world):
    channel = world.start()
    channel.ask(toy("a"), to_all())
    asked = to_all() | {"south": ToyRequest(fail="refuse")}
    replies = channel.ask(toy("b"), asked)
    assert replies.missing == {"south": Failure("refused", "this toy does not do that")}
    with pytest.raises(ProtocolError, match="south: this toy does not do that"):
        replies.stop_on_refusal()
    calls = world.transport.places["north"].toy.calls
    again = world.start()
    again.ask(toy("a"), to_all())
    sent = len(world.transport.sent)
    left = again.ask(toy("b"), asked)
    assert left.answered == replies.answered
    assert left.missing["south"].kind == "refused"
    assert "has left run" in left.missing["south"].reason
    assert len(world.transport.sent) == sent + 3
    assert world.transport.places["north"].toy.calls == calls
    # A run that goes on has taken note.
    others = {party: message for party, message in to_all().items() if party != "south"}
    again.ask(toy("c"), others)
    last = world.start()
    sent = len(world.transport.sent)
    last.ask(toy("a"), to_all())
    assert last.ask(toy("b"), asked) == left
    last.ask(toy("c"), others)
    assert len(world.transport.sent) == sent


def test_a_resumed_run_repeats_replies_failures_time_and_costs_without_asking(world, monkeypatch):
    channel = world.start(record=True)
    world.transport.fates = {"south": "lost"}
    seen = []
    asked = [to_all(turn=0), to_all(turn=1), {"north": ToyRequest(turn=2)}]
    for messages in asked:
        seen.append((channel.ask(toy("a"), messages), channel.elapsed))
        channel.pause(0.2)
    sent = [e for _, e in world.transport.sent if not isinstance(e, Ping)]
    again = world.start(record=True)
    slept = []
    monkeypatch.setattr("weft.network.clock.sleep", slept.append)
    for messages, (replies, elapsed) in zip(asked, seen, strict=True):
        assert again.replaying
        assert again.ask(toy("a"), messages) == replies
        assert again.elapsed == elapsed
        again.pause(0.2)
        assert again.elapsed == elapsed + 0.2
    # All but the last pause: it is not known to have come to its end.
    assert slept == [0.2]
    assert not again.replaying
    assert [e for _, e in world.transport.sent if not isinstance(e, Ping)] == sent
    assert again.meter == channel.meter
    assert again.transcript == channel.transcript
    assert again.presence == channel.presence
    # The dead time does not count, but time goes on.
    before, began = again.elapsed, time.monotonic()
    replies = again.ask(toy("a"), to_all(turn=3))
    assert list(replies.answered) == ["north", "east"]
    assert 0.6 <= before <= again.elapsed
    # Times have two digits.
    assert again.elapsed - before <= 1.1 * (time.monotonic() - began)


def test_time_stands_still_between_exchanges(world):
    channel = world.start()
    channel.ask(toy("a"), to_all())
    before = channel.elapsed
    time.sleep(0.02)
    assert channel.elapsed == before
    channel.ask(toy("a"), to_all())
    assert channel.elapsed >= before + 0.02


def test_a_run_that_stopped_for_want_of_a_party_asks_it_again_when_it_is_resumed(world):
    channel = world.start()
    world.transport.fates = {"south": "lost", "east": "unheard"}
    with pytest.raises(ProtocolError, match="needs every party, but south did not answer"):
        channel.ask(toy("begin"), to_all()).insist("starting")
    world.transport.fates = {}
    again = world.start()
    assert list(again.ask(toy("begin"), to_all()).insist("starting")) == list(NAMES)
    assert {place.toy.calls for place in world.transport.places.values()} == {1}
    assert again.presence.moments[0].missing == {}


def test_a_resumed_run_that_asks_something_else_is_told(world):
    world.start().ask(toy("a"), to_all())
    for phase, message in (("b", to_all()), ("a", to_all(x=2)), ("a", {"north": ToyRequest(x=1)})):
        with pytest.raises(ProtocolError, match="does not ask what it asked before"):
            world.start().ask(toy(phase), message)
    world.stop()
    journal = Journal(world.folder / "journal")
    with pytest.raises(ProtocolError, match="begun with another plan"):
        NetworkChannel(world.transport, "run-1", journal).hello({"about": "else"})
    journal.close()


def test_a_full_disk_at_the_coordinator_is_told_and_the_run_resumes(world, monkeypatch):
    channel = world.start()
    channel.ask(toy("a"), to_all())

    def full(record):
        raise StorageError("the journal of the run cannot be written")

    monkeypatch.setattr(world.journal, "append", full)
    with pytest.raises(StorageError, match="cannot be written"):
        channel.ask(toy("b"), to_all())
    calls = {name: place.toy.calls for name, place in world.transport.places.items()}
    again = world.start()
    again.ask(toy("a"), to_all())
    assert list(again.ask(toy("b"), to_all()).answered) == list(NAMES)
    assert {name: place.toy.calls for name, place in world.transport.places.items()} == calls


def test_matching_and_scaling_get_more_time_than_other_work(world):
    channel = world.start(timeouts=Timeouts(setup=50.0, work=5.0, ping=1.0))
    world.transport.timeouts.clear()
    channel.ask(toy("match.toys"), to_all())
    channel.ask(toy("subspace.toys"), to_all())
    channel.exchange([Request(toy("size.toys"), to_all()), Request(toy("scale.toys"), to_all())])
    channel.end()
    assert world.transport.timeouts == [50.0, 5.0, 50.0, 5.0]


def test_a_stopped_run_says_so_and_can_be_resumed(world, monkeypatch):
    channel = world.start()

    def stop(self, envelopes, timeout):
        raise Stopped("the run was stopped")

    with monkeypatch.context() as patched:
        patched.setattr(ScriptedTransport, "send", stop)
        with pytest.raises(Stopped, match="was stopped"):
            channel.ask(toy("a"), to_all())
    assert list(world.start().ask(toy("a"), to_all()).answered) == list(NAMES)


# ── the beginning ─────────────────────────────────────────────────────────────────────────


def test_hello_waits_for_those_who_come_later(world, monkeypatch):
    monkeypatch.setattr(channel_module, "_PAUSE", 0.01)
    world.transport.fates = {"south": ["lost", "lost", "garbled back"]}
    channel = NetworkChannel(world.transport, "run-1", Journal(world.folder / "other"))
    said = channel.hello({"about": 1}, limit=5.0)
    assert [(party, message["name"]) for party, message in said.items()] == [(p, p) for p in NAMES]
    # Nobody is asked twice who has answered; south twice more for what was lost, once for damage.
    assert sorted(world.transport.asked(Hello)) == ["east", "north"] + ["south"] * 4


def test_hello_names_who_is_missing_and_tells_the_others_that_nothing_comes_of_it(
    world, monkeypatch
):
    monkeypatch.setattr(channel_module, "_PAUSE", 0.01)
    world.transport.fates = {"south": "lost"}
    channel = NetworkChannel(world.transport, "run-1", Journal(world.folder / "other"))
    with pytest.raises(ProtocolError, match=r"from south \(gave no answer within 0.1 s\); start"):
        channel.hello({"about": 1}, limit=0.1)
    assert world.transport.places["north"].site.runs() == []
    world.transport.fates = {}
    assert set(channel.hello({"about": 1})) == set(NAMES)


def test_hello_stops_at_once_where_a_party_refuses(world):
    begun = Hello.of("run-1", pack({"about": "something else"}))
    world.transport.places["east"].site.answer(encode(begun))
    channel = NetworkChannel(world.transport, "run-1", Journal(world.folder / "other"))
    with pytest.raises(ProtocolError, match=r"refused: east \(run run-1 was begun here with anot"):
        channel.hello({"about": 1}, limit=60.0)
    # Its run with somebody else goes on.
    assert [entry.ended for entry in world.transport.places["east"].site.runs()] == [""]


def test_replies_that_do_not_fit_are_refusals(world, monkeypatch):
    channel = world.start()
    wrong = {
        "north": encode(Welcome.of(b"")),
        "south": encode(Worked(7, [pack({})], [0.0], [])),
        "east": encode(Worked(1, [], [], [])),
    }
    monkeypatch.setattr(ScriptedTransport, "send", lambda self, envelopes, timeout: wrong)
    replies = channel.ask(toy("a"), to_all())
    failure = Failure("refused", "its reply does not fit what it was asked")
    assert replies.missing == dict.fromkeys(NAMES, failure)


SPOILT = {
    "no message": b"no message",
    "nothing in it": pack({}),
    "a field too many": pack({"state": b"", "calls": 1, "more": 1}),
    "a number for bytes": pack({"state": 3, "calls": 1}),
    "a text for a number": pack({"state": b"", "calls": "1"}),
}


@pytest.mark.parametrize("packed", SPOILT.values(), ids=SPOILT)
def test_a_malformed_reply_stops_the_run_in_a_sentence(world, monkeypatch, packed):
    channel = world.start()
    good = pack({"state": b"", "calls": 1})
    found = {"north": good, "south": packed, "east": good}
    sent = {party: encode(Worked(1, [reply], [0.0], [])) for party, reply in found.items()}
    monkeypatch.setattr(ScriptedTransport, "send", lambda self, letters, timeout: sent)
    with pytest.raises(ProtocolError, match="party south sent a reply to phase 'a' that") as error:
        channel.ask(toy("a"), to_all())
    assert "\n" not in str(error.value)


# ── presence ──────────────────────────────────────────────────────────────────────────────


def test_presence_is_saved_whole_and_holds_no_message(world, tmp_path):
    channel = world.start()
    world.transport.fates = {"south": ["unheard"]}
    channel.ask(toy("a"), to_all(said="do not tell"))
    channel.end()
    channel.presence.save(tmp_path / "presence.json")
    assert "do not tell" not in (tmp_path / "presence.json").read_text()
    assert Presence.load(tmp_path / "presence.json") == channel.presence
    (tmp_path / "presence.json").write_text('{"version": 2, "exchanges": []}')
    with pytest.raises(StorageError, match="version 2"):
        Presence.load(tmp_path / "presence.json")
    (tmp_path / "presence.json").write_text("{}")
    with pytest.raises(StorageError, match="cannot be read"):
        Presence.load(tmp_path / "presence.json")


def test_a_run_that_is_longer_than_its_presence_is_not_the_same_run():
    attended = ReplayedPresence(LocalChannel({"a": Toy("a").on}), Presence())
    with pytest.raises(ProtocolError, match="ends after 0 exchanges"):
        attended.ask(toy("x"), {"a": ToyRequest()})
