"""``weft join``: take part in a federation with this site's data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.shared_kit_command_options import KitFolder, LogOption, MetricsFile

if TYPE_CHECKING:
    from weft.network.kits.kit_folder import Kit
    from weft.network.nvflare_processes.on_demand_worker_process import SiteProcess
    from weft.network.saved_join_settings import JoinSettings
    from weft.network.site_answers_envelopes import Site


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
    from weft.cli.terminal_output import say
    from weft.network.kits.kit_folder import KEYS, ROSTER, SITE_KIT, Kit
    from weft.network.nvflare_processes import check_engine

    check_engine()
    opened = Kit.open(kit, "site")
    opened.prepare()
    if forget is not None:
        _drop(opened, forget)
        return
    from weft.network.saved_join_settings import exclusive_use, keep_revocations, write_settings

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
        from weft.network.nvflare_processes import serve_and_join as processes

        try:
            processes.join(
                opened, site, wait, settings.log, None if metrics is None else metrics.absolute()
            )
        finally:
            site.close()


def _opened(settings: JoinSettings, kit: Kit, *, json: bool) -> Site | SiteProcess:
    """The site, in a process of its own; where it cannot be opened, this one says why."""
    from weft.cli.terminal_output import say
    from weft.network.nvflare_processes.on_demand_worker_process import open_apart

    apart = open_apart(settings, kit, say)
    if apart is not None:
        return apart
    from weft.cli.data_problems import refuse_files
    from weft.data.findings_with_config_fixes import FoundProblems
    from weft.network.open_site import open_site

    try:
        return open_site(settings, kit, say)
    except FoundProblems as problems:
        refuse_files(problems, settings.reading or "a file for --reading", json=json)


def _full(name: str, option: str = "--data") -> str:
    """A table's full path, or a database's address, if it holds no credentials."""
    from weft.data.file_or_database_address import Database, source_of
    from weft.errors import ConfigError

    try:
        source = source_of(name)
    except ConfigError as error:
        raise ConfigError(f"{option} {error}") from None
    return source.address if isinstance(source, Database) else str(source.absolute())


def _drop(kit: Kit, run: str) -> None:
    """``weft join --forget``."""
    from weft.cli.terminal_output import say
    from weft.network.discard_run import leave_run
    from weft.network.saved_join_settings import exclusive_use
    from weft.network.submitted_task import check_run

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

    from weft.cli.terminal_output import say
    from weft.errors import ConfigError
    from weft.network.saved_join_settings import JoinSettings, read_settings

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
