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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from weft.config.strict_reading import checked, naming, read_toml
from weft.errors import ConfigError
from weft.network.kits.nvflare_settings_of_kit import COORDINATOR, Kind
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


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(examples=["north"])]
    organisation: Annotated[str, Meta(examples=["north_clinic"])]


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``federation.toml`` as it is written."""

    name: Annotated[str, Meta(examples=["three clinics"])]
    host: Annotated[str, Meta(examples=["localhost"])]
    port: Annotated[int, Meta(ge=1, le=65535, examples=[8002])]
    roster: str | None = None
    site: tuple[_Entry, ...] = ()
    submitter: tuple[_Entry, ...] = ()


@dataclass(frozen=True)
class Recipient:
    """A recipient of a kit.

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
    content = read_toml(path, f"there is no {path}; write it with name, host, port and sites")
    with naming(path.name):
        file = checked(_File, content, "the federation")
        _check_head(file)
        sites = tuple(_recipient(entry, "site") for entry in file.site)
        submitters = tuple(_recipient(entry, "submitter") for entry in file.submitter)
        _check_company(sites, submitters)
        _check_host(file, sites)
        missing = _check_roster(file, sites, path.parent)
    return FederationPlan(file.name, file.host, file.port, sites, submitters, missing)


def planned(
    name: str, host: str, port: int, sites: Sequence[str], submitters: Sequence[str]
) -> FederationPlan:
    """The same from names alone; a certificate's organisation is the site's own name."""
    file = checked(
        _File,
        {
            "name": name,
            "host": host,
            "port": port,
            "site": [{"name": site, "organisation": _plain(site)} for site in sites],
            "submitter": [{"name": one, "organisation": _plain(sites[0])} for one in submitters],
        },
        "the federation",
    )
    _check_head(file)
    members = tuple(_recipient(entry, "site") for entry in file.site)
    senders = tuple(_recipient(entry, "submitter") for entry in file.submitter)
    _check_company(members, senders)
    _check_host(file, members)
    return FederationPlan(file.name, file.host, file.port, members, senders)


def _plain(name: str) -> str:
    """A name with the signs that an organisation may have."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def _check_head(head: _File) -> None:
    if not head.name.strip() or len(head.name) > 64 or not head.name.isprintable():
        raise ConfigError(f"name = {head.name!r} must be 1 to 64 printable letters")
    if not re.fullmatch(_HOST, head.host):
        raise ConfigError(
            f"host = {head.host!r} is no name or address of a host; give the one by which sites "
            "reach the coordinator, or localhost for a trial"
        )


def _recipient(entry: _Entry, kind: Literal["site", "submitter"]) -> Recipient:
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


def _check_host(head: _File, sites: tuple[Recipient, ...]) -> None:
    """The coordinator's certificate has the name of its host: no site's may."""
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


def _check_roster(head: _File, sites: tuple[Recipient, ...], folder: Path) -> tuple[str, ...]:
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
