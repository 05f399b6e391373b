"""``weft federation``: cards, rosters and signatures; `weft.cli.federation_kits` adds the kits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.federation_founding import (
    AllowExposure,
    AlsoKinds,
    Askers,
    LabelHolders,
    ModelReaders,
    limits_of,
)

if TYPE_CHECKING:
    from datetime import date

    from weft.guards.privacy_terms import Terms
    from weft.privacy.agreement import Card, SignedRoster
    from weft.privacy.agreement.signed_roster import SignatureState

federation = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="The roster of a federation: who belongs to it, and on which terms; signed by everybody. "
    "And the kits by which its sites meet over a network.",
)

_Roster = Annotated[Path, typer.Argument(help="The roster, a JSON file.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object only.")]


@federation.command(epilog="Example: weft federation join north.json --keys keys --party north")
def join(
    card: Annotated[Path, typer.Argument(help="New file for the membership card.")],
    keys: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The keys that 'weft keys new' made.")
    ],
    party: Annotated[str, typer.Option(metavar="NAME", help="The member's name.")],
) -> None:
    """Write a site's membership card: its name and public keys.

    Send it to whoever drafts the roster. Nothing in it is secret. Tell the fingerprint that is
    printed here to the other members by telephone or on paper: they will see it in the roster.
    """
    from weft.cli.terminal_output import say
    from weft.privacy.agreement import card_of, write_card

    own = card_of(keys, party)
    write_card(card, own)
    say(f"{party}: {own.identity.fingerprint}", f"Send {card} to whoever drafts the roster.")


@federation.command(
    epilog="Example: weft federation draft roster.json north.json south.json west.json"
)
def draft(
    roster: Annotated[Path, typer.Argument(help="New file for the roster.")],
    cards: Annotated[
        list[Path] | None, typer.Argument(help="Membership cards, in the order of the members.")
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="In the place of cards: all parties of a folder of keys."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the federation.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Take name, terms and who brings labels from this config.toml."),
    ] = None,
    labels: LabelHolders = None,
    model: ModelReaders = None,
    matching: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Who holds a matching key; then ids match by OPRF."),
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N", help="The most rows that a member may match, 1,000,000 by default."
        ),
    ] = None,
    min_batch: Annotated[
        int | None, typer.Option(help="Samples that change between two sums, at least.")
    ] = None,
    min_contributors: Annotated[
        int | None, typer.Option(help="Parties that a sum must have.")
    ] = None,
    allow_pairs: Annotated[
        bool, typer.Option("--allow-pairs", help="Allow sums of two parties.")
    ] = False,
    allow_lone_labels: Annotated[
        bool, typer.Option("--allow-lone-labels", help="Allow a single party with labels.")
    ] = False,
    allow_exposure: AllowExposure = False,
    allow_second_moments: Annotated[
        bool,
        typer.Option(
            "--allow-second-moments",
            help="Allow Hessian and Gram matrix to who gets a sealed model.",
        ),
    ] = False,
    serial: Annotated[
        int,
        typer.Option(help="Number of this roster: sites refuse lower ones than were seen."),
    ] = 1,
    expires: Annotated[
        str | None,
        typer.Option(metavar="DAY", help="The last day on which it counts; default: in a year."),
    ] = None,
    coordinator_sees: Annotated[
        str | None, typer.Option(help="The most the coordinator may see: nothing, weights.")
    ] = None,
    loss: Annotated[
        list[str] | None, typer.Option(help="A loss that runs may use; default: any.")
    ] = None,
    solver: Annotated[
        list[str] | None, typer.Option(help="A solver that runs may use; default: any.")
    ] = None,
    kind: AlsoKinds = None,
    asker: Askers = None,
) -> None:
    """Draft a roster, which counts when every member has signed it.

    The draft has every term written out, with careful values where no option says otherwise. It
    may still be edited by hand: signatures come after that, and no value changes under them.
    """
    import msgspec

    from weft.cli.terminal_output import say
    from weft.privacy.agreement import write_roster
    from weft.privacy.agreement.cards_and_roster_drafts import draft_roster

    known = _cards(cards or [], keys, matching or [])
    changes = {
        "min_batch": min_batch,
        "min_contributors": min_contributors,
        "allow_pairs": allow_pairs or None,
        "allow_lone_labels": allow_lone_labels or None,
        "allow_exposure": allow_exposure or None,
        "allow_second_moments": allow_second_moments or None,
        "coordinator_sees": coordinator_sees,
        "matching": "oprf" if matching else None,
    }
    title, terms, labelled = _from_config(config)
    drafted = draft_roster(
        name or title or roster.stem,
        known,
        _changed(terms, changes),
        limits=msgspec.structs.replace(
            limits_of(kind, asker, [card.name for card in known]),
            losses=tuple(loss) if loss else None,
            solvers=tuple(solver) if solver else None,
        ),
        labels=labels or labelled,
        model=model,
        matching=matching or (),
        rows=_rows(rows or []),
        serial=serial,
        expires=day_of(expires),
    )
    write_roster(roster, drafted, new=True)
    say(
        f"{roster}: {len(known)} members, signed by nobody yet; roster {drafted.fingerprint}",
        f"- read it: weft federation show {roster}",
        f"- every member signs it: weft federation sign {roster} --keys FOLDER --party NAME",
    )


def day_of(given: str | None) -> date | None:
    """The last day of a roster: as given, ``never``, or in a year."""
    from datetime import UTC, date, datetime, timedelta

    from weft.errors import ConfigError

    if given is None:
        return datetime.now(UTC).date() + timedelta(days=365)
    if given == "never":
        return None
    try:
        return date.fromisoformat(given)
    except ValueError:
        raise ConfigError(
            f"--expires {given} is no day such as 2030-12-31; give one, or 'never'"
        ) from None


def _cards(paths: list[Path], keys: Path | None, matching: list[str]) -> list[Card]:
    from weft.crypto.keys import read_public
    from weft.errors import ConfigError
    from weft.privacy.agreement import Card, card_of, read_card

    if bool(paths) == (keys is not None):
        raise ConfigError("name the members' cards, or a folder of keys with --keys, but not both")
    if keys is None:
        return [read_card(path) for path in paths]
    members = read_public(keys).members
    return [
        # A matching key takes the private keys, which need not be here for the others.
        card_of(keys, name) if name in matching else Card.of_public(name, public)
        for name, public in members.items()
    ]


def _from_config(path: Path | None) -> tuple[str | None, Terms, list[str] | None]:
    """Name, terms and label holders that a config has."""
    from weft.config.read_config import read_any_config
    from weft.guards.privacy_terms import Terms

    if path is None:
        return None, Terms(), None
    plan = read_any_config(path)
    holders = [party.name for party in plan.parties if party.label is not False]
    return plan.name, plan.terms, holders or None


def _changed(terms: Terms, changes: dict[str, Any]) -> Terms:
    import msgspec

    from weft.config.strict_reading import checked
    from weft.guards.privacy_terms import Terms

    given = {key: value for key, value in changes.items() if value is not None}
    return checked(Terms, {**msgspec.to_builtins(terms), **given}, "the terms:")


def _rows(given: list[str]) -> dict[str, int]:
    from weft.errors import ConfigError

    found = {}
    for entry in given:
        name, _, number = entry.rpartition("=")
        if not name or not number.isdecimal():
            raise ConfigError(f"--rows {entry} is not NAME=N, such as --rows north=5000")
        found[name] = int(number)
    return found


@federation.command(epilog="Example: weft federation show roster.json")
def show(roster: _Roster, json: _Json = False) -> None:
    """Say in plain words what a roster says, and who has signed it."""
    from weft.cli.terminal_output import say, say_json
    from weft.privacy.agreement import read_roster
    from weft.privacy.agreement.signed_roster import charter_words

    found = read_roster(roster)
    if json:
        say_json({**_values(found), "roster": dict(found.content)})
        return
    lines = [f"- {name}: {state}" for name, state in found.states().items()]
    say(*charter_words(found.charter), f"Signatures under roster {found.fingerprint}:", *lines)


@federation.command(epilog="Example: weft federation sign roster.json --keys keys --party north")
def sign(
    roster: _Roster,
    keys: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The folder with the member's private keys.")
    ],
    party: Annotated[str, typer.Option(metavar="NAME", help="The member that signs.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask; the roster has been read already.")
    ] = False,
) -> None:
    """Sign a roster as one of its members, after showing what it says.

    Refused where the roster lists other keys of the member than its own. Compare the members'
    fingerprints with what they told you by telephone or on paper before you sign.
    """
    from weft.cli.terminal_output import say
    from weft.crypto.keys.load_keys import read_identity
    from weft.privacy.agreement import read_roster, write_roster
    from weft.privacy.agreement.signed_roster import charter_words

    found = read_roster(roster)
    signed = found.signed_by(party, read_identity(keys, party))
    say(*charter_words(found.charter), f"Roster {found.fingerprint}")
    if not yes:
        _ask(party)
    write_roster(roster, signed)
    states = signed.states()
    say(f"Signed by {party}.", *_remarks(states))


def _ask(party: str) -> None:
    from weft.errors import ConfigError

    if not sys.stdin.isatty():
        raise ConfigError("nobody is here to agree; read the roster, and sign with --yes")
    if not typer.confirm(f"Sign this for {party}?"):
        raise ConfigError(f"{party} did not sign; the roster is as it was")


def _remarks(states: dict[str, SignatureState]) -> list[str]:
    open_ = [name for name, state in states.items() if state == "missing"]
    wrong = [name for name, state in states.items() if state == "wrong"]
    remarks = [f"- still to sign: {', '.join(open_)}"] if open_ else []
    if wrong:
        remarks.append(f"- changed since they signed, to sign again: {', '.join(wrong)}")
    return remarks or ["All members have signed: the roster counts."]


@federation.command(epilog="Example: weft federation verify roster.json --keys keys")
def verify(
    roster: _Roster,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Compare with the public keys of this folder too."),
    ] = None,
    json: _Json = False,
) -> None:
    """Check every signature; exit code 0 only if all members have signed this very content.

    A roster that was changed after a member signed has a wrong signature. With --keys the public
    keys that a folder has of members must be those of the roster.
    """
    from weft.cli.terminal_output import say_json
    from weft.privacy.agreement import read_roster

    found = read_roster(roster)
    if json:
        say_json(_values(found))
    else:
        _show(found)
    found.insist()
    if keys is not None:
        _compare(found, keys)


@federation.command(
    epilog="Example: weft federation revoke roster.json withdrawn.json --keys keys --party north"
)
def revoke(
    roster: _Roster,
    revocation: Annotated[Path, typer.Argument(help="New file for the revocation.")],
    keys: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The folder with the member's private keys.")
    ],
    party: Annotated[str, typer.Option(metavar="NAME", help="The member that withdraws it.")],
) -> None:
    """Withdraw a roster as one of its members, and all rosters before it.

    Send the file to all sites: weft join KIT --revoked FILE keeps it for good, and the next run
    under that roster is refused there. Nothing in it is secret, and nobody can make it in another's
    name. To go on, draft a roster with a higher serial and have all members sign it.
    """
    from weft.cli.terminal_output import say
    from weft.crypto.keys.load_keys import read_identity
    from weft.privacy.agreement import read_roster
    from weft.privacy.agreement.cards_and_roster_drafts import write_revocation
    from weft.privacy.agreement.roster_revocation import Revocation

    found = read_roster(roster)
    made = Revocation.of(found, party, read_identity(keys, party))
    write_revocation(revocation, made)
    say(
        f"{party} revokes the roster of '{made.federation}' with serial {made.serial} "
        f"({made.fingerprint}).",
        f"Send {revocation} to all sites: weft join KIT --revoked {revocation}",
    )


def _values(roster: SignedRoster) -> dict[str, Any]:
    states = roster.states()
    return {
        "federation": roster.charter.federation,
        "fingerprint": roster.fingerprint,
        "serial": roster.charter.serial,
        "expires": None if roster.charter.expires is None else str(roster.charter.expires),
        "counts": set(states.values()) == {"signed"},
        "signatures": states,
        "members": {n: member.identity.fingerprint for n, member in roster.members.items()},
    }


def _show(roster: SignedRoster) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from weft.cli.terminal_output import say

    say(f"Federation '{roster.charter.federation}', roster {roster.fingerprint}")
    grid = Table(box=SIMPLE_HEAD)
    grid.add_column("member", overflow="fold")
    grid.add_column("fingerprint", no_wrap=True)
    grid.add_column("signature", no_wrap=True)
    for name, state in roster.states().items():
        grid.add_row(name, roster.members[name].identity.fingerprint, state)
    Console(markup=False).print(grid)


def _compare(roster: SignedRoster, keys: Path) -> None:
    """Members that a folder knows must have the keys of the roster."""
    from weft.crypto.keys import read_public
    from weft.errors import ConfigError

    for name, public in read_public(keys).members.items():
        member = roster.members.get(name)
        if member is None:
            raise ConfigError(
                f"{keys} has keys of '{name}', who is no member of the roster; make new run keys "
                "with 'weft keys new --renew-run --roster'"
            )
        if member.identity != public:
            raise ConfigError(
                f"{keys} has other public keys of '{name}' ({public.fingerprint}) than the roster "
                f"({member.identity.fingerprint}); ask '{name}' which are its own"
            )
