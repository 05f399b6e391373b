"""Federations of two whose machines may die in some phase, under a played clock. Not a test itself.

What a run is about is a :class:`Study`: a task, the tables of both parties and what they agreed to.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from member_sites import AGREES, MemberSites
from played_cells import Cells, FakeClock, Frozen, Killed, Machine, Unheard
from test_secure_session import credential

from weft.data.tile import Tile
from weft.federation.model import load_model
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing
from weft.guards.privacy_terms import OPEN, Terms
from weft.network import clock as network_clock
from weft.network.coordinator_run import coordinate_run
from weft.network.envelope_bytes import End, Hello, Work, decode_envelope
from weft.network.kits.certificates import Authority
from weft.network.model_saving_party import ModelSavingParty
from weft.network.party_interface import OpenedParty
from weft.network.run_progress import Progress
from weft.network.run_results import RESULTS
from weft.network.site_answers_envelopes import Site
from weft.network.submitted_task import LinearTask, Task
from weft.network.transport_interface import Stopped
from weft.privacy.agreement import Limits
from weft.report.page.phase_names import activity_of
from weft.solvers.run_settings import Settings

HOST, PARTIES = "coordinator.example", ("north", "south")
SETUP, WORK, PATIENCE = 600.0, 60.0, 20.0
#: Seconds that a run may wait for one that comes back, and for one that does not.
BACK, GONE = 60.0, PATIENCE + 2 * WORK
SCALED = Preprocessing(scaling="standard", confirmed=ONE_TABLE)
#: What a run does, by what its phases are for.
PHASES = {
    "Agreeing on terms and classes": "announcing",
    "Matching samples and columns": "matching",
    "Scaling columns": "scaling",
    "Setting up the solver": "setting up",
    "Training": "solver",
    "Certifying the model": "certifying",
    "Handing out the model": "release",
    "Looking at a run beforehand": "looking",
    "Predicting together": "predicting",
}
#: Phases of networks, which go by their own names.
NEURAL_PHASES = {
    "neural.plan": "planning",
    "neural.scale": "scaling",
    "neural.build": "setting up",
    "neural.train": "solver",
    "neural.finish": "release",
}
#: What becomes of a party: killed before it works on the first envelope of a phase, in the middle
#: of that or after it; killed, and back at once, but slow to log in; killed in between, and gone
#: for good; or it stands still.
DEATHS = ("before", "within", "after", "slow login", "gone", "frozen")
#: Of the coordinator, before or after the parties have worked.
CRASHES = ("before", "after")


@dataclass(frozen=True)
class Study:
    """What a run is about, and what the parties bring."""

    task: Task
    held: dict
    terms: Terms = OPEN
    limits: Limits = AGREES
    new: dict | None = None
    models: dict | None = None


def training(settings, **options):
    """The task of a run that trains, patient for some seconds; ``options`` of a settings."""
    told = Settings(patience=PATIENCE, **{"lam": 0.1, **settings})
    fields = {"preprocessing": SCALED, **options}
    return LinearTask(
        name="a study", parties=PARTIES, settings=told, setup=SETUP, timeout=WORK, **fields
    )


def by_columns(outcome=lambda cells: (cells.sum(axis=1) > 0).astype(int)):
    """One party has the labels and two columns, the other three columns of the same samples."""
    rng = np.random.default_rng(6)
    cells, ids = rng.normal(size=(30, 5)), [f"n{row:02}" for row in range(30)]
    return {
        "north": (Tile.make(ids, ["a", "b"], cells[:, :2], outcome(cells)),),
        "south": (Tile.make(ids, ["c", "d", "e"], cells[:, 2:]),),
    }


def cells_of(phases):
    """Who dies in which phase, and how; nothing is worked on in closing."""
    found = [
        *product(PARTIES, phases, DEATHS),
        *product(["coordinator"], phases, CRASHES),
    ]
    return [cell for cell in found if cell[1:] != ("closing", "within")]


def phase_of(envelope):
    content = decode_envelope(envelope)
    if isinstance(content, Work):
        name = content.parts[0][0]
        return NEURAL_PHASES.get(name) or PHASES.get(activity_of(name))
    return {Hello: "announcing", End: "closing"}.get(type(content))


def new_credentials():
    authority = Authority.new("a federation")
    found = {name: credential(authority, name) for name in PARTIES}
    return {**found, "coordinator": credential(authority, HOST, host=HOST)}


@contextmanager
def playing(monkeypatch):
    """The clock of a rehearsal; processes are killed in it, not machines: files stay."""
    found = FakeClock()
    found.install(monkeypatch, network_clock)
    for sync in ("fdatasync", "fsync"):
        monkeypatch.setattr(os, sync, lambda file: None)
    try:
        yield found
    finally:
        found.stop()


class Mortal:
    """A party that may die in the middle of its work, having changed its state."""

    def __init__(self, party, machine, keep):
        self._party, self._machine, self._keep = party, machine, keep

    def __getattr__(self, name):
        return getattr(self._party, name)

    def on(self, phase, message):
        reply = self._party.on(phase, message)
        if self._machine.dies:
            self._machine.dies = False
            raise Killed
        if phase.name == "release":
            # One that is killed now never hears that the run is over.
            self._keep()
        return reply


class Rehearsal:
    """A federation of two, on machines that may die."""

    def __init__(self, folder, clock, credentials, keys, study):
        self.folder, self.clock, self.credentials = folder, clock, credentials
        self.keys, self.study = keys, study
        more = {
            name: getattr(study, name)
            for name in ("new", "models")
            if getattr(study, name) is not None
        }
        limits = dict.fromkeys(PARTIES, study.limits)
        self.sites = MemberSites(folder, keys, study.held, terms=study.terms, limits=limits, **more)
        self.machines = {name: self._machine(name) for name in PARTIES}
        self.struck = self.crashed = False
        self.progress = Progress("p-1")
        #: What the parties drew at random.
        self.drawn = {}

    def _machine(self, name):
        def open_party(request):
            def keep():
                memory = request.memory
                self.drawn[name] = {key: memory.get(key) for key in memory}

            party = self.sites.members[name].open_party(request.plan, request.memory, request.run)
            saving = ModelSavingParty(party, self.folder / "saved" / name)
            return OpenedParty(Mortal(saving, machine, keep))

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
                    self.study.task,
                    self.progress,
                )
                break
            except Stopped:
                assert self.crashed
        return self.clock.now() - began

    @property
    def results(self):
        return self.folder / "coordinator" / RESULTS

    def summary(self):
        return json.loads((self.results / "summary.json").read_text())

    def model(self, reader="north"):
        return load_model(self.folder / "saved" / reader / "model.npz")

    def close(self):
        for machine in self.machines.values():
            machine.close()
