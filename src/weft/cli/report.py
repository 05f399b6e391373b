"""``weft report``: write the report of a results folder again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[
        Path | None, typer.Argument(help="Results folder of weft train, submit or compare.")
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Show all runs in this folder side by side, in its runs.html."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write; by default report.html or runs.html in the folder."),
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(min=0.0, help="Seconds of a round trip that modelled seconds begin with."),
    ] = None,
    figures: Annotated[
        bool,
        typer.Option(
            "--figures", help="Also draw the figures for papers, as .svg and .png in figures/."
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing, unless something is wrong.")
    ] = False,
) -> None:
    """Write the report of a results folder again, as one HTML file.

    Every run and every comparison comes with report.html. This command makes it anew from the
    files of the folder, for a folder that an older Weft wrote or with another latency; a report
    that is there is replaced.

    The file shows who holds what, how loss and gap fell against round trips, bytes or modelled
    seconds, what each phase cost, the weights with the parties behind them, what each side saw,
    and all that is needed to run it again. It loads nothing: it can be kept, mailed and opened
    without a network. It tells the weights of the model if the model is in the folder.

    With --runs FOLDER it takes every results folder in FOLDER instead and puts the runs side by
    side: what each exposed, proved, predicted and cost, which accuracies are within noise of each
    other, and which settings differ.
    """
    from weft.cli.terminal_output import say
    from weft.errors import ConfigError
    from weft.report.page import PAGE, write_page
    from weft.report.page.runs_side_by_side import RUNS_PAGE, write_runs_page
    from weft.report.paper_figures import write_figures

    if runs is not None:
        if folder is not None or latency is not None or figures:
            raise ConfigError("--runs takes a folder of results folders, and only --out beside it")
        path = out or runs / RUNS_PAGE
        left = write_runs_page(runs, path)
        if not quiet:
            say(f"Written: {path}", *(f"- left out: {sentence}" for sentence in left))
        return
    if folder is None:
        raise ConfigError("name a results folder, or with --runs a folder of several")
    path = out or folder / PAGE
    write_page(folder, path, latency=latency)
    written, remarks = [path], list[str]()
    if figures:
        drawn, remarks = write_figures(folder, path.parent / "figures", latency=latency)
        written += drawn
    if not quiet:
        say(*(f"Written: {file}" for file in written), *(f"- {remark}" for remark in remarks))
