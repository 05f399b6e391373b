"""Whoever dies, in whatever phase: the model of an undisturbed run to the bit, or one sentence.

Every cell of the matrix has a bound in time, far below the set-up's timeout. The clock is played,
so that waits cost nothing.
"""

from __future__ import annotations

import json
import os
from functools import partial
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from member_sites import MemberSites
from played_cells import Cells, FakeClock, Frozen, Killed, Machine, Unheard
from test_secure_session import credential

from covering import cover
from weft.crypto.keys import ephemeral_keys
from weft.data.tile import Tile
from weft.errors import WeftError
from weft.federation.local_federation import Federation
from weft.federation.model import load_model
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing
from weft.network import clock as network_clock
from weft.network.coordinator_run import coordinate_run
from weft.network.envelope import End, Hello, Work, decode_envelope
from weft.network.kits.certificates import Authority
from weft.network.run_description import LinearTask
from weft.network.run_progress import Progress
from weft.network.run_results import RESULTS
from weft.network.site_endpoint import Site
from weft.network.site_models import ModelSavingParty
from weft.network.site_run import OpenedParty
from weft.network.transport_interface import Stopped
from weft.report.page.phase_names import activity_of
from weft.solvers.settings import Settings

HOST, PARTIES = "coordinator.example", ("north", "south")
SETUP, WORK, PATIENCE = 600.0, 60.0, 20.0
#: Seconds that a run may wait for one that comes back, and for one that does not.
BACK, GONE = 60.0, PATIENCE + 2 * WORK
TASK = LinearTask(
    name="a study",
    parties=PARTIES,
    settings=Settings(solver="lbfgs", loss="logistic", lam=0.1, gap=1e-2, patience=PATIENCE),
    preprocessing=Preprocessing(scaling="standard", confirmed=ONE_TABLE),
    setup=SETUP,
    timeout=WORK,
)
#: What a run does, by what its phases are for; whatever is not here belongs to the solver.
PHASES = {
    "Agreeing on terms and classes": "announcing",
    "Matching samples and columns": "matching",
    "Scaling columns": "scaling",
    "Training": "solver",
    "Handing out the model": "release",
}
#: What becomes of a party: killed before it works on the first envelope of a phase, in the middle
#: of that or after it; killed, and back at once, but slow to log in; killed in between, and gone
#: for good; or it stands still.
DEATHS = ("before", "within", "after", "slow login", "gone", "frozen")
#: Of the coordinator, before or after the parties have worked.
CRASHES = ("before", "after")
CELLS = [
    *(
        cell
        for cell in product(PARTIES, (*PHASES.values(), "closing"), DEATHS)
        # Nothing is worked on in closing.
        if cell[1:] != ("closing", "within")
    ),
    *product(["coordinator"], (*PHASES.values(), "closing"), CRASHES),
]


def phase_of(envelope):
    content = decode_envelope(envelope)
    if isinstance(content, Work):
        return PHASES.get(activity_of(content.parts[0][0]))
    return {Hello: "announcing", End: "closing"}.get(type(content))


def held():
    """One party has the labels and two columns, the other three columns of the same samples."""
    rng = np.random.default_rng(6)
    cells, ids = rng.normal(size=(30, 5)), [f"n{row:02}" for row in range(30)]
    labels = (cells.sum(axis=1) > 0).astype(int)
    return {
        "north": (Tile.make(ids, ["a", "b"], cells[:, :2], labels),),
        "south": (Tile.make(ids, ["c", "d", "e"], cells[:, 2:]),),
    }


class Mortal:
    """A party that may die in the middle of its work, having changed its state."""

    def __init__(self, party, machine):
        self._party, self._machine = party, machine

    def __getattr__(self, name):
        return getattr(self._party, name)

    def on(self, phase, message):
        reply = self._party.on(phase, message)
        if self._machine.dies:
            self._machine.dies = False
            raise Killed
        return reply


class Rehearsal:
    """A federation of two, on machines that may die."""

    def __init__(self, folder, clock, credentials, keys):
        self.folder, self.clock, self.credentials = folder, clock, credentials
        self.sites = MemberSites(folder, keys, held())
        self.machines = {name: self._machine(name) for name in PARTIES}
        self.struck = self.crashed = False
        self.progress = Progress("p-1")

    def _machine(self, name):
        def open_party(request):
            party = self.sites.members[name].open_party(request.plan, request.memory, request.run)
            saving = ModelSavingParty(party, self.folder / "saved" / name)
            return OpenedParty(Mortal(saving, machine))

        def open_site():
            return Site(self.folder / "sites" / name, open_party)

        machine = Machine(name, self.clock, open_site, self.credentials[name], HOST)
        machine.dies = False
        return machine

    def strike(self, role, phase, how):
        """Let something happen at the first envelope of a phase."""
        self.role, self.phase, self.how = role, phase, how
        for name, machine in self.machines.items():
            if role in (name, "coordinator"):
                machine.fate = partial(self._fate, machine)
                if how == "slow login":
                    machine.away, machine.login = 2.0, 4.0
                if how == "gone":
                    machine.away = 1e9

    def _fate(self, machine, envelope, answer):
        if phase_of(envelope) != self.phase or self.struck:
            return answer(envelope)
        self.struck = True
        if self.how == "within":
            machine.dies = True
        if self.how in ("within", "after"):
            reply = answer(envelope)
            if self.how == "within":
                return reply
        if self.role == "coordinator":
            self.crashed = True
            raise Unheard
        raise Frozen if self.how == "frozen" else Killed

    def run(self):
        """To its end, however often the coordinator is started; seconds that it took."""
        cells, began = Cells(self.machines.values()), self.clock.now()
        while True:
            self.crashed = False
            try:
                coordinate_run(
                    lambda parties: cells.transport(
                        self.credentials["coordinator"], lambda: self.crashed
                    ),
                    self.folder / "coordinator",
                    TASK,
                    self.progress,
                )
                break
            except Stopped:
                assert self.crashed
        return self.clock.now() - began

    def summary(self):
        path = self.folder / "coordinator" / RESULTS / "summary.json"
        return json.loads(path.read_text())

    def model(self):
        return load_model(self.folder / "saved" / "north" / "model.npz")


@pytest.fixture(scope="module")
def credentials():
    authority = Authority.new("a federation")
    found = {name: credential(authority, name) for name in PARTIES}
    return {**found, "coordinator": credential(authority, HOST, host=HOST)}


@pytest.fixture(scope="module")
def keys():
    return ephemeral_keys(PARTIES)


@pytest.fixture
def clock(monkeypatch):
    found = FakeClock()
    found.install(monkeypatch, network_clock)
    # Processes are killed here, not machines: what was written is there.
    for sync in ("fdatasync", "fsync"):
        monkeypatch.setattr(os, sync, lambda file: None)
    yield found
    found.stop()


@pytest.fixture
def rehearsal(tmp_path, clock, credentials, keys):
    found = Rehearsal(tmp_path, clock, credentials, keys)
    yield found
    for machine in found.machines.values():
        machine.close()


@pytest.fixture(scope="module")
def undisturbed():
    return Federation(held(), TASK.preprocessing).train(TASK.settings).model


#: Where a site that was slow to log in made runs wait for the whole set-up timeout.
FOUND = ("north", "matching", "slow login")


@cover(("role", "phase", "how"), [FOUND, *(cell for cell in CELLS if cell != FOUND)])
def test_every_death_ends_in_the_same_bits_or_one_sentence(
    rehearsal, undisturbed, role, phase, how
):
    rehearsal.strike(role, phase, how)
    if (phase, how) == ("release", "gone"):
        # The model lacks what the party would have sealed, which the run says.
        assert rehearsal.run() < GONE
        assert any(role in note for note in rehearsal.summary()["notes"])
    elif (phase, how) == ("closing", "gone"):
        assert rehearsal.run() < BACK
        assert any(
            note.startswith(f"{role} does not know yet that the run is over")
            for note in rehearsal.summary()["notes"]
        )
    elif how == "gone":
        with pytest.raises(WeftError) as told:
            rehearsal.run()
        assert role in str(told.value)
        assert "\n" not in str(told.value)
        assert rehearsal.clock.now() - 1000.0 < GONE
    else:
        assert rehearsal.run() < BACK
        found = rehearsal.model()
        assert found.coef.tobytes() == undisturbed.coef.tobytes()
        assert found.intercept.tobytes() == undisturbed.intercept.tobytes()
    assert rehearsal.struck


def test_a_run_says_for_whom_it_waits_in_which_phase_and_until_when(rehearsal):
    rehearsal.strike("south", "matching", "gone")
    seen = []
    sleep = network_clock.sleep

    def looking(seconds):
        seen.append(rehearsal.progress.since().wait)
        sleep(seconds)

    with patch.object(network_clock, "sleep", looking), pytest.raises(WeftError):
        rehearsal.run()
    told = [wait for wait in seen if wait is not None and wait.why]
    assert {(wait.phase, *wait.parties, wait.limit) for wait in told} == {
        ("match.tokens", "south", int(PATIENCE))
    }
    assert {wait.why for wait in told} == {"is not connected"}
    seconds = [wait.seconds for wait in told]
    assert seconds == sorted(seconds)
    assert seconds[0] <= 3 < PATIENCE - 4 < seconds[-1]
    assert rehearsal.progress.since().wait is not None
    rehearsal.progress.end("failed", "south is gone")
    assert rehearsal.progress.since().wait is None
