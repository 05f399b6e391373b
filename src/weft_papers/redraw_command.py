"""``weft reproduce all``: every table and figure of the papers, from the runs that are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

EPILOG = """Example, in a clone of the repository: weft reproduce all --from-archive; then git diff
shows whether a table differs from the one that is kept."""

#: Of a paper's folder, the file with its runs.
ARCHIVE = "runs.jsonl"


def redraw_all(
    from_archive: Annotated[
        bool,
        typer.Option(
            "--from-archive",
            help="Draw what the folder's archives hold, and run nothing. Runs are made by the "
            "commands of the papers.",
        ),
    ] = False,
    results: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the papers' folders are.")
    ] = Path("docs/results"),
) -> None:
    """Tables and figures of all papers, from the runs that are kept beside them.

    A paper's folder keeps its finished runs as runs.jsonl, a run a line. This writes page, tables
    and figures anew from these, in a minute or two.
    """
    from weft.cli.terminal_output import say
    from weft.errors import ConfigError, DataError

    if not from_archive:
        raise ConfigError(
            "'weft reproduce all' draws finished runs: give --from-archive, or run a paper's "
            "experiments with 'weft reproduce hyfdca', 'hyfem' or 'fedhybrid'"
        )
    there = [name for name in _PAPERS if (results / name / ARCHIVE).is_file()]
    if not there:
        raise DataError(
            f"{results} holds no folder with {ARCHIVE} of a paper ({', '.join(_PAPERS)}); give "
            "--results, or work in a clone of the repository"
        )
    for name in there:
        remarks = _PAPERS[name](results / name)
        say(f"{name}: written anew from {results / name / ARCHIVE}", *remarks)
    for name in _PAPERS:
        if name not in there:
            say(f"{name}: nothing to draw, there is no {results / name / ARCHIVE}")


def _hyfdca(folder: Path) -> list[str]:
    from weft_papers.hyfdca.report import redraw

    return redraw(folder)


def _hyfem(folder: Path) -> list[str]:
    from weft_papers.hyfem.batched_networks.report import write_report

    return write_report(folder)


def _fedhybrid(folder: Path) -> list[str]:
    from weft_papers.fedhybrid.replication_results_page import write_report

    return write_report(folder)


_PAPERS: dict[str, Callable[[Path], list[str]]] = {
    "hyfdca": _hyfdca,
    "fedhybrid": _fedhybrid,
    "hyfem": _hyfem,
}
