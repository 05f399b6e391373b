"""``weft federation amend``, ``move``, ``follow``, ``restored``: members or machines change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft.cli.federation_kits import (
    PlanFile,
    RequestsFolder,
    authority_words,
    parcel_words,
    requested_keys,
)
from weft.cli.federation_rosters import day_of

life = typer.Typer(rich_markup_mode="markdown")

_Roles = list[str] | None


@life.command(epilog="Example: weft federation amend roster.json next.json west.json --labels west")
def amend(
    roster: Annotated[Path, typer.Argument(help="The roster that counts now.")],
    target: Annotated[Path, typer.Argument(metavar="NEXT", help="New file for the next one.")],
    cards: Annotated[
        list[Path] | None,
        typer.Argument(help="Cards of members that come, or that have new keys."),
    ] = None,
    remove: Annotated[
        _Roles, typer.Option(metavar="NAME", help="A member that leaves; may be repeated.")
    ] = None,
    labels: Annotated[
        _Roles, typer.Option(metavar="NAME", help="Who of those that come brings labels.")
    ] = None,
    model: Annotated[
        _Roles, typer.Option(metavar="NAME", help="Who of those that come gets the model.")
    ] = None,
    matching: Annotated[
        _Roles, typer.Option(metavar="NAME", help="Who of those that come holds a matching key.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="DAY", help="The last day on which it counts; default: in a year."),
    ] = None,
) -> None:
    """Draft the next roster of a federation: same terms and roles, other members or keys.

    A card of a member takes the place of its keys; any other card adds a member, which brings data
    and no more than options say. The serial is one higher, so that sites refuse the old roster once
    they have seen this one. It counts when every member has signed it, the new ones too.
    """
    from weft.cli.terminal_output import say
    from weft.privacy.agreement import read_card, read_roster, write_roster
    from weft.privacy.agreement.cards_and_roster_drafts import amend_roster

    before = read_roster(roster)
    drafted = amend_roster(
        before,
        [read_card(path) for path in cards or ()],
        remove=remove or (),
        labels=labels or (),
        model=model or (),
        matching=matching or (),
        expires=day_of(expires),
    )
    write_roster(target, drafted, new=True)
    old, new = before.members, drafted.members
    changed = [name for name in new if name in old and new[name].identity != old[name].identity]
    said = {
        "comes": [name for name in new if name not in old],
        "leaves": [name for name in old if name not in new],
        "has new keys": changed,
    }
    say(
        f"{target}: serial {drafted.charter.serial}, {len(new)} members, signed by nobody yet; "
        f"roster {drafted.fingerprint}",
        *(f"- {name} {what}" for what, names in said.items() for name in names),
        f"- every member signs it: weft federation sign {target} --keys FOLDER --party NAME",
        f"- then '{next(iter(new))}' makes a run secret for all: weft keys new KEYS --renew-run "
        f"--roster {target}",
    )


@life.command(epilog="Example: weft federation move federation.toml --out kits --requests requests")
def move(
    plan: PlanFile,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The folder that 'weft federation new' made.")
    ] = Path("kits"),
    requests: RequestsFolder = None,
) -> None:
    """Let the coordinator be reached at another host or port, which FEDERATION.toml has already.

    Makes a kit for the new host, and a letter for all sites and submitters, which the authority
    signs; nothing in the letter is secret.
    """
    from weft.cli.terminal_output import say
    from weft.network.kits.federation_plan import read_plan
    from weft.network.kits.provisioning import move_coordinator

    federation = read_plan(plan)
    made, letter = move_coordinator(federation, out, requested_keys(requests))
    say(
        f"The coordinator moves to {federation.host}:{federation.port}.",
        f"- send {letter} to all sites and submitters; there: weft federation follow KIT "
        f"{letter.name}",
        *authority_words(made),
        *parcel_words(made),
    )


@life.command(epilog="Example: weft federation follow north moved-1.json")
def follow(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="A site's or a submitter's kit.")],
    letter: Annotated[Path, typer.Argument(help="What 'weft federation move' made.")],
) -> None:
    """Let a kit reach the coordinator where it has moved to; what else is in the kit stays."""
    from weft.cli.terminal_output import say
    from weft.network.kits.coordinator_move_letter import follow as go
    from weft.network.kits.coordinator_move_letter import read_address
    from weft.network.kits.kit_folder import Kit

    followed = go(Kit.open(kit), read_address(letter))
    say(
        f"{followed.path}: the coordinator is at {followed.host}:{followed.port}",
        "- a process that runs with this kit is to be started again",
    )


@life.command(epilog="Example: weft federation restored north")
def restored(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="A site's or the coordinator's kit.")],
) -> None:
    """Say that a kit was restored from a backup, before anything is started with it.

    Drops all runs that were under way in it: a site that goes on from an older state would use pads
    a second time. Copied files are found out by themselves, and their runs refused; a machine that
    was set back as a whole cannot know it. Ledger, index, models and settings stay as they are.
    """
    from weft.cli.terminal_output import say
    from weft.network.drop_runs_after_restore import drop_runs_under_way
    from weft.network.kits.kit_folder import Kit
    from weft.report.number_format import count

    opened = Kit.open(kit)
    opened.prepare()
    dropped = drop_runs_under_way(opened)
    say(
        f"{opened.path}: {count(len(dropped), 'run')} under way when the backup was made.",
        *(f"- {run} is dropped; start a new run in its place" for run in dropped),
    )
    if opened.kind == "site":
        say(
            f"- what this site has shown since the backup is not in {opened.home / 'ledger'}; if "
            "a newer ledger is left, put it there"
        )
