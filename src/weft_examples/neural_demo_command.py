"""``weft neural demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft_neural.commands import Device, DeviceName


def neural_demo(
    out: Annotated[
        Path | None,
        typer.Option(
            help="New folder for models, history and report; by default results/neural-demo, in "
            "which the next demo takes its place."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of every run.")] = 40,
    device: Device = DeviceName.auto,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Six parties with quarters of small images and half of the digits each learn all ten.

    scikit-learn's digits are cut into four quadrants. Every party has three of them, of the images
    of five classes; two quadrants are common to all. HyFEM is compared with training on all data in
    one place, with every party alone, and with FedProx on the common quadrants. All take as many
    local steps. It needs no files, and less than a minute on one core.
    """
    from weft.cli.terminal_output import say
    from weft.report.page import PAGE
    from weft.storage.atomic_folder import building
    from weft_neural.command_output import RoundLine, tell_neural
    from weft_neural.results_folder import summarise_neural, write_neural_results
    from weft_neural.torch_requirement import require_torch

    require_torch()
    from weft_examples.choose_demo_results_folder import folder_for
    from weft_examples.neural_demo import NAME, run_demo

    folder = folder_for(out, "neural-demo", NAME, json=json)
    with RoundLine(quiet=json) as line:
        done = run_demo(rounds, device.value, lambda title: line.follow(title, rounds))
    remarks: list[str] = []
    if folder is None:
        summary = summarise_neural(done.trained, NAME, done.rivals)
    else:
        with building(folder, replace=out is None) as draft:
            summary, remarks = write_neural_results(
                draft, done.trained, name=NAME, rivals=done.rivals, tested=done.tested()
            )
    if not json:
        say(done.compared())
    tell_neural(folder, summary, remarks, json=json)
    if folder is not None and not json:
        say("", f"See all of it in a browser: {folder / PAGE}")
