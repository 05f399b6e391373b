"""``auto`` settles on Newton's method in the span over a network as in one process, and says so.

Parties come and go, and have many samples. What sites allow counts, and who is killed after the
solver was settled goes on with the same one.
"""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pandas as pd
import pytest
from member_sites import AGREES, MemberSites
from toys import Crashed, MemoryTransport

from weft.crypto.keys import ephemeral_keys
from weft.data import Tile
from weft.errors import WeftError
from weft.federation.local_federation import Federation
from weft.federation.model import load_model
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing
from weft.guards.privacy_terms import OPEN, Terms
from weft.network.envelope_bytes import Work
from weft.network.study_check_job import read_check
from weft.network.submitted_task import CheckTask, LinearTask
from weft.report.history_table import history_frame
from weft.solvers.run_settings import Settings
from weft.solvers.subspace import loss_points_and_directions_limit
from weft_examples.local_federation_processes import FederationProcesses

PARTIES = ("north", "south", "west")
KEYS = ephemeral_keys(PARTIES)
#: At each party enough samples that second moments of few vectors are told.
EACH, LEAST = 1200, 2
TERMS = Terms(min_batch=LEAST, allow_exposure=True)
HOW = Preprocessing(intercept=True, confirmed=ONE_TABLE)
SETTINGS = Settings(
    lam=1e-2, loss="logistic", solver="auto", participation=0.5, gap=1e-3, patience=30.0
)
SETTLED = "solver: span-newton, since parties come and go"
#: What a run costs in seconds and bytes is that of its process, and of its network.
COSTS = {"bytes_down", "bytes_up", "compute_seconds", "wall_seconds"}


def by_rows():
    random = np.random.default_rng(4)
    block = random.standard_normal((EACH * len(PARTIES), 4))
    labels = (block @ random.standard_normal(4) + random.logistic(size=len(block)) > 0).astype(int)
    parts = np.split(np.arange(len(block)), len(PARTIES))
    return {
        name: (Tile.make([f"s{row:05}" for row in rows], list("abcd"), block[rows], labels[rows]),)
        for name, rows in zip(PARTIES, parts, strict=True)
    }


@pytest.fixture(scope="module")
def alone():
    """The run in one process."""
    return Federation(by_rows(), HOW, terms=TERMS, keys=KEYS).train(SETTINGS)


def sites(folder, **more):
    return MemberSites(folder, KEYS, by_rows(), terms=TERMS, **more)


def task(kind=LinearTask, **changes):
    told = {"settings": SETTINGS, "preprocessing": HOW, **changes}
    return kind(name="by rows", parties=PARTIES, **told)


def history_of(frame):
    """Without what matching took, which goes through key holders where a roster names some."""
    found = frame[[name for name in frame if name not in COSTS]]
    return found.assign(round_trips=found["round_trips"] - found["round_trips"].iloc[0])


def assert_same(results, model, alone):
    """Solver, model and history are those of one process, to the bit."""
    summary = json.loads((results / "summary.json").read_text())
    assert summary["solver"] == alone.settings.solver == "span-newton"
    assert summary["notes"][0].startswith(SETTLED)
    assert model.coef.tobytes() == alone.model.coef.tobytes()
    assert model.intercept.tobytes() == alone.model.intercept.tobytes()
    expected = history_of(history_frame(alone.result.history))
    found = history_of(pd.read_parquet(results / "history.parquet"))
    pd.testing.assert_frame_equal(found, expected[list(found)], check_exact=True)


class Struck(MemoryTransport):
    """All die once west has told its first table of losses."""

    struck = 0

    def _deliver(self, party, envelope):
        answer = super()._deliver(party, envelope)
        sent = self.sent[-1][1]
        begins = isinstance(sent, Work) and any(n == "subspace.search" for n, _ in sent.parts)
        if party == "west" and begins and not Struck.struck:
            Struck.struck += 1
            for place in self.places.values():
                place.site.close()
            raise Crashed
        return answer


def test_a_run_over_a_network_settles_as_in_one_process(tmp_path, alone):
    found = sites(tmp_path)
    results = found.ask(task())
    assert_same(results, load_model(tmp_path / "saved" / "north" / "model.npz"), alone)
    told = read_check(sites(tmp_path / "check").ask(task(CheckTask)))
    assert (told["solver"], told["refusals"]) == ("span-newton", [])
    assert told["reason"].startswith(SETTLED)


def test_who_is_killed_once_the_solver_is_settled_goes_on_with_it(tmp_path, alone):
    found, Struck.struck = sites(tmp_path), 0
    with pytest.raises(Crashed):
        found.ask(task(), Struck)
    results = found.ask(task(), Struck)
    assert Struck.struck == 1
    assert_same(results, load_model(tmp_path / "saved" / "north" / "model.npz"), alone)


def test_what_sites_allow_counts_before_the_solver_is_settled(tmp_path):
    """Whoever listed solvers before there was another one takes part as before."""
    listed = msgspec.structs.replace(AGREES, solvers=("cutting-planes", "lbfgs"))
    limits = {"south": listed}
    results = sites(tmp_path, limits=limits).ask(task())
    assert json.loads((results / "summary.json").read_text())["solver"] == "lbfgs"
    told = read_check(sites(tmp_path / "check", limits=limits).ask(task(CheckTask)))
    assert (told["solver"], told["refusals"]) == ("lbfgs", [])


def test_a_coordinator_that_settles_on_what_a_site_does_not_allow_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "weft.federation.participation_terms_and_classes.coordinator.in_all_lists",
        lambda lists: list(lists) and None,
    )
    listed = msgspec.structs.replace(AGREES, solvers=("cutting-planes", "lbfgs"))
    with pytest.raises(WeftError, match="south refuses solver 'span-newton', since only"):
        sites(tmp_path, limits={"south": listed}).ask(task())


def test_which_solver_it_will_be_does_not_tell_the_size_of_a_small_group(tmp_path, monkeypatch):
    """South's samples would be enough with those that it shares with west, and are not without."""
    monkeypatch.setattr(loss_points_and_directions_limit, "LEAST_DIRECTIONS", 2)
    terms = msgspec.structs.replace(OPEN, min_batch=10)
    told = []
    for small in (3, 4):
        shared, random = [f"b{row}" for row in range(small)], np.random.default_rng(1)
        ids = {
            "north": [f"n{row:02}" for row in range(80)],
            "south": [*(f"s{row:02}" for row in range(56)), *shared],
            "west": [*(f"w{row:02}" for row in range(80)), *shared],
        }
        held = {
            name: (
                Tile.make(
                    rows,
                    [f"{name} {column}" for column in "ab"],
                    random.normal(size=(len(rows), 2)),
                    # What two parties have labels of must be the same.
                    [len(row) % 2 if row in shared else int(row[1:]) % 2 for row in rows],
                ),
            )
            for name, rows in ids.items()
        }
        how = Preprocessing(confirm_separate_ids=True, scaling="standard")
        found = MemberSites(tmp_path / str(small), KEYS, held, terms=terms)
        told.append(read_check(found.ask(task(CheckTask, preprocessing=how))))
    assert told[0] == told[1]
    both = ["south", "west"]
    assert {"holders": both, "labels": both, "samples": "<10"} in told[0]["groups"]
    assert told[0]["solver"] == "lbfgs"


CONFIG = """name = "by rows"
[data]
intercept = true
scaling = "none"
confirmed = {confirmed}
[model]
loss = "logistic"
lambda = {lam}
[solver]
participation = {participation}
gap = {gap}
when_missing = "stop"
[privacy]
min_batch = {least}
allow_exposure = true
[network]
timeout = 60.0
{parties}
"""


@pytest.mark.release
def test_a_run_of_real_processes_settles_as_in_one_process(tmp_path, alone):
    """Without processes: above."""
    parties = "\n".join(f'[[party]]\nname = "{name}"' for name in PARTIES)
    config = tmp_path / "rows.toml"
    config.write_text(
        CONFIG.format(
            confirmed=list(ONE_TABLE),
            lam=SETTINGS.lam,
            participation=SETTINGS.participation,
            gap=SETTINGS.gap,
            least=LEAST,
            parties=parties,
        )
    )
    terms = msgspec.structs.replace(TERMS, matching="oprf")
    with FederationProcesses(tmp_path / "scene", by_rows(), terms=terms) as scene:
        scene.start_all(seconds=240.0)
        scene.submit(config, tmp_path / "results")
        assert scene.wait("submit", 300) == 0, scene.log("submit")
    assert not list(scene.processes())
    assert_same(tmp_path / "results", load_model(tmp_path / "results" / "model.npz"), alone)
