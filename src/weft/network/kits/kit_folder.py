"""Opening a kit, to start from it or to describe it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import msgspec
from cryptography import x509

from weft.errors import ConfigError
from weft.network.kits.certificates import (
    CertificateError,
    check_signed,
    fingerprint,
    format_day,
    name_of,
    organisation_of,
    read_certificate,
    read_key,
)
from weft.network.kits.nvflare_settings_of_kit import COORDINATOR, Kind, engine_folder, up_to_date
from weft.storage.atomic_files import write_private

#: A kit's kind by its startup file, and the base name of its certificate and key.
_KINDS: dict[str, tuple[Kind, str]] = {
    "fed_server.json": ("coordinator", "server"),
    "fed_client.json": ("site", "client"),
    "fed_admin.json": ("submitter", "client"),
}
_OWNERS: dict[Kind, str] = {
    "coordinator": "the coordinator's",
    "site": "a site's",
    "submitter": "a submitter's",
}
_COMMANDS: dict[Kind, str] = {
    "coordinator": "weft serve",
    "site": "weft join",
    "submitter": "weft submit",
}
#: The kit in the folder of a site that was founded by letters, its keys and its roster.
SITE_KIT, KEYS, ROSTER = "kit", "keys", "roster.json"
_AGAIN = "ask the organiser of the federation for it again"


@dataclass(frozen=True)
class Kit:
    """A start-up kit on this machine.

    Parameters
    ----------
    path
        Its folder, in full.
    kind, name
        Whose it is: ``coordinator``, a ``site`` or a ``submitter``; the coordinator's name is
        ``coordinator``.
    organisation
        As its certificate has it; the engine wants it on the command line (``org=``).
    federation
        Name of the federation, the engine's project.
    host, port
        Where the coordinator is reached.
    expires
        When its certificate does.
    """

    path: Path
    kind: Kind
    name: str
    organisation: str
    federation: str
    host: str
    port: int
    expires: datetime

    @classmethod
    def open(cls, path: str | Path, kind: Kind | None = None) -> Self:
        """Open a kit, and check that it is whole, closed to others and still valid.

        Parameters
        ----------
        kind
            The kind that is needed here; another is refused.

        Raises
        ------
        ConfigError
            One sentence that names the kit and says what to do.
        """
        kit = cls.inspect(path)
        if kind is not None and kit.kind != kind:
            raise ConfigError(
                f"{path} is {_OWNERS[kit.kind]} kit; {_COMMANDS[kind]} needs {_OWNERS[kind]}"
            )
        if kit.expires <= datetime.now(UTC):
            raise ConfigError(
                f"the certificate in {path} expired on {format_day(kit.expires)}; ask the "
                "organiser of the federation for a new kit"
            )
        kit._check_closed()
        kit._check_certificate()
        return kit

    @classmethod
    def inspect(cls, path: str | Path) -> Self:
        """Read what a kit is, without checking that it can be started from."""
        folder = Path(path).absolute()
        if (folder / SITE_KIT / "startup").is_dir():
            folder /= SITE_KIT
        names = [name for name in _KINDS if os.path.isfile(folder / "startup" / name)]
        if len(names) != 1:
            raise ConfigError(
                f"{path} is no start-up kit; name the folder that 'weft federation new' or "
                "'weft federation install' made"
            )
        kind, base = _KINDS[names[0]]
        certificate = _certificate(folder / "startup" / f"{base}.crt")
        try:
            startup = msgspec.json.decode((folder / "startup" / names[0]).read_bytes())
            federation, host, port = _coordinates(startup, kind)
            owner = str(startup["client"]["fqsn"]) if kind == "site" else None
        except (OSError, msgspec.MsgspecError, KeyError, IndexError, TypeError, ValueError):
            raise ConfigError(f"{folder / 'startup' / names[0]} is damaged; {_AGAIN}") from None
        if owner is not None and owner != name_of(certificate):
            raise ConfigError(
                f"{path} is the kit of '{owner}', but the certificate in it is that of "
                f"'{name_of(certificate)}'; {_AGAIN}"
            )
        return cls(
            path=folder,
            kind=kind,
            # The coordinator's certificate has the name of its host.
            name=COORDINATOR if kind == "coordinator" else name_of(certificate),
            organisation=organisation_of(certificate),
            federation=federation,
            host=host,
            port=port,
            expires=certificate.not_valid_after_utc,
        )

    # ── where things lie ──────────────────────────────────────────────────────────────────────

    @property
    def startup(self) -> Path:
        """What was provisioned; it never changes."""
        return self.path / "startup"

    @property
    def local(self) -> Path:
        """Settings of this machine."""
        return self.path / "local"

    @property
    def certificate(self) -> Path:
        return self.startup / f"{self._base}.crt"

    @property
    def key(self) -> Path:
        return self.startup / f"{self._base}.key"

    @property
    def authority(self) -> Path:
        """The certificate of the federation's authority."""
        return self.startup / "rootCA.pem"

    @property
    def fingerprint(self) -> str:
        """Of the authority, to be compared by telephone."""
        return fingerprint(_certificate(self.authority))

    @property
    def home(self) -> Path:
        """What Weft keeps: runs, journals and the engine's storage, all of it owner-only."""
        return self.path / "weft"

    @property
    def runs(self) -> Path:
        """One folder for each run."""
        return self.home / "runs"

    @property
    def _base(self) -> str:
        return "server" if self.kind == "coordinator" else "client"

    # ── starting ──────────────────────────────────────────────────────────────────────────────

    def prepare(self) -> None:
        """Get ready to start; called before the engine's process begins.

        Makes missing folders, and updates the coordinator's settings: the path of its storage if
        the kit was moved, because the engine needs full paths, and the class that starts runs if
        the kit comes from a version that called it otherwise.
        """
        folders = [self.home, self.runs, self.path / "transfer"]
        if self.kind == "coordinator":
            folders.append(engine_folder(self.path))
        try:
            for folder in folders:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be written to ({error.strerror or error}); check its owner, "
                "permissions and free space"
            ) from None
        if self.kind == "coordinator":
            self._update_settings()

    def _update_settings(self) -> None:
        path = self.local / "resources.json"
        try:
            content = path.read_bytes()
            settings = up_to_date(msgspec.json.decode(content), self.path)
        except (OSError, msgspec.MsgspecError, KeyError, TypeError):
            raise ConfigError(f"{path} is damaged or missing; {_AGAIN}") from None
        packed = packed_json(settings)
        if packed != content:
            write_private(path, packed)

    # ── checks ────────────────────────────────────────────────────────────────────────────────

    def _check_closed(self) -> None:
        for path in (self.path, self.startup, self.key):
            try:
                mode = stat.S_IMODE(path.stat().st_mode)
            except FileNotFoundError:
                raise ConfigError(
                    f"{self.path} has no key; put it there with 'weft federation install', or "
                    f"{_AGAIN}"
                ) from None
            except OSError as error:
                raise ConfigError(
                    f"{path} cannot be read ({error.strerror or error}); check its owner and "
                    "permissions"
                ) from None
            if mode & 0o077:
                closed = "600" if path == self.key else "700"
                raise ConfigError(
                    f"{path} is open to others (mode {mode:04o}); close it with 'chmod {closed} "
                    f"{path}', and ask for a new kit if others may have read it"
                )

    def _check_certificate(self) -> None:
        certificate = _certificate(self.certificate)
        authority = _certificate(self.authority)
        try:
            check_signed(certificate, authority)
            key = read_key(self.key.read_bytes())
        except CertificateError as error:
            raise ConfigError(f"{self.path} cannot be used: {error}; {_AGAIN}") from None
        except OSError as error:
            raise ConfigError(f"{self.key} cannot be read ({error.strerror or error})") from None
        if key.public_key() != certificate.public_key():
            raise ConfigError(f"{self.key} is not the key of the certificate beside it; {_AGAIN}")
        if not os.path.isfile(self.local / "resources.json"):
            raise ConfigError(f"{self.path} has no local/resources.json; {_AGAIN}")


def refuse_at_coordinator(folder: Path) -> None:
    """Refuse to put parties' keys where the coordinator's host could read them."""
    place = folder.absolute()
    for parent in (place, *place.parents):
        if os.path.isfile(parent / "startup" / "fed_server.json"):
            raise ConfigError(
                f"{folder} lies in the coordinator's kit {parent}; make keys where the party is, "
                "for the coordinator must not have them"
            )


def packed_json(settings: dict[str, Any]) -> bytes:
    """Settings as bytes of a file."""
    return msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n"


def _certificate(path: Path) -> x509.Certificate:
    try:
        return read_certificate(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path} is missing; {_AGAIN}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error})") from None
    except CertificateError:
        raise ConfigError(f"{path} is damaged or no certificate; {_AGAIN}") from None


def _coordinates(startup: dict[str, Any], kind: Kind) -> tuple[str, str, int]:
    """Federation, host and port."""
    if kind == "submitter":
        admin = startup["admin"]
        return str(admin["project_name"]), str(admin["host"]), int(admin["port"])
    server = startup["servers"][0]
    host, _, port = str(server["service"]["target"]).rpartition(":")
    return str(server["name"]), host, int(port)
