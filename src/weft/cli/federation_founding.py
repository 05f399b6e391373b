"""``weft federation invite``, ``accept`` and ``collect``: founding a federation by letters."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from weft.guards.privacy_terms import Terms
    from weft.privacy.agreement import Limits

#: The kind of joint predictions.
PREDICT = "predict"

founding = typer.Typer(rich_markup_mode="markdown")

_Heard = Annotated[
    list[str] | None,
    typer.Option(
        "--heard",
        metavar="FINGERPRINT",
        help="A fingerprint as somebody read it out; compared, and refused if it is nobody's.",
    ),
]
_Yes = Annotated[
    bool, typer.Option("--yes", help="Do not ask; letter and fingerprints have been compared.")
]
LabelHolders = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Who brings labels, once for each; default: all."),
]
ModelReaders = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Who gets the model, once for each; default: all."),
]
AllowExposure = Annotated[
    bool,
    typer.Option(
        "--allow-exposure", help="Allow as many sums about samples as others lack columns."
    ),
]
AlsoKinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="A kind of run besides training, once for each: check, predict; default: none.",
    ),
]
Askers = Annotated[
    list[str] | None,
    typer.Option(
        "--asker",
        metavar="NAME",
        help="With --kind predict: who may ask for joint scores, once for each.",
    ),
]


def limits_of(kinds: list[str] | None, askers: list[str] | None, members: Sequence[str]) -> Limits:
    """Limits of a roster by which more than training may be run."""
    from weft.errors import ConfigError
    from weft.privacy.agreement import Limits
    from weft.privacy.agreement.limits_and_site_policy import LINEAR

    named = tuple(dict.fromkeys((LINEAR, *(kinds or ()))))
    if (PREDICT in named) != bool(askers):
        raise ConfigError(
            "--kind predict and --asker belong together: name who may ask for scores, or leave "
            "both out"
        )
    for name in askers or ():
        if name not in members:
            raise ConfigError(f"--asker {name} is no member; name one of {', '.join(members)}")
    return Limits(kinds=named, askers=tuple(askers) if askers else None)


@founding.command(
    epilog="Example: weft federation invite north south west --host weft.example.org "
    "--name 'three clinics' --submitter anna@north.example"
)
def invite(
    inviter: Annotated[str, typer.Argument(help="Your own site's name; also its new folder.")],
    invited: Annotated[list[str], typer.Argument(metavar="NAME...", help="The other members.")],
    name: Annotated[str, typer.Option(help="Name of the federation.")],
    host: Annotated[str, typer.Option(help="By which sites reach the coordinator.")],
    submitter: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Who submits runs from your site.")
    ],
    port: Annotated[int, typer.Option(help="The coordinator's open port.")] = 8002,
    labels: LabelHolders = None,
    model: ModelReaders = None,
    matching: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Who holds a matching key, once for each; default: the last two."
        ),
    ] = None,
    allow_exposure: AllowExposure = False,
    kind: AlsoKinds = None,
    asker: Askers = None,
    pilot: Annotated[
        bool,
        typer.Option(
            "--pilot",
            help="For data that all members may see: no guard holds runs up, and reports say so.",
        ),
    ] = False,
) -> None:
    """Begin a federation: make your keys, and an invitation for all others.

    Send the one file to every member and to the coordinator's host, and read the fingerprint that
    is printed here to each of them by telephone. Terms are careful unless options say otherwise;
    everybody sees them before accepting, and signs nothing else. For more choices draft the roster
    by hand: weft federation draft.
    """
    from datetime import UTC, datetime, timedelta

    from weft.cli.terminal_output import say
    from weft.network.founding.inviter import begin
    from weft.network.founding.letters import Invitation
    from weft.privacy.agreement.cards_and_roster_drafts import Card
    from weft.privacy.agreement.signed_roster import Hex, limits_words, terms_words

    nobody = Card(format=1, name=inviter, signing=Hex(bytes(32)), sealing=Hex(bytes(32)))
    proposed = Invitation(
        federation=name,
        inviter=nobody,
        invited=tuple(invited),
        submitter=submitter,
        host=host,
        port=port,
        terms=_terms(pilot=pilot, allow_exposure=allow_exposure),
        limits=limits_of(kind, asker, (inviter, *invited)),
        labels=None if labels is None else tuple(labels),
        model=None if model is None else tuple(model),
        # Ids are matched through key holders over a network.
        matching=tuple(matching or (inviter, *invited)[-2:]),
        expires=datetime.now(UTC).date() + timedelta(days=365),
        number=Hex(bytes(16)),
    )
    # Names that kits or a roster refuse are refused before there are keys.
    _ = proposed.plan
    made, path = begin(Path(inviter), proposed)
    known = made.read(Invitation).inviter.identity.fingerprint
    say(
        f"Federation '{name}' of {', '.join(proposed.members)}. Every run will keep to this:",
        *(f"- {rule}" for rule in terms_words(proposed.terms)),
        *(f"- {rule}" for rule in limits_words(proposed.limits)),
        f"{inviter}: {known}",
        f"- send {path} to {', '.join(invited)} and to the coordinator's host; it is not secret",
        "- read the fingerprint above to each of them by telephone, and theirs back",
        f"- with their answers: weft federation collect {inviter} *.acceptance.json",
    )


def _terms(*, pilot: bool, allow_exposure: bool) -> Terms:
    import msgspec

    from weft.guards.privacy_terms import PILOT, Terms

    given = PILOT if pilot else Terms(allow_exposure=allow_exposure)
    return msgspec.structs.replace(given, matching="oprf")


@founding.command(epilog="Example: weft federation accept invitation.json south")
def accept(
    letter: Annotated[Path, typer.Argument(help="The invitation, or later the founding letter.")],
    name: Annotated[
        str, typer.Argument(help="Your site's name, or 'coordinator'; also its folder.")
    ],
    heard: _Heard = None,
    yes: _Yes = False,
) -> None:
    """Accept an invitation; later, sign what it became.

    With an invitation: shows its terms, makes your keys in a folder called as you, and writes
    NAME.acceptance.json, the one file to send back. The keys never leave.

    With the founding letter that comes next: checks that it is the inviter's and proposes nothing
    else, shows the fingerprints of all members to be compared, signs the roster, puts kit, roster
    and run secret into the folder, and writes NAME.signature.json to send back.
    """
    from weft.network.founding.letters import read_letter

    if read_letter(letter).kind == "founding":
        _sign(letter, Path(name), heard or [], yes=yes)
    else:
        _accept(letter, name, heard or [], yes=yes)


def _accept(path: Path, name: str, heard: list[str], *, yes: bool) -> None:
    from weft.cli.terminal_output import say
    from weft.network.founding.invited import accept as answer
    from weft.network.founding.invited import read_invitation
    from weft.network.founding.letters import compared
    from weft.privacy.agreement.signed_roster import limits_words, terms_words

    _, invitation = read_invitation(path)
    inviter = invitation.inviter
    known = {inviter.name: inviter.identity.fingerprint}
    say(
        f"'{inviter.name}' ({known[inviter.name]}) invites {', '.join(invitation.invited)} to "
        f"'{invitation.federation}', with a coordinator at {invitation.host}:{invitation.port}. "
        "Every run will keep to this:",
        *(f"- {rule}" for rule in terms_words(invitation.terms)),
        *(f"- {rule}" for rule in limits_words(invitation.limits)),
    )
    if inviter.name not in compared(known, heard) and not yes:
        _ask(f"Did '{inviter.name}' read this fingerprint to you, and do you accept?")
    made, own = answer(path, name, Path(name))
    say(
        f"{name}: {own}",
        f"- send {made} to '{inviter.name}'; it is not secret",
        "- read the fingerprint above to them by telephone",
        f"- with the founding letter that comes back: weft federation accept "
        f"{name}.founding.json {name}",
    )


def _sign(path: Path, folder: Path, heard: list[str], *, yes: bool) -> None:
    from weft.cli.terminal_output import say
    from weft.network.founding.invited import read_founding, sign
    from weft.network.founding.letters import compared
    from weft.privacy.agreement.signed_roster import charter_words

    told, roster = read_founding(path, folder)
    if roster is None:
        kit, _ = sign(told, None, folder)
        say(f"{folder} is the coordinator's: weft serve {folder}", f"- authority {kit.fingerprint}")
        return
    say(*charter_words(roster.charter), f"Roster {roster.fingerprint}")
    known = {name: member.identity.fingerprint for name, member in roster.members.items()}
    others = set(known) - {told.name, *compared(known, heard)}
    if others and not yes:
        _ask(f"Have you heard the fingerprints of {', '.join(sorted(others))}, and do you sign?")
    _, back = sign(told, roster, folder)
    say(
        f"Signed by {told.name}; keys, kit and roster are in {folder}.",
        f"- send {back} back; the roster that all have signed takes the place of "
        f"{folder / 'roster.json'}",
        f"- then: weft join {folder} --data FILE --id COLUMN",
    )


@founding.command(epilog="Example: weft federation collect north *.acceptance.json")
def collect(
    folder: Annotated[Path, typer.Argument(help="The folder that 'weft federation invite' made.")],
    letters: Annotated[
        list[Path], typer.Argument(metavar="LETTER...", help="What came back from the others.")
    ],
    heard: _Heard = None,
    yes: _Yes = False,
) -> None:
    """Collect the answers to your invitation: acceptances first, signatures later.

    With all acceptances: shows the fingerprints of all to be compared, makes roster, run secret and
    kits, signs the roster, and writes a founding letter for each to be sent. With signatures:
    puts them under the roster, which counts when it has all of them.
    """
    from weft.network.kits.kit_folder import ROSTER

    if (folder / ROSTER).exists():
        _collect_signatures(folder, letters)
    else:
        _found(folder, letters, heard or [], yes=yes)


def _found(folder: Path, letters: list[Path], heard: list[str], *, yes: bool) -> None:
    from weft.cli.terminal_output import say
    from weft.network.founding.inviter import AUTHORITY, SUBMITTER, found, read_acceptances
    from weft.network.founding.letters import compared

    accepted = read_acceptances(folder, letters)
    known = accepted.fingerprints
    say("These have accepted:", *(f"- {name}: {digits}" for name, digits in known.items()))
    open_ = set(known) - set(compared(known, heard))
    if open_ and not yes:
        _ask(f"Have you heard the fingerprints of {', '.join(sorted(open_))}?")
    roster, made = found(folder, accepted)
    say(
        f"Roster {roster.fingerprint}; keys, kit and roster are in {folder}.",
        *(f"- send {path}; it is not secret" for path in made),
        f"- {folder / AUTHORITY / 'ca'} decides who takes part: it is secret; keep it offline",
        f"- with what comes back: weft federation collect {folder} *.signature.json",
        f"- runs are submitted with: weft submit {folder / SUBMITTER} CONFIG.toml",
    )


def _collect_signatures(folder: Path, letters: list[Path]) -> None:
    from weft.cli.terminal_output import say
    from weft.network.founding.inviter import add_signatures
    from weft.network.kits.kit_folder import ROSTER

    signed = add_signatures(folder, letters)
    missing = [name for name, state in signed.states().items() if state != "signed"]
    if missing:
        say(f"Still to sign: {', '.join(missing)}.")
        return
    say(
        f"All members have signed: roster {signed.fingerprint} counts.",
        f"- send {folder / ROSTER} to all others, in the place of theirs; it is not secret",
        f"- at each site: weft join NAME --data FILE --id COLUMN; here: weft join {folder}",
    )


def _ask(question: str) -> None:
    from weft.errors import ConfigError

    if not sys.stdin.isatty():
        raise ConfigError(
            "nobody is here to compare fingerprints; give those that you heard with --heard, or "
            "--yes if you have compared them"
        )
    if not typer.confirm(question):
        raise ConfigError("nothing was done: fingerprints must be compared by telephone first")
