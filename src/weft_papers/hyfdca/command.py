"""``weft reproduce hyfdca``: the experiments of the HyFDCA paper."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from weft_papers.hyfdca.analysis import Findings
    from weft_papers.hyfdca.cases import Plan, Shares

EPILOG = """Example: weft reproduce hyfdca --scale small --out results/hyfdca; later, into the same
folder, with --scale medium: what is long enough is not run again."""


def hyfdca(
    scale: Annotated[
        str,
        typer.Option(
            metavar="SCALE",
            help="How much of the paper's lengths: tiny (0.004), small (0.01), medium (0.2), full "
            "or any share; or one for each data set, mnist=1,newsgroups=0.1. Figures say it.",
        ),
    ] = "small",
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Another share for modelled seconds, of the experiments of time."
        ),
    ] = None,
    effects: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Another share for the 18 settings that are in Figures 6 to 8 only; 0, as in tiny "
            "and small: not run.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA",
            help="Only this one: mnist, newsgroups or covtype; may be given several times.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of draws, participation and samples held out.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs side by side; default: one for each core.")
    ] = None,
    most: Annotated[
        int,
        typer.Option(
            min=1,
            help="Leave out experiments of equal time that take a method more iterations; the "
            "page says how many each would.",
        ),
    ] = 1_000_000,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone",
            help="First measure what iterations cost with one run at a time, in all settings: "
            "Tables 6 to 8 in full.",
        ),
    ] = False,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for results; runs done there stay.")
    ] = Path("results/hyfdca"),
) -> None:
    """HyFDCA against FedAvg and HyFEM: Tables 5 to 8, Figures 3 to 8, and the 72 comparisons.

    Runs the settings of Overman, Blum and Klabjan (2022) on MNIST, 20 newsgroups (in the place of
    News20) and Covertype, from the folder that WEFT_DATA names, with the paper's hyper-parameters.
    Runs are replays of federations, to the same bits but without messages; what an iteration costs
    with them is measured by --alone. Weft's own step rule ('safe') and the solver that it would
    choose are run besides.

    At full length a run takes from half a minute to some minutes of a core. Given again, an
    interrupted command goes on where it was. The folder gets a page (README.md) with all tables
    beside the paper's, the figures, the comparisons and curves (CSV), and every run, a line each
    (runs.jsonl).
    """
    from weft.cli.terminal_output import say
    from weft.storage.atomic_files import locked
    from weft_papers.hyfdca.analysis import Findings
    from weft_papers.hyfdca.parallel_runs import cores, measure_all, run_all
    from weft_papers.hyfdca.report import write_report
    from weft_papers.hyfdca.results_folder import ResultsFolder

    plan, not_run = _plan(scale, seconds, effects, only, seed)
    plan = replace(plan, most=most)
    results = ResultsFolder(out)
    results.open()
    # Two commands would take up the same unfinished runs.
    with locked(out / "runs"), _Bar() as bar:
        try:
            if alone:
                measure_all(plan, results, bar)
            run_all(plan, results, bar, workers=workers or cores())
        except KeyboardInterrupt:
            say("", f"interrupted; what is done is in {out}: the same command goes on from there")
            raise typer.Exit(130) from None
    findings = Findings(plan, results)
    command = _command(scale, {"seconds": seconds, "effects": effects}, only, seed, alone)
    remarks = write_report(out, findings, command=command)
    _show(findings)
    say(
        findings.note,
        *(f"not run: {name}: {reason}" for name, reason in not_run.items()),
        *(f"- {remark}" for remark in remarks),
        f"Page, tables, figures and runs are in {out}: begin with {out / 'README.md'}.",
    )


def _plan(
    scale: str, seconds: float | None, effects: float | None, only: list[str] | None, seed: int
) -> tuple[Plan, dict[str, str]]:
    """The runs to make, and the data sets whose files are missing."""
    from weft.errors import ConfigError, DataError
    from weft_papers.hyfdca.cases import Plan
    from weft_papers.hyfdca.paper import data_sets
    from weft_papers.hyfdca.setting_data import check_data

    for name in only or ():
        if name not in data_sets():
            raise ConfigError(f"--only {name}: choose one of {', '.join(data_sets())}")
    given = _shares(scale, tuple(data_sets()))
    wanted = [name for name in given if not only or name in only]
    not_run = {name: reason for name in wanted if (reason := check_data(name))}
    shares = {}
    for name in wanted:
        if name not in not_run:
            share = given[name]
            if seconds is not None:
                share = share._replace(seconds=seconds)
            if effects is not None:
                share = share._replace(effects=effects)
            shares[name] = share
    if not shares:
        raise DataError("nothing can be run; " + " ".join(not_run.values()))
    return Plan(shares, seed), not_run


def _shares(scale: str, data: tuple[str, ...]) -> dict[str, Shares]:
    """By data set, what ``--scale`` says."""
    from weft.errors import ConfigError
    from weft_papers.hyfdca.cases import SCALES, Shares

    def one(text: str) -> Shares:
        if text in SCALES:
            return SCALES[text]
        try:
            share = float(text)
        except ValueError:
            share = 0.0
        if not 0 < share <= 1:
            raise ConfigError(
                f"--scale {text} is neither {', '.join(SCALES)} nor a share above 0 and at most 1"
            )
        return Shares(share, share, share)

    if "=" not in scale:
        return dict.fromkeys(data, one(scale))
    found = {}
    for part in scale.split(","):
        name, _, text = part.partition("=")
        if name not in data:
            raise ConfigError(f"--scale {part}: choose data sets of {', '.join(data)}")
        found[name] = one(text)
    return found


def _command(
    scale: str, shares: dict[str, float | None], only: list[str] | None, seed: int, alone: bool
) -> str:
    """What gives the same results elsewhere."""
    parts = ["weft reproduce hyfdca", f"--scale {scale}"]
    parts += [f"--{name} {share:g}" for name, share in shares.items() if share is not None]
    parts += [f"--only {name}" for name in only or ()]
    parts.append(f"--seed {seed}")
    return " ".join([*parts, "--alone"] if alone else parts)


class _Bar:
    """A bar on stderr with the time left; silent where that is no terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress: Progress | None = None
        if sys.stderr.isatty():
            self._progress = Progress(
                BarColumn(24),
                TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[left]}"),
                TextColumn("{task.description}"),
                console=Console(stderr=True, highlight=False),
                transient=True,
            )
            self._task = self._progress.add_task("reading …", total=1.0, left="")

    def __enter__(self) -> _Bar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, words: str, share: float, left: float | None) -> None:
        from weft.report.number_format import time_text

        if self._progress is not None:
            told = "" if left is None else f"{time_text(left)} left ·"
            self._progress.update(self._task, description=words, completed=share, left=told)


def _show(findings: Findings) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_counts(findings))
    console.print(_ends(findings))


def _counts(findings: Findings) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from weft_papers.hyfdca.analysis import MODES, SERIES, count
    from weft_papers.hyfdca.cases import TITLES
    from weft_papers.hyfdca.paper import WINS

    title = "ahead of FedAvg and HyFEM, in loss and accuracy"
    grid = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    heads = ("", "equal iterations", "computing: paper's s", "ours", "with latency")
    for name in heads:
        grid.add_column(name, justify="right" if name else "left")
    grid.add_row("HyFDCA, in the paper", *(f"{won} of 36" for won in WINS), "–", "–")
    for method in SERIES:
        found = list(findings.comparisons(method))
        won = [count(found, mode) for mode in MODES]
        grid.add_row(TITLES[method], *(f"{ahead} of {total}" for ahead, total in won))
    return grid


def _ends(findings: Findings) -> Table:
    """Where the methods end at equal iterations."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from weft_papers.hyfdca.cases import TITLES
    from weft_papers.hyfdca.paper import data_sets

    title = "relative loss, accuracy after equal iterations"
    grid = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    grid.add_column("", no_wrap=True)
    for method, name in TITLES.items():
        short = {"unit": "‖x‖ ≤ 1", "safe": "safe", "auto": "auto"}.get(method, name)
        grid.add_column(short, justify="right", no_wrap=True)
    for data in findings.plan.data:
        paper = data_sets()[data]
        for setting in paper.compared:
            number = paper.settings.index(setting)
            cells = []
            for method in TITLES:
                line = findings.line(findings.case(data, number, method), "iterations")
                if line is None or line.end is None:
                    cells.append("diverged" if line is not None and line.diverged else "–")
                else:
                    # In two lines, for narrow terminals.
                    cells.append(f"{line.end['loss']:.2g}\n{line.end['accuracy']:.1%}")
            grid.add_row(f"{paper.title} {setting.label.replace(' parties', '')}", *cells)
    return grid
