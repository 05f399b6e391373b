"""``weft demo-network``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from weft_examples.network_demo_results import Figures


def demo_network(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Keep everything in this new folder: kits, logs, results."),
    ] = None,
) -> None:
    """A coordinator and three parties train as processes; some are killed, and no bit is lost.

    Certificates, kits and mutual TLS are those of a deployment, but everything stays on this
    machine: a party is killed in mid-run and comes back, then the coordinator. At last the same run
    is done in one process, and the two models are compared bit by bit. Exit code 1: they differ.
    All of it once in sums, and once sealed, where nobody sees a score, a slope or a weight.

    It takes about two minutes. The data is FATE's two-party breast example where WEFT_DATA names a
    folder that has it, else scikit-learn's breast cancer.
    """
    import signal
    import sys
    import tempfile
    from time import monotonic

    from weft.cli.terminal_output import say, say_json
    from weft.network.nvflare_processes import require_engine
    from weft.storage.atomic_folder import refuse_existing

    require_engine()
    from weft_examples.network_demo_with_killed_processes import run_network_demo

    if out is not None:
        refuse_existing(out)
    # Ending this command ends the processes that it started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begun = monotonic()

    def tell(step: str) -> None:
        if not json:
            say(f"{monotonic() - begun:6.1f} s  {step}")

    with tempfile.TemporaryDirectory(prefix="weft-demo-") as temporary:
        figures = run_network_demo(out or Path(temporary) / "demo", tell)
    if json:
        say_json(figures.to_dict())
    else:
        _show(figures)
        if out is not None:
            say(f"Kits, logs and results are in {out}.")
    if not (figures.equal and figures.sealed.equal):
        raise typer.Exit(1)


def _show(figures: Figures) -> None:
    from weft.cli.terminal_output import say

    sealed = figures.sealed
    answer = "equal, bit for bit" if figures.equal else "DIFFER"
    say(
        "",
        f"{'model, deployed and in one process':<34}  {answer}",
        f"{'the killed party missed':<34}  {figures.missed} of {figures.exchanges} exchanges, "
        f"{figures.away_iterations} of {figures.iterations} iterations",
        f"{'loss':<34}  {figures.loss:.9f}",
        f"{'loss, liblinear on pooled data':<34}  {figures.loss_central:.9f} "
        f"(relative difference {figures.relative_difference:.1e})",
        f"{'certified gap':<34}  {figures.certified_gap:.1e}",
        f"accuracy on {figures.test_samples} held-out samples",
        f"{'  federated':<34}  {figures.accuracy:.1%}",
        f"{'  liblinear on pooled data':<34}  {figures.accuracy_central:.1%}",
        f"{'round trips':<34}  {figures.round_trips}, {figures.bytes:,} bytes",
        f"{'sealed, deployed and one process':<34}  "
        f"{'equal, bit for bit' if sealed.equal else 'DIFFER'}; {sealed.gradients} gradients, "
        f"{sealed.round_trips} round trips, certified gap {sealed.certified_gap:.1e}",
        f"{'sockets':<34}  {figures.listening} listening, {figures.connections} connected, of "
        f"{figures.processes} processes; looked {figures.looks} times: all on the loopback",
        f"{'seconds':<34}  {figures.seconds['all']:.0f} in all, {figures.seconds['run']:.0f} for "
        f"the run with its deaths, {sealed.seconds:.0f} for the sealed one, "
        f"{figures.seconds['one_process']:.1f} in one process",
        *(f"- {note}" for note in (*figures.notes, *sealed.notes)),
    )
