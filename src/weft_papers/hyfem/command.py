"""``weft reproduce hyfem``: the experiments of both HyFEM texts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft_neural.commands import Device, DeviceName

if TYPE_CHECKING:
    from rich.table import Table

    from weft_neural.history import Round
    from weft_papers.hyfem.report import Row
    from weft_papers.hyfem.run_experiments import Found
    from weft_papers.hyfem.setups import Plan
    from weft_papers.hyfem.train_run import Progress


#: Written out, since reading the experiments' files would slow down every command.
EPILOG = """Experiments: mfeat, mnist-quadrants (ours); cifar10, eurosat, modelnet40-1,
modelnet40-2, c1-cifar10, c1-eurosat, c1-modelnet40, herigraph, c4-modelnet40-2 (2024); c4-cifar10,
c4-mfeat (ours, after 2024); 2020-m4, 2020-m8.

Example: weft reproduce hyfem --only mfeat --out mfeat"""


def hyfem(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this experiment; may be given several times."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with the original files; default: WEFT_DATA."),
    ] = None,
    device: Device = DeviceName.auto,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="So many rounds instead of the config's, for a trial.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of first weights and minibatches; default: 0.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Folder for results; runs done there stay."),
    ] = Path("results/hyfem"),
    baselines: Annotated[
        bool, typer.Option(help="Also train centrally, alone, and by FedProx.")
    ] = True,
) -> None:
    """HyFEM for networks against central training, parties alone, and FedProx.

    Runs the experiments of Zhang, Yin, Chen and Hong (2020 and 2024), and two of ours that take
    minutes on a CPU, as federations in this process. FedProx gets the blocks that all parties
    have, where there are any.

    What lacks its data is left out and listed. Each run keeps a file in the folder: when the
    command is given again, what is done is not run again. Runs made elsewhere by python -m
    weft_papers.hyfem.run_without_cli are taken up. The folder gets a table (CSV) and a summary
    of all that is done in it, and for each experiment its curves and a figure.
    """
    from weft.cli.terminal_output import say
    from weft.errors import ConfigError, DataError
    from weft_papers.hyfem.report import rows_of, write_report
    from weft_papers.hyfem.run_experiments import Study, seen
    from weft_papers.hyfem.setups import KINDS, experiments, setup

    given: dict[str, Any] = {"rounds": rounds, "seed": seed}
    changes = {name: value for name, value in given.items() if value is not None}
    setups = [setup(name, changes=changes) for name in dict.fromkeys(only or experiments())]
    found: list[Found] = []
    not_run: dict[str, str] = {}
    with ExitStack() as lines:
        study = Study(
            out,
            data_dir=None if data_dir is None else str(data_dir),
            device=device.value,
            kinds=KINDS if baselines else ("hyfem",),
            reporter=_Reporter(lines),
        )
        for one in setups:
            try:
                found.append(study.take(one))
            except DataError as error:
                not_run[one.name] = str(error)
            except ModuleNotFoundError as error:
                if error.name != "torch":
                    raise
                raise ConfigError(
                    "experiments with networks need PyTorch, which is not installed; pip install "
                    "'weft[neural]'"
                ) from None
    if not found:
        raise DataError("nothing was run; " + " ".join(not_run.values()))
    named = {one.name for one in setups}
    found += [done for name in experiments() if name not in named and (done := seen(out, name))]
    remarks = write_report(out, found, not_run)
    _show([row for one in found for row in rows_of(one)])
    say(
        "Accuracies of the last round, of parties the mean ± standard deviation; matching is its "
        "share of a round's time.",
        *(f"- {one.setup.name}: {one.trial}" for one in found if one.trial),
        *(f"- {one.setup.name}: {one.lacking}" for one in found if one.lacking),
        *(f"not run: {name}: {reason}" for name, reason in not_run.items()),
        *(f"- {remark}" for remark in remarks),
        f"Table, summary and figures are in {out}.",
    )


class _Reporter:
    """A line of progress for each run, where stderr is a terminal."""

    def __init__(self, lines: ExitStack) -> None:
        self._lines = lines

    def __call__(self, plan: Plan, number: int, count: int) -> Progress:
        from rich.console import Console

        from weft_papers.hyfem.run_without_cli import progress_text

        self._lines.close()
        title = f"{plan.experiment}, {plan.label} (run {number} of {count}) · "
        console = Console(stderr=True, highlight=False)
        if not console.is_terminal:
            return _silent
        status = self._lines.enter_context(console.status(f"{title}reading data …"))

        def follow(plan: Plan, found: Round, left: float) -> None:
            status.update(title + progress_text(found, left))

        return follow


def _silent(plan: Plan, found: Round, left: float) -> None:
    """Show nothing: stderr is no terminal."""


def _show(rows: Sequence[Row]) -> None:
    from rich.console import Console

    Console(highlight=False).print(_grid(rows))


def _grid(rows: Sequence[Row]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAD, pad_edge=False)
    grid.add_column("experiment", overflow="fold")
    for name in (
        *("server", "local", "received", "central", "alone", "FedProx\nserver"),
        *("FedProx\nlocal", "s per\nround", "match-\ning"),
    ):
        grid.add_column(name, justify="right", no_wrap=True)
    several = {row.experiment for row in rows if row.run != "HyFEM"}
    for row in rows:
        name = row.experiment + (f"\n{row.run}" if row.experiment in several else "")
        if row.rounds < row.rounds_of_text:
            name += f"\n{row.rounds} of {row.rounds_of_text} rounds"
        grid.add_row(
            name,
            _share(row.server),
            _share(row.local, row.local_spread),
            _share(row.received),
            _share(row.central),
            _share(row.alone, row.alone_spread),
            _share(row.fedprox_server),
            _share(row.fedprox_local, row.fedprox_spread),
            f"{row.seconds_per_round:.2g}",
            f"{row.matching_share:.0%}",
        )
    return grid


def _share(value: float | None, spread: float | None = None) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.1f}" + ("" if spread is None else f"±{100 * spread:.1f}")
