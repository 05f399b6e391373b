"""Reading ``federation.toml``: who takes part, and where the coordinator is.

.. code-block:: toml

    name = "three clinics"
    host = "weft.example.org"      # by which sites reach the coordinator; localhost for trials
    port = 8002
    roster = "roster.json"         # optional: sites must be members of this signed roster

    [[site]]
    name = "north"
    organisation = "north_clinic"

    [[submitter]]
    name = "anna@north.example"
    organisation = "north_clinic"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from weft.config.reader import checked, known_keys, naming
from weft.errors import ConfigError
from weft.network.kits.kinds import COORDINATOR as COORDINATOR
from weft.network.kits.kinds import Kind as Kind
from weft.privacy.agreement import read_roster

#: What the engine takes as names, by kind; a name is also the common name of a certificate.
_NAMES = {
    "site": (r"[A-Za-z0-9_-]{1,64}", "1 to 64 letters, digits, - and _"),
    "submitter": (
        r"(?=.{3,64}$)[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}",
        "up to 64 letters that look like an e-mail address, such as anna@north.example",
    ),
}
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?=.{{1,64}}$)({_LABEL}\.)*{_LABEL}"
#: Names that have another meaning: folders beside the kits, and the engine's own.
_TAKEN = {COORDINATOR, "ca", "server"}
#: What the engine reads as a truth value, or as a number, where it should read a name.
_NO_NAMES = r"\d+|n|y|no|yes|on|off|t|f|true|false|none|null"


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    host: str
    port: int
    roster: str | None = None


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    organisation: str


@dataclass(frozen=True)
class Recipient:
    """Somebody who gets a kit.

    Parameters
    ----------
    name
        A site's or a submitter's name; ``coordinator`` for the coordinator.
    organisation
        Where it belongs, in its certificate.
    """

    kind: Kind
    name: str
    organisation: str


@dataclass(frozen=True)
class FederationPlan:
    """A federation that is to be provisioned; `read_plan` makes one."""

    name: str
    host: str
    port: int
    sites: tuple[Recipient, ...]
    submitters: tuple[Recipient, ...]
    #: Members of the roster that are no sites yet.
    missing: tuple[str, ...] = ()

    @property
    def recipients(self) -> tuple[Recipient, ...]:
        """All who get a kit, the coordinator first."""
        coordinator = Recipient("coordinator", COORDINATOR, COORDINATOR)
        return (coordinator, *self.sites, *self.submitters)


def read_plan(path: Path) -> FederationPlan:
    """Read and check ``federation.toml``, and the roster that it names.

    Raises
    ------
    ConfigError
        One sentence that names the file and the key.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no {path}; write it with name, host, port and sites") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name}: is not valid TOML ({error}); correct that line") from None
    with naming(path.name):
        known_keys(content, ("name", "host", "port", "roster", "site", "submitter"), "it")
        lists = {kind: content.pop(kind, []) for kind in ("site", "submitter")}
        _check_there(content, {"name": '"three clinics"', "host": '"localhost"', "port": "8002"})
        head = checked(_Head, content, "the federation's")
        _check_head(head)
        sites = _entries(lists["site"], "site")
        submitters = _entries(lists["submitter"], "submitter")
        _check_company(sites, submitters)
        _check_host(head, sites)
        missing = _check_roster(head, sites, path.parent)
    return FederationPlan(head.name, head.host, head.port, sites, submitters, missing)


def _check_there(values: Mapping[str, Any], wanted: Mapping[str, str], where: str = "") -> None:
    for key, example in wanted.items():
        if key not in values:
            raise ConfigError(f"{where}{key} is missing; write it, such as {key} = {example}")


def _check_head(head: _Head) -> None:
    if not head.name.strip() or len(head.name) > 64 or not head.name.isprintable():
        raise ConfigError(f"name = {head.name!r} must be 1 to 64 printable letters")
    if not re.fullmatch(_HOST, head.host):
        raise ConfigError(
            f"host = {head.host!r} is no name or address of a host; give the one by which sites "
            "reach the coordinator, or localhost for a trial"
        )
    if not 0 < head.port < 65536:
        raise ConfigError(f"port = {head.port} is not between 1 and 65535")


def _entries(given: Any, kind: Literal["site", "submitter"]) -> tuple[Recipient, ...]:
    if not isinstance(given, list):
        raise ConfigError(f"write [[{kind}]] with two brackets, once for each {kind}")
    return tuple(_entry(values, number, kind) for number, values in enumerate(given, 1))


def _entry(values: Any, number: int, kind: Literal["site", "submitter"]) -> Recipient:
    where = f"[[{kind}]] {number}"
    if isinstance(values, dict):
        _check_there(values, {"name": '"north"', "organisation": '"north_clinic"'}, f"{where}: ")
    entry = checked(_Entry, values, where)
    pattern, words = _NAMES[kind]
    if not re.fullmatch(pattern, entry.name):
        raise ConfigError(f"{kind} {entry.name!r} cannot be called so; the engine takes {words}")
    if entry.name.lower() in _TAKEN:
        raise ConfigError(f"a {kind} cannot be called '{entry.name}', which means another thing")
    for what, name in (("name", entry.name), ("organisation", entry.organisation)):
        if re.fullmatch(_NO_NAMES, name, re.IGNORECASE):
            raise ConfigError(
                f"{kind} '{entry.name}' has {what} = {name!r}, which the engine takes for another "
                "thing than a name; give a longer one, such as north_clinic"
            )
    if not re.fullmatch(r"\w{1,64}", entry.organisation, re.ASCII):
        raise ConfigError(
            f"{kind} '{entry.name}' has organisation = {entry.organisation!r}; the engine takes 1 "
            "to 64 letters, digits and _"
        )
    return Recipient(kind, entry.name, entry.organisation)


def _check_host(head: _Head, sites: tuple[Recipient, ...]) -> None:
    """The coordinator's certificate has the name of its host: nobody else's may."""
    if any(site.name.lower() == head.host.lower() for site in sites):
        raise ConfigError(f"a site is called '{head.host}', as the host; rename the site")


def _check_company(sites: tuple[Recipient, ...], submitters: tuple[Recipient, ...]) -> None:
    if not sites:
        raise ConfigError("there are no sites; write [[site]] with name and organisation for each")
    if not submitters:
        raise ConfigError("nobody may submit runs; write [[submitter]] with name and organisation")
    seen: set[str] = set()
    for one in (*sites, *submitters):
        # Folders of kits may lie on a disk that does not tell A from a.
        if one.name.lower() in seen:
            raise ConfigError(f"two of them are called '{one.name}'; rename one")
        seen.add(one.name.lower())


def _check_roster(head: _Head, sites: tuple[Recipient, ...], folder: Path) -> tuple[str, ...]:
    """Sites must be members; the members that are no sites."""
    if head.roster is None:
        return ()
    roster = read_roster(folder / head.roster)
    roster.insist()
    for site in sites:
        if site.name not in roster.members:
            raise ConfigError(
                f"site '{site.name}' is no member of the roster {head.roster}, which has "
                f"{', '.join(roster.members)}; correct the name, or leave it out"
            )
    names = {site.name for site in sites}
    return tuple(name for name in roster.members if name not in names)
