"""Neural runs over an unreliable network: the networks of one process with the same presence."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
from neural_sites import in_one_process, numbers, places, settings, task
from toys import Crashed, UnreliableTransport

from covering import before_release
from weft.errors import ProtocolError
from weft.network import absent_parties
from weft.network import network_channel as channel
from weft.network.network_channel import NetworkChannel
from weft.network.record_and_replay_absences import ReplayedPresence
from weft.storage.journal import Journal
from weft_neural import coordinator as coordination
from weft_neural.coordinator import coordinate_neural
from weft_neural.local_sgd_steps import Trainer
from weft_neural.trained_model import NeuralModel

RUN = "run-1"
#: What becomes of some letters, by the phase and their number among those of that phase. In the
#: first round south works and is not heard, so that its classifier is nowhere but with itself.
SURE = {
    "neural.plan": {2: "killed before"},
    "neural.scale": {4: "crash after"},
    "neural.build": {2: "killed before"},
    "neural.train": {
        3: "unheard", 6: "killed before", 8: "lost", 11: "killed within", 14: "crash before",
        16: "twice", 18: "killed after",
    },
    "neural.finish": {1: "killed before", 2: "unheard", 3: "lost"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Look for parties that are away every other millisecond."""
    for name in ("_FIRST", "_LONGEST", "_BUSY"):
        monkeypatch.setattr(absent_parties, name, 0.002)
    monkeypatch.setattr(channel, "_PAUSE", 0.002)
    monkeypatch.setattr(coordination, "_PAUSE", 0.002)


class Transport(UnreliableTransport):
    """Its letters have the fates above."""

    def __init__(self, sites, sure):
        super().__init__(sites, 0)
        self.sure, self.envelopes = sure, Counter()

    def fates_of(self, work):
        phase = work.parts[0][0]
        self.envelopes[phase] += 1
        return {self.sure.get(phase, {}).get(self.envelopes[phase], "fine"): 1}


def run_with_faults(folder, chosen, sure):
    sites = places(folder)
    transport = Transport(sites, sure)
    crashes = 0
    while True:
        journal = Journal(folder / "journal")
        network = NetworkChannel(transport, RUN, journal)
        try:
            network.hello(task(chosen).told())
            outcome = coordinate_neural(network, chosen, run=bytes(range(16)))
            break
        except Crashed:
            crashes += 1
        except ProtocolError as error:
            # The run stopped where nobody may be missing: it is resumed, as after a crash.
            if not re.search("needs every party|start again", str(error)):
                raise
        finally:
            network.close()
            journal.close()
    return outcome, network, transport, crashes


@pytest.mark.release
@pytest.mark.parametrize(
    "changes", [{"begin": "own"}, *before_release({}, {"start": "own"})], ids=str
)
def test_a_run_with_every_fault_equals_one_process_with_its_presence(changes, tmp_path):
    chosen = settings(rounds=8, patience=5.0, **changes)
    outcome, network, transport, crashes = run_with_faults(tmp_path, chosen, SURE)
    presence = network.presence
    assert {fate for fates in SURE.values() for fate in fates.values()} <= transport.met
    assert crashes >= 2
    assert {m.how for moment in presence.moments for m in moment.missing.values()} >= {
        "absent",
        "late",
    }
    alone = in_one_process(chosen, lambda channel: ReplayedPresence(channel, presence))
    assert numbers(outcome.model) == numbers(alone.model)
    assert outcome.notes == alone.notes
    for here, there in zip(outcome.history, alone.history, strict=True):
        for name in ("present", "loss", "local_accuracy", "received_accuracy", "rows",
                     "objective", "round_trips", "bytes_down", "bytes_up"):  # fmt: skip
            assert getattr(here, name) == getattr(there, name), name
    for party in alone.own:
        models = tmp_path / party / "models" / RUN
        assert numbers(NeuralModel.load(models / "own.npz")) == numbers(alone.own[party])
        received = NeuralModel.load(models / "received.npz")
        assert numbers(received) == numbers(alone.received[party])


def test_who_is_brought_back_takes_the_steps_of_one_round_only(tmp_path, monkeypatch):
    steps = Counter()
    run = Trainer.run

    def counted(self, count, rate, seed, purpose):
        steps[purpose] += 1
        return run(self, count, rate, seed, purpose)

    monkeypatch.setattr(Trainer, "run", counted)
    # East is the second of three parties, and dies before it works in the last round.
    run_with_faults(tmp_path, settings(), {"neural.train": {17: "killed before"}})
    assert steps == {
        f"round {turn} of {party}": 1 + (party == "east" and turn == 5)
        for turn in range(1, 7)
        for party in ("north", "east", "south")
    }


def test_seconds_of_rounds_are_the_same_after_the_coordinator_was_killed(tmp_path):
    killed = {"neural.train": {16: "crash before"}}
    outcome, network, _, crashes = run_with_faults(tmp_path, settings(), killed)
    assert crashes == 1
    times = [moment.elapsed for moment in network.presence.moments]
    spent = [after - before for before, after in pairwise(times)]
    found = [turn.training_seconds for turn in outcome.history]
    at = next(n for n in range(len(spent)) if spent[n : n + len(found)] == found)
    assert at > 0
