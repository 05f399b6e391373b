"""``weft prune``: delete what a coordinator keeps of runs that are over."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.shared_kit_command_options import AsJson, KitFolder


def prune(
    kit: KitFolder,
    older_than: Annotated[
        float | None,
        typer.Option(metavar="DAYS", min=0, help="Runs that are over since more days than this."),
    ] = None,
    keep: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="All but the last N runs that are over.")
    ] = None,
    recordings: Annotated[
        bool, typer.Option("--recordings", help="Also those whose messages are kept, for audits.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Delete what a coordinator keeps of runs that are over, while it does not serve.

    That is the results that submitters fetch, and the engine's notes; fetched results, models and
    ledgers lie elsewhere, and stay. With both options a run must be old, and not among the last N.
    Runs that can go on are kept, for sites keep secrets of them: weft stop KIT RUN --forget gives
    one up.
    """
    import time

    from weft.cli.terminal_output import say, say_json
    from weft.errors import ConfigError
    from weft.network.kits.kit_folder import Kit
    from weft.network.nvflare_processes import require_engine
    from weft.report.number_format import count

    if older_than is None and keep is None:
        raise ConfigError("name what is old with --older-than DAYS, --keep N, or both")
    require_engine()
    opened = Kit.open(kit, "coordinator")
    from weft.network.nvflare_processes.prune_runs import kept_runs, old_runs

    known = kept_runs(opened)
    old = old_runs(known, time.time(), older_than=older_than, keep=keep, recordings=recordings)
    size = sum(one.size for one in old)
    for one in old if not dry_run else ():
        one.delete()
    going = sorted(one.run for one in known if one.ended is None)
    if json:
        names = {"deleted": [one.run for one in old], "can_go_on": going}
        say_json({**names, "bytes": size, "left": len(known) - len(old), "dry_run": dry_run})
        return
    say(
        f"{'Would delete' if dry_run else 'Deleted'} {count(len(old), 'run')} "
        f"({size / 1e6:.1f} MB), {count(len(known) - len(old), 'run')} left.",
        *(f"- {one.run}" for one in old),
    )
    if going:
        say(f"Not over, and kept whatever their age: {', '.join(going)}.")
