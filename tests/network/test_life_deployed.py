"""A federation of processes that grows, changes keys and moves; every run gives the right bits."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager

import pandas as pd
import pytest
from founded import ANNA, Founded

from weft.config.read_config import read_config
from weft.data import Tile
from weft.federation.local_federation import Federation
from weft.federation.model import load_model
from weft_examples.local_federation_processes import free_port
from weft_examples.process_group import ProcessGroup

THREE, FOUR = ("north", "south", "west"), ("north", "south", "west", "east")
CONFIG = """name = "{name}"
[data]
scaling = "standard"
[model]
loss = "logistic"
lambda = 0.1
[solver]
name = "lbfgs"
gap = 0.05
"""


class Machines(ProcessGroup):
    """The processes of a federation, each with its own kit."""

    def __init__(self, founded):
        (founded.folder / "logs").mkdir()
        super().__init__(founded.folder / "logs")
        self.founded = founded

    @contextmanager
    def running(self, names, roster, *options, keys=None):
        """Coordinator and sites, until the end of the block."""
        since = len(self.log("coordinator"))
        self.run("coordinator", "serve", str(self.founded.kit("coordinator")), *options)
        for name in names:
            folder = (keys or {}).get(name, self.founded.keys(name))
            table = self.founded.folder / name / "table.csv"
            self.run(
                name, "join", str(self.founded.kit(name)), "--data", str(table), "--id", "id",
                "--label", "y", "--keys", str(folder), "--roster", str(roster),
            )  # fmt: skip
        self.wait_until(
            lambda: [
                n for n in names if f" {n} is connected" not in self.log("coordinator")[since:]
            ],
            120,
            needed=["coordinator"],
        )
        yield
        self.stop_all()

    def submit(self, run, names):
        config = self.founded.folder / f"{run}.toml"
        parties = "".join(f'[[party]]\nname = "{name}"\n' for name in names)
        config.write_text(CONFIG.format(name=run) + parties)
        kit, out = self.founded.kits / ANNA, self.founded.folder / "results" / run
        self.run(run, "submit", str(kit), str(config), "--out", str(out))

    def hear(self, name, words):
        """Wait until a process has said something."""
        self.wait_until(lambda: [] if words in self.log(name) else [name], 60, needed=[])

    def coef(self, run):
        assert self.wait(run, 300) == 0, self.log(run)
        (folder,) = (self.founded.kit("north") / "weft" / "models").glob(f"{run}-*")
        return load_model(folder / "model.npz").coef.tobytes()


def in_one_process(founded, names, run):
    """What the same tables give where all parties are in one process."""
    held = {}
    for name in names:
        frame = pd.read_csv(founded.folder / name / "table.csv")
        columns = [column for column in frame if column not in ("id", "y")]
        block, labels = frame[columns].to_numpy(), frame["y"].to_numpy()
        held[name] = (Tile.make(frame["id"].to_list(), columns, block, labels),)
    config = read_config(founded.folder / f"{run}.toml", deployed=True)
    trained = Federation(held, config.preprocessing()).train(config.settings)
    return trained.model.coef.tobytes()


@pytest.mark.release
def test_a_federation_grows_changes_keys_and_moves(tmp_path, weft):
    """With every change, the same without processes is in ``test_federation_life.py``."""
    founded = Founded(tmp_path, weft, free_port())
    roster = founded.found(*THREE)
    with Machines(founded) as machines:
        two_at_once(machines, roster)
        queue_outlives_the_coordinator(machines, roster)
        roster, keys = grows_and_changes_keys(founded)
        with machines.running(FOUR, roster, keys=keys):
            machines.submit("grown", FOUR)
            grown = machines.coef("grown")
            assert grown == in_one_process(founded, FOUR, "grown")
        moves(founded)
        with machines.running(FOUR, roster, keys=keys):
            machines.submit("moved", FOUR)
            assert machines.coef("moved") == grown
        assert not list(machines.processes())
    told = json.loads(founded.weft("prune", founded.kit("coordinator"), "--keep", "1", "--json"))
    assert sorted(run.split("-")[0] for run in told["deleted"]) == [
        "first", "grown", "one", "other", "second", "third",
    ]  # fmt: skip
    assert told["bytes"] > 6 * 20_000


def two_at_once(machines, roster):
    """Two runs that need not wait for each other."""
    with machines.running(THREE, roster, "--at-once", "2"):
        for run in ("one", "other"):
            machines.submit(run, THREE)
        expected = in_one_process(machines.founded, THREE, "one")
        assert machines.coef("one") == expected
        assert machines.coef("other") == expected


def queue_outlives_the_coordinator(machines, roster):
    """Of three runs, one is taken out of the queue, and one begins after a restart."""
    with machines.running(THREE, roster, "--at-once", "1"):
        for run in ("first", "second", "third"):
            machines.submit(run, THREE)
            machines.hear(run, " with ")
        machines.hear("third", " waits: ")
        kit = str(machines.founded.kits / ANNA)
        machines.run("stop", "stop", kit, named(machines, "third"))
        assert machines.wait("stop", 60) == 0, machines.log("stop")
        assert machines.wait("third", 60) == 2
        assert "was taken out of the queue" in machines.log("third")
        machines.kill("coordinator")
        machines.run("coordinator", "serve", str(machines.founded.kit("coordinator")))
        assert machines.coef("first") == machines.coef("second")


def named(machines, run):
    """The full name of a run, once its submitter has said it."""
    found = re.search(rf"^run ({run}-\w+) with", machines.log(run), re.MULTILINE)
    return found.group(1) if found else ""


def grows_and_changes_keys(founded):
    """East comes, and south has new keys; the new roster, and where keys lie now."""
    founded.card("east")
    founded.card("south", "keys-2")
    before, roster = founded.folder / "roster-1.json", founded.folder / "roster-2.json"
    cards = [founded.folder / "east" / "keys.json", founded.folder / "south" / "keys-2.json"]
    founded.weft(
        "federation", "amend", before, roster, *cards, "--labels", "east", "--model", "east"
    )
    keys = {"south": founded.folder / "south" / "keys-2"}
    founded.sign(roster, FOUR, keys)
    founded.hand_out_secret(roster, FOUR, keys)
    request, requests = founded.request("east")
    plan = founded.plan(FOUR)
    founded.weft("federation", "add", plan, "east", "--out", founded.kits, "--requests", requests)
    founded.install("east", request)
    founded.table("east", 3)
    return roster, keys


def moves(founded):
    """The coordinator gets another port, and with it a new certificate; all others follow."""
    founded.port = free_port()
    (founded.kits / "coordinator.zip").rename(founded.kits / "coordinator-1.zip")
    request, requests = founded.request("coordinator", 2)
    plan = founded.plan(FOUR)
    founded.weft("federation", "move", plan, "--out", founded.kits, "--requests", requests)
    archive, kit = founded.kits / "coordinator.zip", founded.kit("coordinator")
    founded.weft("federation", "install", archive, "--request", request, "--renew", kit)
    for follower in (*(founded.kit(name) for name in FOUR), founded.kits / ANNA):
        founded.weft("federation", "follow", follower, founded.kits / "moved-1.json")
