"""``weft federation new``, ``add``, ``request``, ``install`` and ``kit``: start-up kits."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    from weft.network.kits.federation_plan import FederationPlan
    from weft.network.kits.kit_folder import Kit
    from weft.network.kits.provisioning import IssuedKit, Provisioned

kits = typer.Typer(rich_markup_mode="markdown")

PlanFile = Annotated[
    Path,
    typer.Argument(metavar="FEDERATION.toml", help="Name, host, port, sites and submitters."),
]
RequestsFolder = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Signing requests (*.csr) of those who made their keys."),
]


@kits.command(epilog="Example: weft federation new federation.toml --out kits --requests requests")
def new(
    plan: PlanFile,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="New folder for the kits.")] = Path(
        "kits"
    ),
    requests: RequestsFolder = None,
) -> None:
    """Make a start-up kit for the coordinator, each site and each submitter.

    The federation gets a certificate authority of its own, in OUT/ca. A site that sent a signing
    request ('weft federation request' makes one) keeps its key to itself; for any other a key is
    made here, and its kit is secret on its way.
    """
    from weft.cli.terminal_output import say
    from weft.network.kits.federation_plan import read_plan
    from weft.network.kits.provisioning import provision
    from weft.report.number_format import count

    federation = read_plan(plan)
    made = provision(federation, out, requested_keys(requests))
    say(
        f"Federation '{federation.name}': the coordinator at {federation.host}:{federation.port}, "
        f"{count(len(federation.sites), 'site')}, "
        f"{count(len(federation.submitters), 'submitter')}.",
        *authority_words(made),
        *parcel_words(made),
        *_remarks(federation),
    )


@kits.command(epilog="Example: weft federation add federation.toml --out kits west")
def add(
    plan: PlanFile,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Sites or submitters to make kits for.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The folder that 'weft federation new' made.")
    ] = Path("kits"),
    requests: RequestsFolder = None,
) -> None:
    """Make kits for sites or submitters that came later; nobody else needs a new one.

    Write them into FEDERATION.toml first. Also for a new kit in the place of one that expires: move
    the old one away.
    """
    from weft.cli.terminal_output import say
    from weft.network.kits.federation_plan import read_plan
    from weft.network.kits.provisioning import add_to

    made = add_to(read_plan(plan), out, names, requested_keys(requests))
    say(*authority_words(made), *parcel_words(made))


@kits.command(epilog="Example: weft federation request north --out north-request")
def request(
    name: Annotated[
        str,
        typer.Argument(help="The site's or submitter's name in federation.toml; or 'coordinator'."),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="New folder for key and request.")],
) -> None:
    """Make a TLS key on this machine, and a signing request to send to the organiser.

    The key never leaves: the kit that comes back is completed here, with 'weft federation
    install'.
    """
    from weft.cli.terminal_output import say
    from weft.network.kits.certificate_requests import make_request
    from weft.network.kits.certificates import fingerprint

    made = make_request(name, out)
    say(
        f"{name}: key {fingerprint(made)}",
        f"- send {out / f'{name}.csr'} to whoever organises the federation; it is not secret",
        f"- keep {out / f'{name}.key'} here: it is secret, and nobody else needs it",
        f"- then: weft federation install {quote(f'{name}.zip')} --request {quote(str(out))}",
    )


@kits.command(epilog="Example: weft federation install north.zip --request north-request")
def install(
    archive: Annotated[Path, typer.Argument(help="The kit that the organiser sent.")],
    request: Annotated[
        Path, typer.Option(metavar="FOLDER", help="What 'weft federation request' made.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="New folder for the kit; default: beside the archive."),
    ] = None,
    renew: Annotated[
        Path | None,
        typer.Option(
            metavar="KIT", help="A kit that expires: put the new certificate in, keep the rest."
        ),
    ] = None,
    new_authority: Annotated[
        bool,
        typer.Option("--new-authority", help="With --renew: the federation was provisioned anew."),
    ] = False,
) -> None:
    """Complete a kit with the key that was made on this machine.

    Compare the authority's fingerprint with what the organiser told you by telephone or on paper:
    whoever relays the kit could have exchanged it. With --renew KIT, while nothing runs with it,
    certificate and key of a kit are replaced; its settings, ledger, models and runs stay.
    """
    from weft.cli.terminal_output import say
    from weft.errors import ConfigError
    from weft.network.kits.complete_kit_with_own_key import install as complete

    if renew is not None and out is not None:
        raise ConfigError("--renew and --out exclude each other; give one of them")
    if renew is None:
        kit = complete(archive, request, out)
    else:
        kit = _renewed(archive, request, renew, new_authority=new_authority)
    say(
        *_kit_words(kit),
        f"- {request} is not needed any more; the kit has the key now",
        f"- next: {_next(kit.kind, kit.path)}",
    )


@kits.command(epilog="Example: weft federation kit kits/north")
def kit(
    path: Annotated[Path, typer.Argument(help="The kit's folder.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Say what a kit is: whose, of which federation, and until when."""
    from weft.cli.terminal_output import say, say_json
    from weft.network.kits.kit_folder import Kit

    found = Kit.inspect(path)
    if not json:
        say(*_kit_words(found))
    else:
        say_json(
            {
                "kit": str(found.path),
                "kind": found.kind,
                "name": found.name,
                "organisation": found.organisation,
                "federation": found.federation,
                "host": found.host,
                "port": found.port,
                "expires": found.expires.isoformat(),
                "authority": found.fingerprint,
            }
        )
    Kit.open(path)


def _renewed(archive: Path, request: Path, path: Path, *, new_authority: bool) -> Kit:
    """The kit with a new certificate; refused while something runs with it."""
    from contextlib import nullcontext

    from weft.network.kits.complete_kit_with_own_key import renew
    from weft.network.kits.kit_folder import Kit
    from weft.network.saved_join_settings import exclusive_use

    old = Kit.inspect(path)
    old.prepare()
    with exclusive_use(old) if old.kind == "site" else nullcontext():
        return renew(archive, request, old, new_authority=new_authority)


def requested_keys(folder: Path | None) -> dict[str, RSAPublicKey] | None:
    from weft.network.kits.certificate_requests import read_requests

    return None if folder is None else read_requests(folder)


# ── words ─────────────────────────────────────────────────────────────────────────────────────


def authority_words(made: Provisioned) -> list[str]:
    return [
        f"Authority {made.fingerprint}",
        f"- {made.authority} decides who takes part: it is secret; back it up, and keep it offline",
        "- read the fingerprint above to everybody by telephone; 'weft federation kit' shows it",
    ]


def parcel_words(made: Provisioned) -> list[str]:
    lines = []
    for issued in made.kits:
        lines += ["", *_kit_lines(issued)]
    return lines


def _kit_lines(issued: IssuedKit) -> list[str]:
    from weft.network.kits.certificates import format_day

    who = "the coordinator's host" if issued.kind == "coordinator" else issued.name
    lines = [f"{issued.path} → {who} ({issued.kind}), valid until {format_day(issued.expires)}"]
    if issued.secret:
        lines.append(
            "- SECRET, its key was made here: send it by a safe way (scp, a sealed stick), to "
            "nobody else, and delete it here"
        )
        place = issued.path
    else:
        lines += [
            "- not secret: its key stayed where it was made",
            f"- there: weft federation install {quote(issued.path.name)} --request FOLDER",
        ]
        place = Path(issued.name)
    return [*lines, f"- there: {_next(issued.kind, place)}"]


def _next(kind: str, path: Path) -> str:
    kit = quote(str(path))
    return {
        "coordinator": f"weft serve {kit}",
        "site": f"weft join {kit} --data FILE --id COLUMN --keys FOLDER",
        "submitter": f"weft submit {kit} CONFIG.toml",
    }[kind]


def _remarks(federation: FederationPlan) -> list[str]:
    lines = []
    if federation.missing:
        lines += ["", f"Members of the roster without a kit: {', '.join(federation.missing)}"]
    if federation.host == "localhost":
        lines += ["", "The coordinator is called localhost: only this machine can reach it."]
    return lines


def _kit_words(found: Kit) -> list[str]:
    from weft.network.kits.certificates import format_day

    who = "the coordinator" if found.kind == "coordinator" else f"{found.kind} '{found.name}'"
    return [
        f"{found.path}: kit of {who} in federation '{found.federation}'",
        f"- the coordinator is at {found.host}:{found.port}",
        f"- valid until {format_day(found.expires)}",
        f"- authority {found.fingerprint}",
    ]
