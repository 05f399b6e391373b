"""``weft status`` and ``stop``: the runs of a federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.shared_kit_command_options import AsJson, KitFolder

if TYPE_CHECKING:
    from weft.network.console.shared_view_records import RunRow
    from weft.network.kits.kit_folder import Kit
    from weft.network.nvflare_processes.admin_session import RunInfo, Session


def status(kit: KitFolder, json: AsJson = False) -> None:
    """Say which parties are connected, how runs get on, for whom they wait, and who is next.

    With a submitter's kit the coordinator is asked. With the coordinator's own its files are
    enough, whether or not weft serve runs. With a site's kit, the runs that the site takes or took
    part in; nothing is asked then.
    """
    from weft import __version__
    from weft.cli.terminal_output import say, say_json
    from weft.network.kits.kit_folder import Kit

    kind = Kit.inspect(kit).kind
    if kind == "site":
        _say_own(Kit.open(kit), json)
        return
    parties, rows, trouble = _seen(kit) if kind == "coordinator" else _asked(kit)
    entries = [_entry(row) for row in rows]
    if json:
        say_json({"weft": __version__, "connected": parties, "runs": entries})
        return
    say(f"{trouble}." if trouble else f"Connected: {', '.join(parties) or 'no party'}.")
    if not entries:
        say("No run yet.")
    queued = sum(1 for entry in entries if entry["place"])
    for entry in entries:
        where = f" · {entry['progress']}" if entry["progress"] else ""
        why = f": {entry['sentence']}" if entry["state"] in ("failed", "interrupted") else ""
        place = f", {entry['place']} of {queued} in the queue" if entry["place"] else ""
        whose = f" by {entry['submitter']}" if entry["submitter"] else ""
        told = f"{entry['state']}{place}, submitted {entry['submitted']}{whose}"
        say(f"{entry['run']}: {told}{where}{why}")
        others = {name: v for name, v in entry["versions"].items() if v != __version__}
        if others:
            told = ", ".join(f"{name} {version}" for name, version in others.items())
            say(f"  other versions of Weft than here ({__version__}): {told}")
        if entry["wait"]:
            from weft.network.run_status_line import wait_text

            say(f"  {wait_text(entry['wait'])}")


def _asked(kit: Path) -> tuple[list[str], list[RunRow], str]:
    """Who is connected, and all runs, as the coordinator tells a submitter."""
    with _session(kit) as session:
        from weft.network.console.submitter_view import FollowedRun, told_runs

        return session.connected(), told_runs(session, lambda run: FollowedRun()), ""


def _seen(kit: Path) -> tuple[list[str], list[RunRow], str]:
    """The same from the coordinator's own files, and what is wrong with its process."""
    from weft.network.kits.kit_folder import Kit
    from weft.network.nvflare_processes import require_engine

    require_engine()
    from weft.network.console.coordinator_view import CoordinatorView

    view = CoordinatorView(Kit.open(kit)).look()
    connected = [site.name for site in view.sites if site.state == "connected"]
    return connected, view.runs, "" if view.state == "good" else view.sentence


def _say_own(kit: Kit, json: bool) -> None:
    """The runs of a site, from its own records."""
    import msgspec

    from weft.cli.terminal_output import say, say_json
    from weft.network.site_run_index import RunIndex

    entries = RunIndex(kit.home).entries()
    if json:
        say_json({"runs": [msgspec.to_builtins(entry) for entry in entries]})
        return
    if not entries:
        say("No run yet.")
    for entry in entries:
        ended = f"{entry.how} since {entry.ended}" if entry.ended else "under way"
        say(f"{entry.run}: {ended}, began {entry.began}")
    if any(not entry.ended for entry in entries):
        say(
            f"Drop a run that nobody will bring to its end with weft join {kit.path} --forget RUN, "
            "while no other weft join runs with this kit."
        )


def stop(
    kit: KitFolder,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="By default the one that is running.")
    ] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Give RUN up for good, running or not.")
    ] = False,
) -> None:
    """Stop a run; weft submit --resume RUN goes on with it. One in the queue is taken out of it.

    With --forget it is given up instead: its parties and the coordinator delete what they keep to
    go on with it, which holds secrets and ciphertext. Results that were brought back stay.
    """
    from weft.cli.terminal_output import say
    from weft.errors import ConfigError

    if forget:
        _forget(kit, run)
        return
    with _session(kit) as session:
        jobs = [found for found in session.runs() if found.run == (run or found.run)]
        if run is None:
            # Others' runs are not meant, nor could they be stopped.
            jobs = [found for found in jobs if found.submitter in ("", session.submitter)]
        queued = [found for found in jobs if found.waits]
        going = [found for found in jobs if not found.waits and _goes_on(session, found)]
        # One that waits is meant only by its name.
        chosen = going if run is None else [*going, *queued]
        if not chosen:
            what = "no run is" if run is None else f"run {run} is not"
            raise ConfigError(
                f"{what} running; weft status lists what there is"
                + (", name one to take it out of the queue" if queued else "")
            )
        if len(chosen) > 1 and run is None:
            names = ", ".join(found.run for found in chosen)
            raise ConfigError(f"several runs are running ({names}); name one")
        for found in chosen:
            session.stop(found.job)
    stopped = chosen[0].run
    if not going:
        say(
            f"Run {stopped} is taken out of the queue; weft submit --resume {stopped} puts it back."
        )
        return
    say(
        f"Run {stopped} is stopped; weft submit with --resume {stopped} goes on, weft stop {kit} "
        f"{stopped} --forget gives it up."
    )


def _forget(kit: Path, run: str | None) -> None:
    """``weft stop --forget``."""
    from weft.cli.terminal_output import say
    from weft.errors import ConfigError
    from weft.network.submitted_task import check_run

    if run is None:
        raise ConfigError("name the run that is to be given up; weft status lists them")
    check_run(run)
    with _session(kit) as session:
        from weft.network.nvflare_processes.admin_session import AbandonRequest

        deaf = AbandonRequest(session, run).send()
    say(f"Run {run} is given up; the coordinator keeps nothing of it.")
    for party, why in sorted(deaf.items()):
        say(
            f"- {party} does not know it ({why}) and keeps its part; there, weft join KIT --forget "
            f"{run} deletes it"
        )


def _goes_on(session: Session, run: RunInfo) -> bool:
    """Whether there is something left to stop; a job outlives its run by seconds."""
    if run.ended or run.forgets:
        return False
    report = session.progress(run.job, 0)
    return report is None or report.state in ("starting", "running")


def _session(kit: Path) -> Session:
    from weft.network.kits.kit_folder import Kit
    from weft.network.nvflare_processes import require_engine

    require_engine()
    opened = Kit.open(kit, "submitter")
    from weft.network.nvflare_processes.admin_session import Session

    return Session(opened)


#: What weft status tells of a run.
_TOLD = (
    *("run", "state", "sentence", "submitted", "submitter", "place", "progress", "versions"),
    "wait",
)


def _entry(row: RunRow) -> dict[str, Any]:
    from msgspec import to_builtins

    plain = to_builtins(row)
    return {name: plain[name] for name in _TOLD}
