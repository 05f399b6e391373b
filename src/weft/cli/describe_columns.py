"""``weft describe``: the columns of all parties together, before anybody trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from weft.config.read_config import Config
    from weft.network.submitted_task import DescribeTask, LinearTask

#: Files of an output folder.
_VALUES, _PAGE = "description.json", "description.html"


def describe(
    config: Annotated[Path, typer.Argument(help="The federation's config.toml.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="New folder for description.html and .json."),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keys that 'weft keys new' made; by default new ones for this run alone.",
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where parties remember it; by default ledger/ beside the config.",
        ),
    ] = None,
    network: Annotated[
        Path | None,
        typer.Option(metavar="KIT", help="Ask the sites that joined, with a submitter's kit."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="With --network: go on with one that was interrupted."),
    ] = None,
    correlations: Annotated[
        bool,
        typer.Option(
            "--correlations", help="Also correlations, by a sealed run; takes allow_second_moments."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Describe the columns of all parties together, before anybody trains.

    Of every column: how many cells there are and how many are blank, mean, standard deviation,
    quantiles and a histogram, over all its holders and every sample once. Of categories and
    outcomes: how many samples have which level, outcomes also by site. With --out a page shows
    all of it in pictures.

    No count is of fewer than min_batch samples of a party. What a party holds alone, or with too
    few others for a sum, is told if allow_site_statistics is agreed on. Parties remember in their
    ledgers whom they described: a second description, or training, with a few samples more or
    fewer is refused.

    With --correlations a sealed run follows, which opens XᵀX to this process and trains next to
    nothing; its guard refuses sparse columns and outliers.

    With --network the parties are sites that joined, and the config is one for weft submit; they
    take part if their roster and policy have "describe" among kinds. Correlations are then a run of
    their own, after which every site that gets the model has correlations.csv beside it.
    """
    from weft.cli.terminal_output import say, say_json
    from weft.errors import ConfigError
    from weft.storage.atomic_folder import refuse_existing

    if out is not None:
        refuse_existing(out)
    if network is None:
        told = _described_here(config, keys, ledger, correlations=correlations, json=json)
    elif keys is not None or ledger is not None:
        raise ConfigError("--keys and --ledger are for one process; sites of a network have theirs")
    else:
        told = _described_by_sites(config, network, resume, correlations=correlations, quiet=json)
    if out is not None:
        write_description(out, told)
    if json:
        say_json(told)
        return
    show_description(told)
    if out is not None:
        say("", f"Written: {out / _PAGE}")


def _described_here(
    config: Path, keys: Path | None, ledger: Path | None, *, correlations: bool, json: bool
) -> dict[str, Any]:
    """With all parties in this process."""
    from weft.cli.data_problems import refuse_files
    from weft.config.read_config import read_config
    from weft.data.findings_with_config_fixes import FoundProblems
    from weft.federation.column_correlations_in_one_process import correlate_tiles
    from weft.federation.local_descriptive_statistics import describe_tiles

    plan = read_config(config)
    try:
        problem = _with_blanks(plan).problem()
    except FoundProblems as problems:
        refuse_files(problems, config.name, json=json)
    table = (problem.tiles, problem.preprocessing, problem.settings)
    own = plan.load_keys(problem.tiles, keys)
    consents, books = plan.load_consents(problem.tiles), plan.ledger(ledger)
    found, _ = describe_tiles(*table, consents=consents, keys=own, ledger=books, name=plan.name)
    told = found.to_dict()
    if correlations:
        told["correlations"] = correlate_tiles(*table, consents=consents, keys=own, ledger=books)
    return told


def _described_by_sites(
    config: Path, kit: Path, resume: str | None, *, correlations: bool, quiet: bool
) -> dict[str, Any]:
    """By the sites of a network."""
    from weft.network.nvflare_processes import require_engine

    require_engine()
    from weft.cli.submit_and_follow import followed_run
    from weft.config.read_config import read_config
    from weft.network.descriptive_statistics_job import (
        make_correlation_run,
        make_description,
        read_description,
    )
    from weft.network.kits.kit_folder import Kit
    from weft.network.task_from_config import parties_of

    opened = Kit.open(kit, "submitter")
    plan = read_config(config, deployed=True)

    def make_task(connected: Sequence[str], run: str) -> DescribeTask:
        return make_description(plan, parties_of(plan, connected))

    def make_second(connected: Sequence[str], run: str) -> LinearTask:
        return make_correlation_run(plan, parties_of(plan, connected))

    with followed_run(opened, plan, make_task, resume=resume, quiet=quiet) as back:
        told = read_description(back.folder)
    if correlations:
        # Readers of the model have them, and nobody else: the coordinator's results hold none.
        with followed_run(opened, plan, make_second, quiet=quiet) as second:
            told["correlation_run"] = second.run
    return told


def _with_blanks(plan: Config) -> Config:
    """The config, in which blank cells are counted and not refused."""
    from dataclasses import replace

    import msgspec

    data = msgspec.structs.replace(plan.file.data, missing="mean")
    return replace(plan, file=msgspec.structs.replace(plan.file, data=data))


def write_description(folder: Path, told: dict[str, Any]) -> None:
    """A folder with the page, and what is on it."""
    from weft.report.json_safe_and_rounded_values import json_text
    from weft.report.page.descriptive_statistics_page import description_page
    from weft.storage.atomic_folder import building

    with building(folder) as draft:
        (draft / _VALUES).write_text(json_text(told), encoding="utf-8")
        (draft / _PAGE).write_text(description_page(told), encoding="utf-8")


def show_description(told: dict[str, Any]) -> None:
    """Print tables of what was told."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from weft.cli.terminal_output import say
    from weft.privacy.ledger.expected_exposure_text import item
    from weft.report.descriptive_statistics_text import (
        level_rows,
        number_rows,
        outcome_rows,
        remarks,
    )

    say(
        f"{told['name']}: {len(told['parties'])} parties, {told['samples']:,} samples, "
        f"{len(told['columns'])} columns of numbers and {len(told['categories'])} of levels"
    )
    tables = (
        (("column", "cells", "missing", "mean", "SD", "median"), number_rows(told)),
        (("level", "samples", "share"), level_rows(told)),
        (("outcome", "samples", "share"), outcome_rows(told)),
    )
    for titles, rows in tables:
        if not rows:
            continue
        grid = Table(box=SIMPLE_HEAD)
        for place, title in enumerate(titles):
            grid.add_column(title, justify="right" if place else "left", no_wrap=place > 0)
        for row in rows:
            grid.add_row(*row)
        Console(markup=False).print(grid)
    say(*(line for said in remarks(told) for line in item(said)))
