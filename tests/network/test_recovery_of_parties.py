"""Real parties over an unreliable network: the model of one process with the same presence."""

from __future__ import annotations

import re
from collections import Counter
from time import monotonic

import numpy as np
import pytest
from toys import FATES, Crashed, Killed, Place, UnreliableTransport

from covering import before_release, some_of
from weft.crypto.keys import ephemeral_keys
from weft.crypto.party_key_pairs import Identity
from weft.data import SPLITS, Table, load
from weft.errors import ProtocolError
from weft.federation import coordinator as coordination
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.party import Party
from weft.federation.release.encrypted_model_slices import join_slices, open_slice
from weft.guards import OPEN
from weft.network import absent_parties
from weft.network import network_channel as channel
from weft.network.network_channel import NetworkChannel
from weft.network.record_and_replay_absences import ReplayedPresence
from weft.privacy.audit.audit_of_a_recording import audit
from weft.protocol.recording_file import Head, entries_of
from weft.solvers.run_settings import Settings
from weft.storage.journal import Journal

HOW = Preprocessing(intercept=True, scaling="standard", unit_rows=True)
#: What becomes of some letters, by their number among those of their room: while the parties are
#: matched, while they agree on scaling, and in training.
SURE = {
    "match": {4: "crash after", 6: "killed before"},
    "scale": {6: "killed before", 20: "crash before"},
    "subspace": {22: "unheard", 30: "stays away", 36: "killed within", 44: "crash after"},
    "hyfdca": {80: "unheard", 90: "lost", 98: "killed within", 104: "crash after"},
}


#: Seconds that the fast solver waits.
PATIENCE = 0.2


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Look for parties that are away every other millisecond."""
    for name in ("_FIRST", "_LONGEST", "_BUSY"):
        monkeypatch.setattr(absent_parties, name, 0.002)
    monkeypatch.setattr(channel, "_PAUSE", 0.002)
    monkeypatch.setattr("weft.federation.release.coordinator._PAUSE", 0.002)


class Transport(UnreliableTransport):
    """Also a party that stays away for longer than a fast solver waits."""

    def __init__(self, places, seed, by_chance):
        super().__init__(places, seed)
        self.by_chance = by_chance
        self.envelopes = Counter()
        self.away = {}

    def fate(self, party, envelope):
        if monotonic() < self.away.get(party, 0.0):
            return "lost"
        fate = super().fate(party, envelope)
        if fate == "stays away":
            self.away[party] = monotonic() + 2 * PATIENCE
            return "lost"
        return fate

    def fates_of(self, work):
        room = work.parts[0][0].split(".")[0]
        self.envelopes[room] += 1
        sure = SURE.get(room, {}).get(self.envelopes[room])
        return self.by_chance if sure is None else {sure: 1}


class Mortal:
    """A party that can be told to die in the middle of its work."""

    def __init__(self, party):
        self._party, self.dies = party, False
        self.replaying, self.close, self.settle = party.replaying, party.close, party.settle

    def on(self, phase, message):
        reply = self._party.on(phase, message)
        if self.dies:
            raise Killed
        return reply


def tiles():
    whole = load("breast_cancer")
    rows, columns = slice(0, 60), slice(0, 8)
    block = np.ascontiguousarray(whole.block[rows, columns])
    table = Table(
        whole.ids[rows], whole.features[columns], block, whole.labels[rows], whole.task, "small"
    )
    return SPLITS["grid"](table, k=2, q=2).parties


def places(folder, held, reader, settings):
    keys = ephemeral_keys(tuple(held))

    def maker(name):
        def make(request):
            return Mortal(
                Party(
                    name, held[name], keys=keys[name], cipher=settings.cipher, terms=OPEN,
                    readers={"here": reader.public}, memory=request.memory,
                )
            )  # fmt: skip

        return make

    identities = {name: keys[name].identity.public for name in held}
    return [Place(name, folder / name, maker(name)) for name in held], identities


def run_with_faults(folder, held, settings, by_chance):
    reader, run = Identity.new(), bytes(range(16))
    sites, identities = places(folder, held, reader, settings)
    transport = Transport(sites, 0, by_chance)
    crashes = 0
    while True:
        journal = Journal(folder / "journal")
        network = NetworkChannel(transport, "run-1", journal, record=True)
        try:
            network.hello({"about": settings.to_json()})
            outcome = coordination.coordinate(network, HOW, settings, run=run)
            break
        except Crashed:
            crashes += 1
        except ProtocolError as error:
            # The run stopped where nobody may be missing: it is resumed, as after a crash.
            if not re.search("needs every party|no party answered|start again", str(error)):
                raise
        finally:
            network.close()
            journal.close()
    slices = [
        open_slice(envelope, party, reader, identities[party], run)
        for party, envelope in outcome.letters["here"].items()
    ]
    model = join_slices(slices, outcome.head, overlapping=bool(outcome.result.gone))
    assert_signed(network.transcript, identities)
    return model, outcome.result, network.presence, transport, crashes


def assert_signed(transcript, identities):
    """What was recorded is what all parties say they saw, whatever became of their letters."""
    head = Head("a run", list(identities), "pad")
    found = audit(head, entries_of(transcript), identities=identities)
    assert found.signed == dict.fromkeys(identities, "verified")
    assert not {"seen", "signed", "covered"} & set(found.findings)


#: Per solver: settings, and what happens by chance. Where everybody is needed, one at a time is
#: away.
RUNS = {
    "hyfdca": (
        Settings(solver="hyfdca", lam=0.02, gap=None, iterations=16, certify_every=5),
        {**FATES, "fine": 400},
    ),
    "auto": (
        Settings(solver="auto", lam=0.02, gap=1e-6, patience=PATIENCE, when_missing="hyfdca"),
        {"fine": 10, "twice": 1},
    ),
}


# HyFDCA alone: in processes of their own in test_processes.py.
@pytest.mark.release
@pytest.mark.parametrize("solver", some_of(RUNS, "auto"))
def test_a_run_with_every_fault_equals_one_process_with_its_presence(solver, tmp_path):
    held, (settings, by_chance) = tiles(), RUNS[solver]
    model, result, presence, transport, crashes = run_with_faults(
        tmp_path, held, settings, by_chance
    )
    assert crashes >= 3
    assert any(moment.missing for moment in presence.moments)
    if solver == "auto":
        assert transport.envelopes["hyfdca"] > 0
        assert any("is back; going on with cutting-planes" in note for note in result.notes)
        assert result.certificate.gap < 1e-6
    alone = Federation(held, HOW).train(
        settings, through=lambda channel: ReplayedPresence(channel, presence)
    )
    np.testing.assert_array_equal(model.coef, alone.model.coef)
    np.testing.assert_array_equal(model.intercept, alone.model.intercept)
    assert result.certificate == alone.result.certificate
    assert result.notes == alone.result.notes
    for record, other in zip(result.history, alone.result.history, strict=True):
        assert (record.round_trips, record.present) == (other.round_trips, other.present)
        assert (record.primal, record.dual) == (other.primal, other.dual)


@pytest.mark.parametrize(
    "rule", [0.5, *before_release({"cyclic": 2}, {"trace": [["r1c1", "r1c2"], ["r2c1"]]})]
)
def test_who_takes_part_can_still_be_imposed_for_experiments(rule, tmp_path):
    held = tiles()
    settings = Settings(solver="hyfdca", lam=0.02, gap=None, iterations=9, participation=rule)
    model, result, presence, *_ = run_with_faults(tmp_path, held, settings, {"fine": 1})
    assert {record.present for record in result.history} <= {0, 1, 2}
    alone = Federation(held, HOW).train(
        settings, through=lambda channel: ReplayedPresence(channel, presence)
    )
    np.testing.assert_array_equal(model.coef, alone.model.coef)
    assert [r.present for r in result.history] == [r.present for r in alone.result.history]
