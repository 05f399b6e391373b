"""Whatever is lost, delayed, damaged or killed: the run is the one that its presence describes."""

from __future__ import annotations

import os

import pytest
from toys import FATES, Crashed, Place, Toy, UnreliableTransport, coordinate

from covering import changing
from weft.network import absent_parties
from weft.network import network_channel as channel
from weft.network.network_channel import NetworkChannel
from weft.network.record_and_replay_absences import Presence, ReplayedPresence
from weft.protocol import LocalChannel
from weft.storage.journal import Journal

NAMES = ("north", "south", "east", "west")
ROUNDS = 30


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Look for parties that are away every other millisecond, and do not wait for the disk."""
    for name in ("_FIRST", "_LONGEST", "_BUSY"):
        monkeypatch.setattr(absent_parties, name, 0.002)
    monkeypatch.setattr(channel, "_PAUSE", 0.002)
    # Processes are killed here, not machines: what was written is there.
    monkeypatch.setattr(os, "fdatasync", lambda file: None)


def run_with_faults(folder, seed):
    """A run that is resumed until it comes to its end; its state, its channel and its post."""
    places = [Place(name, folder / name) for name in NAMES]
    transport = UnreliableTransport(places, seed)
    crashes = 0
    while True:
        journal = Journal(folder / "journal")
        network = NetworkChannel(transport, "run-1", journal)
        try:
            network.hello({"about": seed})
            state = coordinate(network, ROUNDS, seed)
            break
        except Crashed:
            crashes += 1
            network.close()
            journal.close()
    network.close()
    transport.bring_delayed()
    states = {place.name: state_of(place) for place in places}
    assert network.end() == {}
    journal.close()
    return state, states, network, transport, crashes


def state_of(place):
    """What the party is, or would be once it was brought back."""
    with place.site._lock:
        known = place.site._known("run-1")
    with known.lock:
        return known.rebuild(heard=0).member.state


def test_every_schedule_of_faults_gives_what_its_presence_gives_in_one_process(tmp_path):
    met, ways, crashed = set(), set(), 0
    for seed in range(8 if changing() else 14):
        state, states, network, transport, crashes = run_with_faults(tmp_path / str(seed), seed)
        path = tmp_path / "presence.json"
        network.presence.save(path)
        toys = {name: Toy(name) for name in NAMES}
        local = LocalChannel({name: toy.on for name, toy in toys.items()}, packed=True)
        attended = ReplayedPresence(local, Presence.load(path))
        assert coordinate(attended, ROUNDS, seed) == state
        assert {name: toy.state for name, toy in toys.items()} == states
        assert attended.elapsed == network.elapsed
        for phase, cost in network.meter.phases.items():
            again = attended.meter.phases[phase]
            assert (cost.calls, cost.bytes_down, cost.bytes_up) == (
                again.calls, again.bytes_down, again.bytes_up
            )  # fmt: skip
        met |= transport.met
        ways |= {m.how for moment in network.presence.moments for m in moment.missing.values()}
        crashed += crashes
    # The schedules must have had all of it in them.
    assert met == set(FATES)
    assert ways == {"away", "absent", "late"}
    assert crashed > 5
