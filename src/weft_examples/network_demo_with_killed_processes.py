"""The network's demo: a federation of processes loses a party and its coordinator, and no bit.

It does so twice: in sums, and sealed, on shares. Each run is then repeated in one process: the
first with the same parties away at the same exchanges, the second with what its parties drew.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import psutil

from weft.config.read_config import read_config
from weft.crypto.keys import load_all
from weft.errors import ProtocolError
from weft.federation.local_federation import Federation, Trained
from weft.federation.model import load_model
from weft.guards.privacy_terms import Terms
from weft.network.kits.kit_folder import Kit
from weft.network.kits.nvflare_settings_of_kit import COORDINATOR
from weft.network.linear_job import LinearJob
from weft.network.record_and_replay_absences import Missed, Moment, Presence, ReplayedPresence
from weft.network.submitted_task import LinearTask
from weft.privacy.agreement import Consent, read_roster
from weft_examples import network_demo_sealed as sealed
from weft_examples.local_federation_processes import SUBMITTER, FederationProcesses
from weft_examples.network_demo_data import Example, breast_example
from weft_examples.network_demo_results import Figures, figures_of, same
from weft_examples.open_ports_and_connections import look
from weft_examples.wait_for_run_progress import LONG, followed

#: Who is killed, and at which iteration; how many iterations the others do without it.
VICTIM, KILLED_AT, WITHOUT = "clinic", 3, 10
#: Careful, but some sums are of two parties only, and there are more of them than columns.
TERMS = Terms(matching="oprf", allow_pairs=True, allow_exposure=True)
_CONFIG = """\
name = "demo-network"

[data]
scaling = "standard"

[model]
loss = "logistic"
lambda = 1e-2

[solver]
name = "auto"
cipher = "pad"
gap = 1e-8
when_missing = "hyfdca"    # while a party is away, after
patience = 1.0             # seconds of waiting for it

"""
#: Exchanges between which the party is away when the run is rehearsed, and how many there are.
_REHEARSED, _MOST_EXCHANGES = (45, 80), 2000

Say = Callable[[str], None]


@dataclass
class _Seen:
    """The sockets seen at every look."""

    looks: int = 0
    processes: int = 0
    listening: int = 0
    connections: int = 0

    def look(self, cluster: FederationProcesses) -> None:
        """Refuse to go on if anything reaches beyond this machine."""
        found = look([psutil.Process(), *cluster.processes()])
        if found.elsewhere:
            raise ProtocolError(
                f"a process of the demo reaches beyond this machine: {found.elsewhere[0]}"
            )
        self.looks += 1
        self.processes = max(self.processes, found.processes)
        self.listening = max(self.listening, len(found.listening))
        self.connections = max(self.connections, len(found.connected))


def run_network_demo(folder: Path, say: Say) -> Figures:
    """Play it all in a new folder.

    Parameters
    ----------
    say
        Is told each step when it is done.
    """
    begun = time.monotonic()
    example = breast_example()
    sizes = ", ".join(f"{name} {t.n}×{t.m}" for name, (t,) in example.tiles.items())
    say(f"{example.source}, and a third party cut from it: {sizes}")
    seen = _Seen()
    with FederationProcesses(folder, example.tiles, terms=TERMS, federation="demo") as cluster:
        say("provisioned: keys, a roster signed by all, certificates and kits")
        config = _write_config(folder / "config.toml", _CONFIG, cluster)
        for name in (COORDINATOR, *cluster.parties):
            cluster.start(name)
        say("processes start; the run is rehearsed in one meanwhile, to compile its loops once")
        _rehearse(config, example, cluster)
        sealed_config = _write_config(folder / "sealed.toml", sealed.CONFIG, cluster)
        sealed_task = _task(sealed_config, cluster)
        _in_one_process(_soon_over(sealed_task), example, cluster)
        cluster.wait_connected(seconds=LONG)
        say(f"started: a coordinator and {len(cluster.parties)} parties, connected by mutual TLS")
        seen.look(cluster)
        _check_closed_to_strangers(cluster)
        say("a caller without a certificate is turned away; no socket reaches beyond this machine")
        submitted = time.monotonic()
        away = _disturb(cluster, config, folder / "results", seen, say)
        code = cluster.wait("submit", LONG)
        if code != 0:
            raise ProtocolError(f"the run did not come to its end: {cluster.log('submit')}")
        took = time.monotonic() - submitted
        say(f"the run went on after {_resumed_after(cluster)} exchanges that its journal had kept")
        on_shares = sealed.play_sealed(cluster, sealed_config, sealed_task, example, VICTIM, say)
        seen.look(cluster)
    model = load_model(folder / "results" / "model.npz")
    presence = Presence.load(folder / "results" / "presence.json")
    say(f"the run is over, {took:.1f} s after it was submitted; every process is ended")
    task = _task(config, cluster)
    repeated, alone = _timed(lambda: _in_one_process(task, example, cluster, presence))
    equal = same(model, repeated.model)
    say(
        f"the same run in one process, with the same absences, took {alone:.1f} s: its model is "
        + ("equal, bit for bit" if equal else "NOT EQUAL")
    )
    return figures_of(
        example,
        model,
        repeated,
        equal=equal,
        away_iterations=away,
        missed=sum(VICTIM in moment.missing for moment in presence.moments),
        exchanges=len(presence.moments),
        sealed=on_shares,
        seconds={"all": time.monotonic() - begun, "run": took, "one_process": alone},
        **asdict(seen),
    )


def _write_config(path: Path, content: str, cluster: FederationProcesses) -> Path:
    parties = "\n".join(f'[[party]]\nname = "{name}"' for name in cluster.parties)
    path.write_text(content + parties + "\n", encoding="utf-8")
    return path


def _check_closed_to_strangers(cluster: FederationProcesses) -> None:
    """Connect to the coordinator without a certificate; it must refuse."""
    kit = Kit.open(cluster.kit(SUBMITTER), "submitter")
    stranger = ssl.create_default_context(cafile=str(kit.authority))
    stranger.set_alpn_protocols(["h2"])
    heard = b""
    with (
        # In TLS 1.3 the refusal comes only after the handshake, in the place of the first words.
        suppress(ssl.SSLError, ConnectionError),
        socket.create_connection(("127.0.0.1", cluster.port), timeout=5.0) as raw,
        stranger.wrap_socket(raw, server_hostname=kit.host) as tls,
    ):
        heard = tls.recv(1)
    if heard:
        raise ProtocolError("the coordinator talks to a caller that shows no certificate")


# ── the run, and what happens to it ───────────────────────────────────────────────────────────


def _disturb(cluster: FederationProcesses, config: Path, out: Path, seen: _Seen, say: Say) -> int:
    """Submit the run, kill and revive; returns how many iterations were done without the party."""
    with followed(cluster, lambda: cluster.submit(config, out), "submit") as run:
        run.until(lambda report: bool(report.records))
        say("matched by OPRF; trains with the solver that auto chose, encrypted")
        killed = run.until(lambda _: run.newest.iteration >= KILLED_AT)
        cluster.kill(VICTIM)
        say(f"iteration {killed.iteration}: {VICTIM} is killed (SIGKILL)")
        last = run.until(lambda report: VICTIM in report.away and run.without >= WITHOUT)
        say(
            f"iteration {last.iteration}: HyFDCA goes on without it, {run.without} iterations so "
            f"far; {VICTIM} is started again"
        )
        seen.look(cluster)
        cluster.start(VICTIM)
        back = run.until(
            lambda report: not report.away and (run.newest.certified_at or 0) > last.iteration
        )
        cluster.kill(COORDINATOR)
        away = run.without
        say(
            f"iteration {back.iteration}: {VICTIM} is back after {away} iterations, the fast "
            f"solver goes on: certified gap {back.gap:.1e}"
        )
    say("the coordinator is killed with the run's process (SIGKILL), and started again")
    cluster.start(COORDINATOR)
    cluster.wait_connected(seconds=LONG)
    say("all parties are connected again; weft submit takes the run up where it was")
    return away


def _resumed_after(cluster: FederationProcesses) -> int:
    """How many exchanges the second coordinator found; refuses a run that began anew."""
    found = re.search(r"goes on after (\d+) exchange", cluster.log(COORDINATOR))
    if found is None:
        raise ProtocolError("the second coordinator did not go on with the run of the first")
    return int(found[1])


# ── in one process ────────────────────────────────────────────────────────────────────────────────


def _task(config: Path, cluster: FederationProcesses) -> LinearTask:
    return LinearJob().make_task(read_config(config, deployed=True), cluster.parties)


def _in_one_process(
    task: LinearTask,
    example: Example,
    cluster: FederationProcesses,
    presence: Presence | None = None,
) -> Trained:
    """A run in this process, from which the same parties are missing; None: nobody is."""
    roster = read_roster(cluster.roster)
    federation = Federation(
        example.tiles,
        task.preprocessing,
        keys=load_all(cluster.keys, cluster.parties),
        consents={name: Consent(name, task.terms, roster=roster) for name in cluster.parties},
        packed=True,
    )
    if presence is None:
        return federation.train(task.settings)
    return federation.train(
        task.settings, through=lambda channel: ReplayedPresence(channel, presence)
    )


def _rehearse(config: Path, example: Example, cluster: FederationProcesses) -> Trained:
    """A short run of the same kind.

    On a fresh machine this process compiles the loops that all parties use, and keeps them on disk:
    parties that compiled them at the same time would need as many times as long.
    """
    task = _task(config, cluster)
    first, last = _REHEARSED
    gone = {VICTIM: Missed("absent", "failed", "is away in the rehearsal")}
    presence = Presence(
        [Moment(float(n), gone if first <= n < last else {}) for n in range(_MOST_EXCHANGES)]
    )
    return _in_one_process(_soon_over(task), example, cluster, presence)


def _soon_over(task: LinearTask) -> LinearTask:
    """The same with a gap that takes a few iterations."""
    settings = msgspec.structs.replace(task.settings, gap=1e-2)
    return msgspec.structs.replace(task, settings=settings)


def _timed(work: Callable[[], Trained]) -> tuple[Trained, float]:
    begun = time.monotonic()
    done = work()
    return done, time.monotonic() - begun
