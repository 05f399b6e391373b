"""``weft join``, ``status`` and ``stop``: a federation of processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from weft.network.console.federation_view import RunRow
    from weft.network.engine.admin_session import RunInfo, Session
    from weft.network.engine.site_process import SiteProcess
    from weft.network.join_settings import JoinSettings
    from weft.network.kits.open_kit import Kit
    from weft.network.site_endpoint import Site

KitFolder = Annotated[
    Path,
    typer.Argument(
        metavar="KIT", help="Start-up kit, from 'weft federation new', or folder, from 'accept'."
    ),
]
LogOption = Annotated[
    Literal["text", "json"] | None,
    typer.Option("--log", help="Print events as text or JSON lines; kept, at first text."),
]
MetricsFile = Annotated[
    Path | None,
    typer.Option("--metrics", metavar="FILE", help="Write metrics for Prometheus; not kept."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object only.")]


def join(
    kit: KitFolder,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="This site's table, or a database's address; several times for several.",
        ),
    ] = None,
    new: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Its table of new samples, for joint predictions; may be repeated."
        ),
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Column of the sample ids.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of the labels, if it has any.")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="This site's keys, of 'weft keys'.")
    ] = None,
    party: Annotated[
        str | None, typer.Option(metavar="NAME", help="By default the kit's name.")
    ] = None,
    roster: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The roster that all members signed.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What this site insists on.")
    ] = None,
    reading: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="How the tables are read: keys as in [[party]]."),
    ] = None,
    no_policy: Annotated[
        bool, typer.Option("--no-policy", help="Give up the policy that was named before.")
    ] = False,
    revoked: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Revocations of rosters, to be kept for good."),
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="For a coordinator that is not there yet.")
    ] = 60.0,
    log: LogOption = None,
    metrics: MetricsFile = None,
    forget: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="Do not join, but drop a run with all that is kept of it."
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print what is wrong with the data as one JSON object.")
    ] = False,
) -> None:
    """Take part in the runs of a federation with this site's data, until Ctrl-C or SIGTERM.

    Connects to the coordinator and answers it; opens no port to others. Data, keys, roster and
    policy are read before anything is connected, and stay here; all that is wrong with the data is
    listed at once. Where they lie is kept in the kit:
    the next time, weft join KIT is enough. Tables of --new are read anew for every joint prediction
    (weft predict --network). A roster and a policy that were named once are kept
    until others are, or --no-policy is given.

    What this site refuses, by its policy or the roster, is refused here, with a reason, whatever
    the coordinator asks. Without either it keeps to careful terms: it shows others fewer sums about
    its samples than they lack columns, unless a policy or roster says allow_exposure = true.

    The site remembers the highest serial of its federation's rosters, and refuses older ones. A
    revocation (weft federation revoke) is checked by the roster that it withdraws, and counts from
    the next run on.

    A run that nobody will bring to its end keeps its secrets here. weft status KIT lists the runs,
    and weft join KIT --forget RUN drops one for good; nobody can take it up again.

    With --log json every event is one JSON object, with the run that it is about, and nothing in it
    about samples: such sentences are in KIT/weft/events.log only.
    """
    from weft.cli.console import say
    from weft.network.engine import check_engine
    from weft.network.kits.open_kit import KEYS, ROSTER, SITE_KIT, Kit

    check_engine()
    opened = Kit.open(kit, "site")
    opened.prepare()
    if forget is not None:
        _drop(opened, forget)
        return
    from weft.network.join_settings import exclusive_use, keep_revocations, write_settings

    # A folder that was founded by letters has both; what is named explicitly counts.
    if (kit / SITE_KIT).is_dir():
        keys, roster = keys or kit / KEYS, roster or kit / ROSTER
    files = {"keys": keys, "roster": roster, "policy": policy, "reading": reading}
    settings = _settled(
        opened,
        {
            "party": party,
            "data": None if not data else [_full(name) for name in data],
            "new": None if not new else [_full(name, "--new") for name in new],
            "id": id,
            "label": label,
            "log": log,
            **{
                name: None if path is None else str(path.absolute()) for name, path in files.items()
            },
        },
        no_policy=no_policy,
    )
    # A site that runs with this kit already heeds them from its next run on.
    for path in keep_revocations(settings, opened, revoked or []):
        say(f"{path} changes nothing: it names an older roster, which does not count here anyway.")
    with exclusive_use(opened):
        site = _opened(settings, opened, json=json)
        write_settings(opened, settings)
        from weft.network.engine import serve_and_join as processes

        try:
            processes.join(
                opened, site, wait, settings.log, None if metrics is None else metrics.absolute()
            )
        finally:
            site.close()


def _opened(settings: JoinSettings, kit: Kit, *, json: bool) -> Site | SiteProcess:
    """The site, in a process of its own; where it cannot be opened, this one says why."""
    from weft.cli.console import say
    from weft.network.engine.site_process import open_apart

    apart = open_apart(settings, kit, say)
    if apart is not None:
        return apart
    from weft.cli.data_problems import refuse_files
    from weft.data.file_findings import FoundProblems
    from weft.network.open_site import open_site

    try:
        return open_site(settings, kit, say)
    except FoundProblems as problems:
        refuse_files(problems, settings.reading or "a file for --reading", json=json)


def _full(name: str, option: str = "--data") -> str:
    """A table's full path, or a database's address, if it holds no credentials."""
    from weft.data.table_sources import Database, source_of
    from weft.errors import ConfigError

    try:
        source = source_of(name)
    except ConfigError as error:
        raise ConfigError(f"{option} {error}") from None
    return source.address if isinstance(source, Database) else str(source.absolute())


def _drop(kit: Kit, run: str) -> None:
    """``weft join --forget``."""
    from weft.cli.console import say
    from weft.network.discard_run import leave_run
    from weft.network.join_settings import exclusive_use
    from weft.network.run_description import check_run

    with exclusive_use(kit):
        leave_run(kit.home, check_run(run))
    say(
        f"Run {run} is dropped: this site takes no part in it any more, and what it kept of it is "
        "deleted. Start weft join again for other runs."
    )


#: What protects a site: named once, it holds until another is named.
_PROTECTING = ("roster", "policy")


def _settled(kit: Kit, given: dict[str, Any], *, no_policy: bool = False) -> JoinSettings:
    """What was told now; what was told when the site joined last, where nothing is said now.

    Of data that are named anew, nothing is taken over but what protects them.
    """
    import msgspec

    from weft.cli.console import say
    from weft.errors import ConfigError
    from weft.network.join_settings import JoinSettings, read_settings

    told = {name: value for name, value in given.items() if value is not None}
    if told.get("party", kit.name) != kit.name:
        raise ConfigError(
            f"{kit.path} is the kit of '{kit.name}', by which name the others know it; party "
            f"'{told['party']}' needs a kit of its own"
        )
    if no_policy and "policy" in told:
        raise ConfigError("--policy and --no-policy exclude each other; give one of them")
    before = read_settings(kit)
    kept = {} if before is None else {name: getattr(before, name) for name in _PROTECTING}
    if no_policy:
        kept["policy"] = None
    if before is not None:
        told.setdefault("log", before.log)
    for name, path in kept.items():
        if path is not None and name not in told:
            say(f"The {name} of the last time counts: {path}")
    if before is not None and "data" not in told:
        return msgspec.structs.replace(before, **{**kept, **told})
    for name in ("data", "id", "keys"):
        if name not in told:
            raise ConfigError(
                f"{kit.path} does not know this site's {name} yet; name it with --{name}"
            )
    told.setdefault("party", kit.name)
    return JoinSettings(**{**kept, **told})


def status(kit: KitFolder, json: AsJson = False) -> None:
    """Say which parties are connected, how runs get on, for whom they wait, and who is next.

    With a submitter's kit the coordinator is asked. With the coordinator's own its files are
    enough, whether or not weft serve runs. With a site's kit, the runs that the site takes or took
    part in; nothing is asked then.
    """
    from weft import __version__
    from weft.cli.console import say, say_json
    from weft.network.kits.open_kit import Kit

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
            from weft.network.status_text import wait_text

            say(f"  {wait_text(entry['wait'])}")


def _asked(kit: Path) -> tuple[list[str], list[RunRow], str]:
    """Who is connected, and all runs, as the coordinator tells a submitter."""
    with _session(kit) as session:
        from weft.network.console.submitter_view import FollowedRun, told_runs

        return session.connected(), told_runs(session, lambda run: FollowedRun()), ""


def _seen(kit: Path) -> tuple[list[str], list[RunRow], str]:
    """The same from the coordinator's own files, and what is wrong with its process."""
    from weft.network.engine import require_engine
    from weft.network.kits.open_kit import Kit

    require_engine()
    from weft.network.console.coordinator_view import CoordinatorView

    view = CoordinatorView(Kit.open(kit)).look()
    connected = [site.name for site in view.sites if site.state == "connected"]
    return connected, view.runs, "" if view.state == "good" else view.sentence


def _say_own(kit: Kit, json: bool) -> None:
    """The runs of a site, from its own records."""
    import msgspec

    from weft.cli.console import say, say_json
    from weft.network.run_index import RunIndex

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
    from weft.cli.console import say
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
    from weft.cli.console import say
    from weft.errors import ConfigError
    from weft.network.run_description import check_run

    if run is None:
        raise ConfigError("name the run that is to be given up; weft status lists them")
    check_run(run)
    with _session(kit) as session:
        from weft.network.engine.admin_session import AbandonRequest

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
    from weft.network.engine import require_engine
    from weft.network.kits.open_kit import Kit

    require_engine()
    opened = Kit.open(kit, "submitter")
    from weft.network.engine.admin_session import Session

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
