"""The sealed leg of the network's demo: two hospitals and a laboratory train on shares.

A party and then the coordinator are killed. Bits of a model on shares depend on masks, so that the
run is repeated in one process with what its parties drew; nobody but this demo, which has started
all of them, could read that.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from weft.crypto.keys import load_all
from weft.errors import ProtocolError
from weft.federation.model import load_model
from weft.network.kits.nvflare_settings_of_kit import COORDINATOR
from weft.network.submitted_task import LinearTask
from weft.privacy.agreement import Consent, read_roster
from weft_examples.local_federation_processes import FederationProcesses
from weft_examples.network_demo_data import Example
from weft_examples.network_demo_results import SealedFigures, same
from weft_examples.replay_deployed_run_in_process import Drawn, repeat_run
from weft_examples.wait_for_run_progress import LONG, followed

NAME = "sealed"
CONFIG = """\
name = "demo-sealed"

[data]
scaling = "standard"

[model]
loss = "logistic"
lambda = 1e-2

[solver]
gap = 1e-3

[privacy]
mode = "sealed"            # nobody sees a score, a slope or a weight

"""
#: At which gradients the party and the coordinator are killed.
_KILLED_AT = 2

Say = Callable[[str], None]


def play_sealed(
    cluster: FederationProcesses,
    config: Path,
    task: LinearTask,
    example: Example,
    victim: str,
    say: Say,
) -> SealedFigures:
    """Train on shares, kill a party and the coordinator, and compare with one process."""
    began, out = time.monotonic(), cluster.folder / "sealed-results"
    with followed(cluster, lambda: cluster.submit(config, out, name=NAME), NAME) as run:
        run.until(lambda _: run.newest.iteration >= 1)
        copies = _copy_draws(cluster)
        say("the same parties train sealed, on shares: nobody sees a score, a slope or a weight")
        killed = run.until(lambda _: run.newest.iteration >= _KILLED_AT)
        cluster.kill(victim)
        cluster.start(victim)
        cluster.kill(COORDINATOR)
        say(
            f"gradient {killed.iteration}: {victim} and the coordinator are killed (SIGKILL), and "
            "started again"
        )
    cluster.start(COORDINATOR)
    cluster.wait_connected(seconds=LONG)
    if cluster.wait(NAME, LONG) != 0:
        raise ProtocolError(f"the sealed run did not come to its end: {cluster.log(NAME)}")
    took = time.monotonic() - began
    roster = read_roster(cluster.roster)
    alone, outcome = repeat_run(
        example.tiles,
        task.preprocessing,
        task.settings,
        Drawn.of_files(copies / COORDINATOR, {name: copies / name for name in cluster.parties}),
        keys=load_all(cluster.keys, cluster.parties),
        consents={name: Consent(name, task.terms, roster=roster) for name in cluster.parties},
    )
    equal = same(load_model(out / "model.npz"), alone.model)
    say(
        f"the sealed run is over after {took:.1f} s; one process with the same draws has a model "
        + ("that is equal, bit for bit" if equal else "that is NOT EQUAL")
    )
    certificate = outcome.result.certificate
    if certificate is None:
        raise ProtocolError("the sealed model has no certificate; look into its summary")
    return SealedFigures(
        equal=equal,
        gradients=len(outcome.result.history),
        round_trips=outcome.meter.read().round_trips,
        certified_gap=certificate.gap,
        seconds=took,
        notes=tuple(outcome.result.notes),
    )


def _copy_draws(cluster: FederationProcesses) -> Path:
    """Copies of what all have drawn in the run, which they delete at its end."""
    copies = cluster.folder / "drawn"
    copies.mkdir(mode=0o700)
    for name in (COORDINATOR, *cluster.parties):
        (folder,) = (cluster.kit(name) / "weft" / "runs").glob("demo-sealed-*")
        file = "run" if name == COORDINATOR else "randomness.weft"
        shutil.copy(folder / file, copies / name)
    return copies
