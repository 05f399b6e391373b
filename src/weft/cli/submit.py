"""``weft submit``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.network import KitFolder

if TYPE_CHECKING:
    from weft.network.run_progress import Report


def submit(
    context: typer.Context,
    kit: KitFolder,
    config: Annotated[Path, typer.Argument(help="What to train, without any party's files.")],
    out: Annotated[
        Path | None, typer.Option(help="New results folder; by default results/NAME.")
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Keys of a party that gets the model, to open it here."
        ),
    ] = None,
    party: Annotated[str | None, typer.Option(metavar="NAME", help="Whose keys these are.")] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on with a run that was interrupted.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing, unless something is wrong.")
    ] = False,
) -> None:
    """Train over the network, with the parties that joined.

    The config is that of weft train without files: [data], [model], [solver], [privacy], and
    [[party]] with names only, to take some of the parties that are connected. A section of a job
    kind that a plug-in adds, such as [neural] of weft neural run, takes the place of [model] and
    [solver].

    Follows the run and brings back its history, plot, summary and report.html; and the model, if
    --keys and --party are those of a party that gets it. Parties that get the model have it on
    their sites in any case. A model that is sealed to nobody, as the server's network is, always
    comes along.

    If the coordinator's process dies, the run is handed in again and goes on where it was. If this
    command is interrupted, the run goes on: --resume RUN follows it again, weft stop ends it.
    """
    import tempfile
    from contextlib import ExitStack

    from weft.network.engine import require_engine

    require_engine()
    from weft.cli.console import RunLine, say, say_json
    from weft.config.read_config import read_any_config
    from weft.errors import ConfigError, ProtocolError
    from weft.network.installed_job_kinds import job_kind_of
    from weft.network.kits.open_kit import Kit
    from weft.network.run_description import check_run
    from weft.network.submitter_results import write_out
    from weft.network.task_from_config import new_run, task_of
    from weft.storage.atomic_folder import refuse_existing

    opened = Kit.open(kit, "submitter")
    if (keys is None) != (party is None):
        raise ConfigError("--keys and --party belong together: name both, or neither")
    plan = read_any_config(config, deployed=True)
    folder = out or Path("results") / plan.folder_name
    refuse_existing(folder)
    from weft.network.engine.admin_session import Session
    from weft.network.engine.run_supervisor import Supervisor

    run = new_run(plan) if resume is None else check_run(resume)
    with ExitStack() as stack:
        session = stack.enter_context(Session(opened))
        task = task_of(plan, session.connected())
        if resume is not None and all(found.run != run for found in session.runs()):
            raise ConfigError(f"the coordinator knows no run '{run}'; weft status lists them")
        # From here on it is the supervisor's.
        stack.pop_all()
    kind = job_kind_of(task)
    with (
        tempfile.TemporaryDirectory() as into,
        RunLine(run, kind.beginning, quiet=quiet or json) as line,
    ):
        line.say(f"run {run} with {', '.join(task.parties)}")
        supervisor = Supervisor(opened, run, task, line.say, line.follow, session=session)
        try:
            ended = supervisor.run_to_end(Path(into))
        except KeyboardInterrupt:
            line.say(
                f"run {run} goes on at the coordinator; follow it with --resume {run}, or end it "
                f"with weft stop {kit}"
            )
            sys.exit(130)
        if ended.state != "over":
            raise ProtocolError(_why_not(ended, kit))
        summary, remarks = write_out(
            Path(into), folder, plan, keys, party, command=context.obj or ""
        )
    if json:
        say_json({"folder": str(folder), "run": run, **summary})
    elif not quiet:
        say(*kind.ending_text(folder, summary, remarks))


def _why_not(ended: Report, kit: Path) -> str:
    """Why there is no result, and what can be done."""
    run = ended.run
    if ended.state == "stopped":
        return f"run {run} was stopped; go on with --resume {run}"
    if not ended.kept:
        return f"{ended.sentence} (nothing was begun; submit it anew when that is mended)"
    return (
        f"{ended.sentence} (run {run} is kept: --resume {run} goes on if that can be mended, weft "
        f"stop {kit} {run} --forget gives it up)"
    )
