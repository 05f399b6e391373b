"""``weft reproduce fedhybrid``: the experiments of the FedHybrid paper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from weft_papers.fedhybrid.methods_comparison import Outcome, Study
    from weft_papers.fedhybrid.report import Row

EPILOG = "Example: weft reproduce fedhybrid --setup boston --out boston"


class Weigh(StrEnum):
    """What weighs the same in the objective."""

    samples = "samples"
    parties = "parties"


def fedhybrid(
    setup: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Only this one: synthetic_squares, boston, synthetic_logistic or mushroom.",
        ),
    ] = None,
    weigh: Annotated[
        Weigh,
        typer.Option(help="Whether parties weigh the same, as in the paper, or samples."),
    ] = Weigh.parties,
    seeds: Annotated[
        int, typer.Option(min=1, help="So many draws of data and parties; the table has medians.")
    ] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tiny problem instead, to see that all works.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="New folder for results.")] = Path(
        "results/fedhybrid"
    ),
) -> None:
    """FedHybrid against FedAvg and DiSCO, with more and more Newton-type parties.

    Runs the four set-ups of Niu and Wei (2021) as federations in this process, each method with
    the best steps of a grid, and counts iterations and round trips to a relative distance of 1e-4
    and 1e-6 from the optimum of outside solvers. One seed takes some minutes.

    Boston and mushroom are read from the folder that WEFT_DATA names; without their files they are
    left out. The folder gets a page (README.md), the table (CSV), every curve, a summary and the
    paper's Figures 1 to 4.
    """
    from weft.cli.terminal_output import say
    from weft.storage.atomic_folder import building, refuse_existing
    from weft_papers.fedhybrid.report import rows_of, write_study

    refuse_existing(out)
    outcomes: list[Outcome] = []
    optima: dict[str, dict[str, Any]] = {}
    not_run: dict[str, str] = {}
    for study in _studies(setup, weigh.value, seeds, quick, not_run):
        name = study.setup.name
        found = _run(study)
        outcomes += found
        optimum = study.workbench.optimum
        optima.setdefault(name, {"primal": optimum.primal, "by": optimum.how})
        if seeds == 1:
            _show(rows_of(found))
    _stop_without(outcomes, not_run)
    if seeds > 1:
        for name in optima:
            _show(rows_of([outcome for outcome in outcomes if outcome.setup == name]))
    with building(out) as draft:
        remarks = write_study(
            draft,
            outcomes,
            weigh=weigh.value,
            optima=optima,
            not_run=not_run,
            command=_command(setup, weigh, seeds, quick),
        )
    say(
        "An iteration is one round trip; an iteration of DiSCO is one exchange of its conjugate "
        "gradients, and updates are its Newton steps. Round trips include matching and setting up. "
        "Counted is the first time that a run is so near; it may rise again, as the figures show.",
        *(f"not run: {name}: {reason}" for name, reason in not_run.items()),
        *(f"- {remark}" for remark in remarks),
        f"Page, table, curves, figures and summary are in {out}.",
    )


def _command(setup: str | None, weigh: Weigh, seeds: int, quick: bool) -> str:
    parts = ["weft reproduce fedhybrid", *([f"--setup {setup}"] if setup else ())]
    parts += [f"--weigh {weigh.value}", f"--seeds {seeds}", *(["--quick"] if quick else ())]
    return " ".join(parts)


def _studies(
    setup: str | None, weigh: Any, seeds: int, quick: bool, not_run: dict[str, str]
) -> Iterator[Study]:
    """One for each set-up and seed; what lacks its data is noted."""
    from weft.errors import DataError
    from weft_papers.fedhybrid.methods_comparison import Effort, Study
    from weft_papers.fedhybrid.setups import SETUPS, fedhybrid_setup, tiny_setup

    for seed in range(seeds):
        if quick:
            effort = Effort(tuning=20, final=150, passes=1)
            yield Study(tiny_setup(seed), weigh, seed=seed, effort=effort)
            continue
        for name in SETUPS if setup is None else (setup,):
            if name in not_run:
                continue
            try:
                made = fedhybrid_setup(name, seed)
            except DataError as error:
                not_run[name] = str(error)
                continue
            yield Study(made, weigh, seed=seed)


def _run(study: Study) -> list[Outcome]:
    """All methods, with a line of progress."""
    from weft.cli.terminal_output import ProgressLine

    outcomes: list[Outcome] = []
    with ExitStack() as lines:

        def follow(label: str) -> ProgressLine:
            lines.close()
            title = f"{study.setup.name}, {label} · "
            return lines.enter_context(ProgressLine(title=title))

        study.reporter = follow
        outcomes.extend(study.outcomes())
    return outcomes


def _stop_without(outcomes: list[Outcome], not_run: dict[str, str]) -> None:
    from weft.errors import DataError

    if not outcomes:
        raise DataError("nothing was run; " + " ".join(not_run.values()))


def _show(rows: list[Row]) -> None:
    from rich.console import Console

    Console(highlight=False).print(_grid(rows))


def _grid(rows: list[Row]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAD, pad_edge=False, title=rows[0].setup, title_justify="left")
    grid.add_column("method", no_wrap=True)
    for name in (
        "iterations\nto 1e-4",
        "iterations\nto 1e-6",
        "trips\nto 1e-4",
        "trips\nto 1e-6",
        "updates\nto 1e-6",
        "at\nend",
    ):
        grid.add_column(name, justify="right")
    for row in rows:
        counts = (
            row.iterations_coarse,
            row.iterations_fine,
            row.round_trips_coarse,
            row.round_trips_fine,
            row.updates_fine,
        )
        told = ["–" if count is None else str(count) for count in counts]
        grid.add_row(row.method, *told, f"{row.distance_at_end:.0e}")
    return grid
