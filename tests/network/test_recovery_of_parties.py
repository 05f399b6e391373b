"""Real parties over an unreliable network: the model of one process with the same presence."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest
from toys import FATES, Crashed, Killed, Place, UnreliablePost

from weft import coordination
from weft.algorithms.settings import Settings
from weft.crypto.secrets import Identity
from weft.data import SPLITS, Table, load
from weft.errors import ProtocolError
from weft.federation import Federation, Preparation
from weft.guards import OPEN
from weft.keys import ephemeral_keys
from weft.network import channel, living
from weft.network.channel import NetworkChannel
from weft.network.journal import Journal
from weft.network.memory import FileMemory
from weft.network.presence import Attended
from weft.party import Party
from weft.release.slices import join_slices, open_slice

HOW = Preparation(intercept=True, scaling="standard", unit_rows=True)
#: A run of this kind has some hundred letters.
RARE = {**FATES, "fine": 400}


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Look for parties that are away every other millisecond, and do not wait for the disk."""
    for name in ("_FIRST", "_LONGEST", "_BUSY"):
        monkeypatch.setattr(living, name, 0.002)
    monkeypatch.setattr(channel, "_PAUSE", 0.002)
    monkeypatch.setattr(coordination, "_PAUSE", 0.002)
    for sync in ("fdatasync", "fsync"):
        monkeypatch.setattr(os, sync, lambda file: None)


class Post(UnreliablePost):
    def fates_of(self, work):
        return RARE


class Mortal:
    """A party that can be told to die in the middle of its work."""

    def __init__(self, party):
        self._party, self.dies = party, False
        self.replaying, self.close = party.replaying, party.close

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
        def make(opening):
            memory = FileMemory(opening.folder / "memory")
            return Mortal(
                Party(
                    name, held[name], keys=keys[name], cipher=settings.cipher, terms=OPEN,
                    readers={"here": reader.public}, memory=memory,
                )
            )  # fmt: skip

        return make

    identities = {name: keys[name].identity.public for name in held}
    return [Place(name, folder / name, maker(name)) for name in held], identities


def run_with_faults(folder, held, settings, seed):
    reader, run = Identity.new(), bytes(range(16))
    sites, identities = places(folder, held, reader, settings)
    post = Post(sites, seed)
    crashes = 0
    while True:
        journal = Journal(folder / "journal")
        network = NetworkChannel(post, "run-1", journal)
        try:
            network.hello({"seed": seed})
            outcome = coordination.coordinate(network, HOW, settings, run=run)
            break
        except Crashed:
            crashes += 1
        except ProtocolError as error:
            # The run stopped where nobody may be missing: it is resumed, as after a crash.
            if not re.search("needs every party|no party answered", str(error)):
                raise
        finally:
            network.close()
            journal.close()
    slices = [
        open_slice(letter, party, reader, identities[party], run)
        for party, letter in outcome.letters["here"].items()
    ]
    model = join_slices(slices, outcome.head, overlapping=bool(outcome.result.gone))
    return model, outcome.result, network.presence, post.met, crashes


SETTINGS = {
    "hyfdca": Settings(solver="hyfdca", lam=0.02, gap=None, iterations=25, certify_every=5),
    "auto": Settings(lam=0.02, gap=1e-3, patience=0.02, iterations=40),
}


@pytest.mark.parametrize("solver", SETTINGS)
def test_a_run_with_every_fault_equals_one_process_with_its_presence(solver, tmp_path):
    held, met, crashed, missed = tiles(), set(), 0, 0
    settings = SETTINGS[solver]
    for seed in (0, 2):
        folder = tmp_path / str(seed)
        model, result, presence, fates, crashes = run_with_faults(folder, held, settings, seed)
        alone = Federation(held, HOW).train(settings, through=lambda c, p=presence: Attended(c, p))
        np.testing.assert_array_equal(model.coef, alone.model.coef)
        np.testing.assert_array_equal(model.intercept, alone.model.intercept)
        assert result.certificate == alone.result.certificate
        assert result.notes == alone.result.notes
        for record, other in zip(result.history, alone.result.history, strict=True):
            assert (record.round_trips, record.present) == (other.round_trips, other.present)
            assert (record.primal, record.dual) == (other.primal, other.dual)
        met |= fates
        crashed += crashes
        missed += sum(bool(moment.missing) for moment in presence.moments)
    assert crashed > 2
    assert missed > 5
    assert met > {"lost", "unheard", "killed before", "killed within", "killed after"}
