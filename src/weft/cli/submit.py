"""``weft submit``: train over the network, with the parties that joined."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft.cli.shared_kit_command_options import KitFolder

#: Exit code of a run that is over without what was asked for.
INCOMPLETE = 3


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
) -> int:
    """Train over the network, with the parties that joined.

    The config is that of weft train without files: [data], [model], [solver], [privacy], and
    [[party]] with names only, to take some of the parties that are connected. A section of a job
    kind that a plug-in adds, such as [neural] of weft neural run, takes the place of [model] and
    [solver].

    Follows the run and brings back its history, summary and report.html; and the model, if
    --keys and --party are those of a party that gets it. Parties that get the model have it on
    their sites in any case. A model that is sealed to nobody, as the server's network is, always
    comes along.

    If the coordinator's process dies, the run is handed in again and goes on where it was. If this
    command is interrupted, the run goes on: --resume RUN follows it again, weft stop ends it.

    The exit code is 0 if the run reached what was asked for, 3 if it is over but its model is not
    certified to the gap asked for or lacks a party's part, and 2 if there is no result. --json says
    the same as "complete", with the reasons as "shortcomings".
    """
    from weft.network.nvflare_processes import require_engine

    require_engine()
    from weft.cli.submit_and_follow import followed_run
    from weft.cli.terminal_output import say, say_json
    from weft.config.read_config import read_any_config
    from weft.errors import ConfigError
    from weft.network.installed_job_kinds import kind_of_config
    from weft.network.kits.kit_folder import Kit
    from weft.network.task_from_config import task_of
    from weft.network.write_submitter_results import write_out
    from weft.storage.atomic_folder import refuse_existing

    opened = Kit.open(kit, "submitter")
    if (keys is None) != (party is None):
        raise ConfigError("--keys and --party belong together: name both, or neither")
    plan = read_any_config(config, deployed=True)
    folder = out or Path("results") / plan.folder_name
    refuse_existing(folder)
    with followed_run(
        opened,
        plan,
        lambda connected, run: task_of(plan, connected),
        resume=resume,
        quiet=quiet or json,
    ) as back:
        summary, remarks = write_out(
            back.folder, folder, plan, keys, party, command=context.obj or ""
        )
    kind = kind_of_config(plan)
    short = kind.shortcomings(summary)
    if json:
        told = {"folder": str(folder), "run": back.run, "complete": not short}
        say_json({**told, "shortcomings": short, **summary})
    elif not quiet:
        say(*kind.ending_text(folder, summary, remarks))
    return INCOMPLETE if short else 0
