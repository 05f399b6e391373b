"""``weft train``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer


def train(
    config: Annotated[Path, typer.Argument(help="The federation's config.toml.")],
    out: Annotated[
        Path | None, typer.Option(help="New results folder; by default results/NAME.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint of an interrupted run.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing, unless something is wrong.")
    ] = False,
) -> None:
    """Train the model that a config describes, all parties in this process.

    Stops at the certified gap that the config asks for and writes the model, the history (CSV and
    Parquet), a convergence plot, a summary and a copy of the config. The folder appears when
    everything is in it. With checkpoint_every in the config's [solver] section an interrupted run
    can go on with --resume and ends with the same bits.
    """
    from weft.algorithms.base import Checkpointing
    from weft.cli.console import ProgressLine, say, say_json
    from weft.config.reading import read_config
    from weft.errors import ConfigError
    from weft.federation import Federation
    from weft.report.folder import building, refuse_existing, write_results
    from weft.report.summary import certificate_sentence, shortfall

    plan = read_config(config)
    folder = out or Path("results") / plan.folder_name
    store = folder.with_name(f"{folder.name}.checkpoints")
    if not resume:
        refuse_existing(folder)
        if store.exists():
            raise ConfigError(
                f"{store} holds the checkpoint of an interrupted run; go on with --resume, or "
                "delete that folder"
            )
    problem = plan.problem()
    checkpointing = None
    if resume or plan.checkpoint_every is not None:
        checkpointing = Checkpointing(store, plan.checkpoint_every or 100, resume)
    federation = Federation(problem.tiles, problem.preparation, store=store)
    if checkpointing is not None and not resume:
        # Owner-only: checkpoints hold dual variables, which tell labels.
        store.mkdir(mode=0o700, parents=True)
    try:
        with ProgressLine(quiet=quiet or json) as line:
            trained = federation.train(problem.settings, progress=line, checkpointing=checkpointing)
    except BaseException:
        if store.is_dir() and not any(store.iterdir()):
            store.rmdir()
        raise
    with building(folder, replace=resume) as draft:
        summary, remarks = write_results(
            draft, trained, problem.settings, name=plan.name, config=config
        )
    if checkpointing is not None:
        shutil.rmtree(store, ignore_errors=True)
    if json:
        say_json({"folder": str(folder), **summary})
    elif not quiet:
        cost = summary["cost"]
        say(
            f"{plan.name}: {certificate_sentence(summary)}.",
            f"{summary['iterations']} iterations, {cost['round_trips']} round trips, "
            f"{cost['bytes_down'] + cost['bytes_up']:,} bytes, {cost['wall_seconds']:.1f} s; "
            f"stopped by: {summary['stopped']}.",
            *(f"- {note}" for note in [shortfall(summary), *summary["notes"], *remarks] if note),
            f"Model, history, plot and summary are in {folder}.",
        )
