"""``weft keys new`` and ``weft keys show``: make keys, and see whose a folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from weft.crypto.keys import KeyFiles, PublicKeys
    from weft.crypto.party_key_pairs import PublicIdentity

_MOST_PARTIES = 40

keys = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Keys of a federation: who is who, and the secret that the parties of a run share.",
)


@keys.command(epilog="Example: weft keys new keys --party north --party south")
def new(
    folder: Annotated[Path, typer.Argument(help="New folder for the keys.")],
    party: Annotated[
        list[str] | None,
        typer.Option("--party", metavar="NAME", help="A party's name; once for each."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Take the parties' names from this config.toml.")
    ] = None,
    renew_run: Annotated[
        bool,
        typer.Option(
            "--renew-run", help="Keep the identities that are there; replace the run secret."
        ),
    ] = False,
    roster: Annotated[
        Path | None,
        typer.Option(
            help="With --renew-run: make the run secret for the members of this signed roster."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Make the parties' identities and a run secret.

    Every party gets a folder of its own in FOLDER, readable by its owner only, with its private
    keys and the run secret, sealed so that only this party can open it. The first party makes
    that secret and signs it. FOLDER/public.json holds public keys and may be shown to anybody;
    a party's site needs it and the party's own folder, and no other.

    Names come from a config too: weft keys new keys --config parties/config.toml

    Before another run, and when a member leaves or joins: weft keys new keys --renew-run, with
    --party or --config where the members change. Nothing else is ever overwritten.

    Where every site made its own keys and all have signed a roster, its first member makes the run
    secret for all: weft keys new keys --renew-run --roster roster.json
    """
    from weft.cli.terminal_output import say, say_json
    from weft.crypto.keys import new_keys
    from weft.network.kits.kit_folder import refuse_at_coordinator

    refuse_at_coordinator(folder)
    known = None if roster is None else _members(roster, party, config, renew_run)
    names = list(known) if known else _names(folder, party, config, renew_run)
    public = new_keys(folder, names, renew_run=renew_run, known=known)
    if json:
        say_json({"folder": str(folder), **_public_values(public)})
        return
    count = len(public.members)
    say(
        f"{count} {'party' if count == 1 else 'parties'} in {folder}; party {public.made_by} made "
        f"the run secret {public.run}.",
        "- keep each party's folder to that party; public.json may be shown to anybody",
        f"- compare the fingerprints by telephone: weft keys show {folder}",
    )


def _names(folder: Path, given: list[str] | None, config: Path | None, renew: bool) -> list[str]:
    from weft.crypto.keys import read_public
    from weft.errors import ConfigError

    if given and config is not None:
        raise ConfigError("--party and --config both name the parties; keep one of them")
    if given:
        return given
    if config is not None:
        return _names_in(config)
    if renew:
        return list(read_public(folder).members)
    raise ConfigError("there are no parties; name each with --party NAME, or give --config")


def _members(
    roster: Path, given: list[str] | None, config: Path | None, renew: bool
) -> dict[str, PublicIdentity]:
    from weft.errors import ConfigError
    from weft.privacy.agreement import read_roster

    if given or config is not None or not renew:
        raise ConfigError(
            "--roster names all members itself and goes with --renew-run alone; leave --party and "
            "--config out"
        )
    signed = read_roster(roster)
    signed.insist()
    return {name: member.identity for name, member in signed.members.items()}


def _names_in(config: Path) -> list[str]:
    from weft.config.read_config import read_any_config

    return read_any_config(config).party_names()


@keys.command(epilog="Example: weft keys show keys")
def show(
    folder: Annotated[Path, typer.Argument(help="The folder that 'weft keys new' made.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Show whose keys a folder holds, and whether they are kept well.

    Reads public keys and permissions, never a secret. Parties that show the same run share a run
    secret. Compare the fingerprints by telephone or on paper: whoever relays files could have
    exchanged the keys, but not those that you read out to each other.
    """
    from weft.cli.terminal_output import say, say_json
    from weft.crypto.keys import describe_keys

    public, files = describe_keys(folder)
    if json:
        say_json({"folder": str(folder), **_public_values(public), **_file_values(files)})
        return
    say(f"Run secret {public.run}, made by party {public.made_by}", "")
    _show(files)
    say(*(f"- close to others: {remedy}" for party in files for remedy in party.remedies))


def _public_values(public: PublicKeys) -> dict[str, Any]:
    return {
        "run": public.run,
        "made_by": public.made_by,
        "parties": {name: party.fingerprint for name, party in public.members.items()},
    }


def _file_values(files: list[KeyFiles]) -> dict[str, Any]:
    return {
        "private_keys": {party.name: party.identity for party in files},
        "run_secrets": {party.name: party.box for party in files},
        "remedies": [remedy for party in files for remedy in party.remedies],
    }


def _show(files: list[KeyFiles]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAD)
    grid.add_column("party", overflow="fold")
    grid.add_column("fingerprint", no_wrap=True)
    grid.add_column("files and permissions")
    for party in files[:_MOST_PARTIES]:
        grid.add_row(party.name, party.public.fingerprint, _state(party))
    if len(files) > _MOST_PARTIES:
        grid.add_row(f"… and {len(files) - _MOST_PARTIES} more")
    Console(markup=False).print(grid)


def _state(party: KeyFiles) -> str:
    """What is not as it should be with a party's files."""
    states = {"private keys": party.identity, "run secret": party.box}
    wrong = [f"{what} {state}" for what, state in states.items() if state != "owner only"]
    if party.remedies and not wrong:
        wrong = ["folder open to others"]
    return ", ".join(wrong) or "all right"
