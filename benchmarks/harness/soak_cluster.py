"""A federation that runs of every method go through, and the same runs in one process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from harness.cut_proxy import CutProxy
from weft.config.read_config import Config, read_config
from weft.crypto.keys import load_all
from weft.data import Tile, load
from weft.federation.local_federation import Federation, Trained
from weft.guards.privacy_terms import OPEN
from weft.network.kits.nvflare_settings_of_kit import COORDINATOR
from weft.network.record_and_replay_absences import Presence, ReplayedPresence
from weft.privacy.agreement import Consent, read_roster
from weft.protocol import Channel
from weft_examples.local_federation_processes import FederationProcesses, free_port

#: Rows and columns of a real table that each party holds.
CUTS = {
    "north": ((0, 120), (0, 6)),
    "south": ((0, 120), (6, 12)),
    "west": ((100, 180), (0, 12)),
    "east": ((120, 180), (0, 6)),
}
#: Both ways; by rows; by columns.
BOTH, ROWS, COLUMNS = ("north", "south", "west"), ("north", "east"), ("north", "south")
LAM, GAP = 0.05, 1e-3
#: Seconds for an answer. A site starts a process where it has rested: seconds of a processor each.
TIMEOUT = 60.0


@dataclass(frozen=True)
class Case:
    """A method on a cut.

    Attributes
    ----------
    exact
        Whether its models are the same to the last bit wherever it runs. Training on shares rounds
        at random: both models are certified, and lie close together.
    """

    solver: str
    parties: tuple[str, ...]
    loss: str = "logistic"
    how: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = True


#: All methods that run over a network; sdca needs the whole table at one party.
CASES = (
    Case("hyfdca", BOTH),
    Case("cutting-planes", BOTH, "hinge"),
    Case("lbfgs", BOTH),
    Case("newton-cg", BOTH),
    Case("span-newton", BOTH),
    Case("sealed", BOTH, exact=False),
    Case("fedavg", BOTH),
    Case("fedprox", BOTH),
    Case("hyfem", BOTH),
    Case("d3ca", BOTH),
    Case("admm", BOTH),
    Case("fedhybrid", ROWS),
    Case("disco", ROWS),
    Case("cocoa", ROWS),
    Case("cocoa+", ROWS),
    Case("feddcd", ROWS),
    Case("fedsgd", COLUMNS),
    Case("fedbcd", COLUMNS),
)


def tiles() -> dict[str, list[Tile]]:
    whole = load("breast_cancer").to_tile()
    return {
        name: [whole.rows(np.arange(*rows)).columns(np.arange(*columns))]
        for name, (rows, columns) in CUTS.items()
    }


class SoakCluster(FederationProcesses):
    """Four parties behind a proxy, whose connections can be cut."""

    def __init__(self, folder: Path) -> None:
        # Matching through key holders would need both of them in every run.
        super().__init__(folder, tiles(), terms=msgspec.structs.replace(OPEN, matching="hmac"))
        self._inner = free_port()
        self._move_coordinator()
        self.proxy: CutProxy | None = None

    def open_proxy(self) -> CutProxy:
        self.proxy = CutProxy(self.port, self._inner)
        return self.proxy

    def stop_all(self) -> None:
        super().stop_all()
        if self.proxy is not None:
            self.proxy.close()

    def _move_coordinator(self) -> None:
        """Let it listen behind the port that all others know."""
        path = self.kit(COORDINATOR) / "startup" / "fed_server.json"
        settings = json.loads(path.read_text())
        (server,) = settings["servers"]
        server["service"]["target"] = f"localhost:{self._inner}"
        server["admin_port"] = self._inner
        path.write_text(json.dumps(settings))

    def write_config(self, name: str, case: Case, iterations: int) -> Path:
        told = {"name": case.solver, "gap": GAP, "cipher": "pad", "iterations": iterations}
        lines = [f"{key} = {json.dumps(value)}" for key, value in {**told, **case.how}.items()]
        parties = "".join(f'[[party]]\nname = "{party}"\n' for party in case.parties)
        path = self.folder / f"{name}.toml"
        path.write_text(
            f'name = "{name}"\n[data]\nscaling = "standard"\nintercept = false\n'
            f'[model]\nloss = "{case.loss}"\nlambda = {LAM}\n[solver]\n'
            + "\n".join(lines)
            + f'\n[privacy]\nmatching = "hmac"\n[network]\ntimeout = {TIMEOUT}\n{parties}'
        )
        return path

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def out(self, name: str) -> Path:
        return self.folder / "results" / name

    def in_one_process(self, name: str, case: Case) -> Trained:
        """The run once more, by parties in this process, with the same ones away."""
        config = read_config(self.folder / f"{name}.toml", deployed=True)
        held = tiles()
        federation = Federation(
            {party: held[party] for party in case.parties},
            config.preprocessing(),
            keys=load_all(self.keys, case.parties),
            consents=self._consents(case, config),
        )
        presence = Presence.load(self.out(name) / "presence.json")

        def attended(channel: Channel) -> Channel:
            return ReplayedPresence(channel, presence)

        return federation.train(config.settings, through=attended)

    def _consents(self, case: Case, config: Config) -> dict[str, Consent]:
        signed = read_roster(self.roster)
        return {party: Consent(party, config.terms, roster=signed) for party in case.parties}

    def clear(self, name: str) -> None:
        """Delete what the submitter and this process kept of a run."""
        shutil.rmtree(self.out(name), ignore_errors=True)
        (self.folder / f"{name}.toml").unlink(missing_ok=True)
        self._log(name).unlink(missing_ok=True)
