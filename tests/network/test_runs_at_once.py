"""Two runs at the same sites at once: each gives what it gives alone, and budgets count once."""

from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import pytest
from member_sites import MemberSites
from toys import MemoryTransport

from weft.crypto.keys import ephemeral_keys
from weft.data import Tile
from weft.errors import WeftError
from weft.federation.model import load_model
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.model_noise_size import ModelNoise
from weft.network import coordinator_run
from weft.network.coordinator_run import coordinate_run
from weft.network.envelope_bytes import Worked, decode_envelope, decode_reply
from weft.network.model_saving_party import ModelSavingParty
from weft.network.run_progress import Progress
from weft.network.submitted_task import LinearTask
from weft.privacy.agreement import Limits
from weft.privacy.ledger.ledger_file import Book
from weft.protocol import unpack
from weft.solvers.run_settings import Settings

CUTS = {"north": (0, 2), "south": (2, 4), "west": (4, 6)}
RUNS = {"a-1": "lbfgs", "b-1": "hyfdca"}
NOISE = ModelNoise(epsilon=1.0, delta=1e-5, row_norm=1.0)
NOISY = Settings(lam=0.1, loss="logistic", gap=1e-9, solver="lbfgs", noise=NOISE)


def tiles():
    rng = np.random.default_rng(3)
    cells = rng.uniform(-0.3, 0.3, size=(40, 6))
    labels = (cells.sum(axis=1) + rng.normal(size=40) / 9 > 0).astype(int)
    ids = [f"n{row}" for row in range(40)]
    return {
        name: (Tile.make(ids, list("abcdef"[start:stop]), cells[:, start:stop], labels),)
        for name, (start, stop) in CUTS.items()
    }


def task(settings, scaling="none"):
    preprocessing = Preprocessing(scaling=scaling)
    return LinearTask(name="t", parties=tuple(CUTS), settings=settings, preprocessing=preprocessing)


def plain(run):
    return task(Settings(lam=0.1, loss="logistic", gap=0.05, solver=RUNS[run]), "standard")


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Runs in which a party died are taken up again at once."""
    monkeypatch.setattr(coordinator_run, "_WAIT", 0.01)


@pytest.fixture(scope="module")
def keys():
    return ephemeral_keys(tuple(CUTS))


class Turns:
    """Runs that come to their letters in turn, as long as there are two of them."""

    def __init__(self, *runs):
        self.change = threading.Condition()
        self.under_way, self.turn = list(runs), runs[0]
        self.taken = []

    def take(self, run):
        with self.change:
            assert self.change.wait_for(lambda: self.turn == run, 60)
            self.taken.append(run)

    def over(self, run, *, done=False):
        with self.change:
            place = self.under_way.index(run)
            self.turn = self.under_way[(place + 1) % len(self.under_way)]
            if done:
                self.under_way.remove(run)
            self.change.notify_all()


class InTurn(MemoryTransport):
    """Letters of one run of several; ``fates``: what becomes of some, by their number."""

    def __init__(self, places, run, turns, fates):
        super().__init__(places)
        self.run, self.turns, self.fates = run, turns, fates
        self.replies = []

    def fate(self, party, envelope):
        number = getattr(decode_envelope(envelope), "number", None)
        return self.fates.pop((party, number), "fine")

    def send(self, envelopes, timeout):
        self.turns.take(self.run)
        try:
            answers = super().send(envelopes, timeout)
        finally:
            self.turns.over(self.run)
        self.replies += [answer for answer in answers.values() if isinstance(answer, bytes)]
        return answers

    def hidden(self):
        """The ends of all long values that parties sent up."""
        worked = [found for found in map(decode_reply, self.replies) if isinstance(found, Worked)]
        replies = [unpack(packed) for found in worked for packed in found.replies]
        values = [value for reply in replies for value in reply.values()]
        return {value[-24:] for value in values if isinstance(value, bytes) and len(value) >= 80}


class Both(MemberSites):
    """Sites that are there for several runs."""

    def place(self, name):
        place = super().place(name)

        def make(request):
            party = self.members[name].open_party(request.plan, request.memory, request.run)
            return ModelSavingParty(party, self.folder / "saved" / name / request.run)

        place.make = make
        return place

    def run(self, tasks, fates=None):
        """Bring runs to their ends together; what each failed with, and whose turn it was."""
        places = [self.place(name) for name in self.names]
        turns, failed, self.posts = Turns(*tasks), {}, {}

        def bring(run, task):
            post = self.posts[run] = InTurn(places, run, turns, (fates or {}).get(run, {}))
            try:
                coordinate_run(
                    lambda _: post, self.folder / "coordinator" / run, task, Progress(run)
                )
            except WeftError as error:
                failed[run] = str(error)
            finally:
                turns.over(run, done=True)

        threads = [threading.Thread(target=bring, args=one) for one in tasks.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        return failed, turns.taken

    def bits(self, name, run):
        model = load_model(self.folder / "saved" / name / run / "model.npz")
        return model.coef.tobytes(), [part.tobytes() for part in model.scaling]


@pytest.fixture(scope="module")
def alone(tmp_path_factory, keys):
    """The bits of each run where the other is not there."""
    found = {}
    for run in RUNS:
        sites = Both(tmp_path_factory.mktemp(run), keys, tiles())
        assert sites.run({run: plain(run)})[0] == {}
        found[run] = sites.bits("north", run)
    return found


#: One site dies in one run over a letter, and with it its part in the other run.
DEATHS = {"a-1": {("south", 25): "killed within"}, "b-1": {("west", 40): "killed after"}}


@pytest.mark.parametrize(
    "fates",
    [pytest.param({}, id="fine", marks=pytest.mark.release), pytest.param(DEATHS, id="sites die")],
)
def test_two_runs_at_once_give_the_bits_of_each_alone(tmp_path, keys, alone, fates):
    sites = Both(tmp_path, keys, tiles())
    planned = {run: dict(met) for run, met in fates.items()}
    failed, taken = sites.run({run: plain(run) for run in RUNS}, planned)
    assert failed == {}
    assert not any(planned.values())
    # They went on side by side: of the shorter one's letters, each stood between two of the other.
    changes = sum(one != other for one, other in pairwise(taken))
    assert changes > 40
    for run in RUNS:
        for name in CUTS:
            assert sites.bits(name, run) == alone[run]
    for name in CUTS:
        booked = Book(tmp_path / f"ledger-{name}", name).read()
        assert len(booked.runs) == 2
        assert all(run.ended for run in booked.runs)
        assert not list((tmp_path / "sites" / name / "runs").iterdir())


def test_two_runs_at_once_do_not_spend_one_budget_twice(tmp_path, keys):
    """Each alone would fit. Both pass the check before training; the first to release wins."""
    limits = dict.fromkeys(CUTS, Limits(kinds=("linear",), most_epsilon=1.5))
    sites = Both(tmp_path, keys, tiles(), limits=limits)
    failed, _ = sites.run({run: task(NOISY) for run in RUNS})
    one, other = (sites.posts[run].hidden() for run in RUNS)
    # The same task, parties and keys, and nowhere the same pad.
    assert min(len(one), len(other)) > 30
    assert not one & other
    (why,) = failed.values()
    assert "goes beyond its budget" in why
    for name in CUTS:
        spent = Book(tmp_path / f"ledger-{name}", name).read().spent()
        assert spent[0] <= 1.5
    released = [path.parent.name for path in (tmp_path / "saved").rglob("model.npz")]
    assert set(released) == set(RUNS) - set(failed)
