"""Making the kits of a federation, all or none, and kits for recipients who join later."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from weft.errors import ConfigError
from weft.network.kits.certificates import (
    Authority,
    CertificateError,
    fingerprint,
    key_bytes,
    name_of,
    new_key,
    pem,
    read_certificate,
    read_key,
)
from weft.network.kits.coordinator_move_letter import ADDRESS, Address, read_address
from weft.network.kits.federation_plan import FederationPlan, Recipient
from weft.network.kits.keyless_kit_archive import write_archive
from weft.network.kits.kit_folder import packed_json
from weft.network.kits.nvflare_settings_of_kit import COORDINATOR, SUBMITTER_ROLE, Kind, settings_of
from weft.storage.atomic_files import StorageError, write_private
from weft.thread_safe_decoding import prepared

#: The authority's folder beside the kits.
AUTHORITY = "ca"


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the authority's folder says of its federation."""

    name: str
    host: str
    port: int


@dataclass(frozen=True)
class IssuedKit:
    """A kit for one recipient.

    Parameters
    ----------
    path
        A folder that is ready to start from; or, where the recipient made its own key, an archive
        without it.
    secret
        Whether anyone who reads it in transit could impersonate the recipient.
    """

    kind: Kind
    name: str
    path: Path
    secret: bool
    expires: datetime


@dataclass(frozen=True)
class Provisioned:
    """What `provision` or `add_to` made.

    Parameters
    ----------
    authority
        The folder with the authority's key.
    fingerprint
        Of the authority, for recipients to compare.
    """

    authority: Path
    fingerprint: str
    kits: tuple[IssuedKit, ...]


def provision(
    plan: FederationPlan, out: Path, requested: Mapping[str, RSAPublicKey] | None = None
) -> Provisioned:
    """Make a federation's authority and a kit for each recipient, all of it or nothing.

    Parameters
    ----------
    out
        A new folder, or an empty one.
    requested
        Keys that recipients made themselves, by their names; for the others a key is made here.
    """
    _check_requested(requested or {}, plan.recipients)
    _check_free(out)
    with _whole(out) as draft:
        authority = Authority.new(plan.name)
        _write_authority(draft / AUTHORITY, authority, plan)
        kits = _issue_all(plan, plan.recipients, authority, draft, out, requested or {})
    return Provisioned(out / AUTHORITY, fingerprint(authority.certificate), kits)


def add_to(
    plan: FederationPlan,
    out: Path,
    names: Sequence[str],
    requested: Mapping[str, RSAPublicKey] | None = None,
) -> Provisioned:
    """Make kits for recipients that came later, signed by the authority of the others.

    Parameters
    ----------
    plan
        The federation, in which the new ones stand already.
    out
        The folder that `provision` made.
    names
        Those to make kits for.
    """
    known = {one.name: one for one in plan.recipients}
    for name in names:
        if name not in known:
            raise ConfigError(
                f"federation.toml has no site or submitter '{name}'; write it there first"
            )
    chosen = [known[name] for name in dict.fromkeys(names)]
    _check_requested(requested or {}, chosen)
    authority = _read_authority(out / AUTHORITY, plan)
    _check_places(out, chosen)
    with _added(out) as draft:
        kits = _issue_all(plan, chosen, authority, draft, out, requested or {})
    return Provisioned(out / AUTHORITY, fingerprint(authority.certificate), kits)


def move_coordinator(
    plan: FederationPlan, out: Path, requested: Mapping[str, RSAPublicKey] | None = None
) -> tuple[Provisioned, Path]:
    """Make a kit for a coordinator at another host or port, and a letter that tells all others.

    Parameters
    ----------
    plan
        The federation, with the new host and port.
    out
        The folder that `provision` made.

    Returns
    -------
    Provisioned, Path
        The coordinator's kit, and the letter.
    """
    (one,) = (one for one in plan.recipients if one.name == COORDINATOR)
    _check_requested(requested or {}, [one])
    folder = out / AUTHORITY
    authority, record = _open_authority(folder)
    if plan.name != record.name:
        raise _other_federation("name", plan.name, record.name, folder)
    if (plan.host, plan.port) == (record.host, record.port):
        raise ConfigError(
            f"the coordinator is at {plan.host}:{plan.port} already; write its new host or port "
            "into federation.toml first"
        )
    _check_places(out, [one])
    before = folder / ADDRESS
    number = 1 + (read_address(before).number if before.exists() else 0)
    told = Address(federation=plan.name, host=plan.host, port=plan.port, number=number)
    letter = told.signed_by(authority).to_json()
    # Who needs a kit later finds the same letter in it.
    write_private(before, letter)
    with _added(out) as draft:
        kits = _issue_all(plan, [one], authority, draft, out, requested or {})
        write_private(draft / f"moved-{number}.json", letter)
    _write_record(folder, plan)
    return (
        Provisioned(folder, fingerprint(authority.certificate), kits),
        out / f"moved-{number}.json",
    )


def _check_places(out: Path, recipients: Sequence[Recipient]) -> None:
    """Refuse to make kits where there are some."""
    for one in recipients:
        for path in (out / one.name, _archive(out, one)):
            if os.path.lexists(path):
                raise ConfigError(
                    f"{path} exists already; move it away if '{one.name}' is to get a new kit"
                )


# ── kits ──────────────────────────────────────────────────────────────────────────────────────


def _issue_all(
    plan: FederationPlan,
    recipients: Sequence[Recipient],
    authority: Authority,
    draft: Path,
    out: Path,
    requested: Mapping[str, RSAPublicKey],
) -> tuple[IssuedKit, ...]:
    return tuple(
        _issue(plan, one, authority, draft, out, requested.get(one.name)) for one in recipients
    )


def _issue(
    plan: FederationPlan,
    one: Recipient,
    authority: Authority,
    draft: Path,
    out: Path,
    public: RSAPublicKey | None,
) -> IssuedKit:
    key = None
    if public is None:
        key = new_key()
        public = key.public_key()
    certificate = _certificate(plan, one, authority, public)
    base = "server" if one.kind == "coordinator" else "client"
    files = {
        name: packed_json(content)
        for name, content in settings_of(plan, one, out / one.name).items()
    }
    files[f"startup/{base}.crt"] = pem(certificate)
    files["startup/rootCA.pem"] = pem(authority.certificate)
    if (out / AUTHORITY / ADDRESS).exists():
        files[f"startup/{ADDRESS}"] = (out / AUTHORITY / ADDRESS).read_bytes()
    expires = certificate.not_valid_after_utc
    if key is None:
        write_archive(_archive(draft, one), files)
        return IssuedKit(one.kind, one.name, _archive(out, one), False, expires)
    files[f"startup/{base}.key"] = key_bytes(key)
    write_kit(draft / one.name, files)
    return IssuedKit(one.kind, one.name, out / one.name, True, expires)


def _archive(folder: Path, one: Recipient) -> Path:
    return folder / f"{one.name}.zip"


def _certificate(
    plan: FederationPlan, one: Recipient, authority: Authority, public: RSAPublicKey
) -> x509.Certificate:
    if one.kind == "coordinator":
        return authority.issue(public, plan.host, one.organisation, host=plan.host)
    role = SUBMITTER_ROLE if one.kind == "submitter" else None
    return authority.issue(public, one.name, one.organisation, role=role)


def write_kit(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a kit's files and folders, all of them the owner's only."""
    for name in ("", "startup", "local", "transfer", "weft"):
        (folder / name).mkdir(mode=0o700)
    for name, content in files.items():
        write_private(folder / name, content)


# ── the authority ─────────────────────────────────────────────────────────────────────────────


def _write_authority(folder: Path, authority: Authority, plan: FederationPlan) -> None:
    folder.mkdir(mode=0o700)
    write_private(folder / "ca.key", key_bytes(authority.key))
    write_private(folder / "ca.crt", pem(authority.certificate))
    _write_record(folder, plan)


def _write_record(folder: Path, plan: FederationPlan) -> None:
    record = _Record(plan.name, plan.host, plan.port)
    write_private(folder / "federation.json", msgspec.json.encode(record) + b"\n")


def _read_authority(folder: Path, plan: FederationPlan) -> Authority:
    """The authority of a federation, which must be at the place that the plan has."""
    authority, record = _open_authority(folder)
    for field in ("name", "host", "port"):
        now, then = getattr(plan, field), getattr(record, field)
        if now != then:
            raise _other_federation(field, now, then, folder)
    return authority


def _other_federation(field: str, now: object, then: object, folder: Path) -> ConfigError:
    mend = "" if field == "name" else ", say that it moves with 'weft federation move'"
    return ConfigError(
        f"federation.toml has {field} = {now!r}, but {folder} was made for {then!r}; change it "
        f"back{mend}, or provision anew in another folder"
    )


def _open_authority(folder: Path) -> tuple[Authority, _Record]:
    try:
        record = msgspec.json.decode(
            (folder / "federation.json").read_bytes(), type=prepared(_Record)
        )
        certificate = read_certificate((folder / "ca.crt").read_bytes())
        authority = Authority(certificate, read_key((folder / "ca.key").read_bytes()))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{error.filename} is not here; bring the authority's folder back to {folder}, or "
            "provision anew in another folder"
        ) from None
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read ({error.strerror or error})") from None
    except (msgspec.MsgspecError, CertificateError):
        raise ConfigError(f"{folder} is damaged; copy it back from a backup") from None
    if (
        authority.key.public_key() != certificate.public_key()
        or name_of(certificate) != record.name
    ):
        raise ConfigError(f"{folder} is damaged; copy it back from a backup")
    return authority, record


# ── all or nothing ────────────────────────────────────────────────────────────────────────────


def _check_requested(
    requested: Mapping[str, RSAPublicKey], recipients: Sequence[Recipient]
) -> None:
    names = {one.name for one in recipients}
    for name in requested:
        if name not in names:
            raise ConfigError(
                f"there is a signing request of '{name}', for whom no kit is made here; it should "
                f"come from one of {', '.join(names)}"
            )


def _check_free(out: Path) -> None:
    try:
        taken = any(out.iterdir())
    except FileNotFoundError:
        taken = False
    except OSError as error:
        raise ConfigError(
            f"{out} cannot hold kits ({error.strerror or error}); name another folder"
        ) from None
    if taken:
        raise ConfigError(
            f"{out} exists and is not empty; name another folder with --out, or add to it with "
            "'weft federation add'"
        )


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` that takes its place when the block ends without error."""
    with _draft(out.parent, out.name) as draft:
        yield draft
        os.rename(draft, out)


@contextmanager
def _added(out: Path) -> Iterator[Path]:
    """A folder whose content is moved into ``out`` when the block ends without error."""
    with _draft(out, "kits") as draft:
        yield draft
        moved: list[Path] = []
        try:
            for made in sorted(draft.iterdir()):
                os.rename(made, out / made.name)
                moved.append(out / made.name)
        except OSError:
            for path in moved:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            raise
        draft.rmdir()


@contextmanager
def _draft(parent: Path, name: str) -> Iterator[Path]:
    draft = parent / f".{name}.{uuid4().hex}.tmp"
    try:
        draft.mkdir(mode=0o700)
        yield draft
    except OSError as error:
        raise StorageError(
            f"{error.filename or parent}: cannot be written ({error.strerror or error}); check "
            "the folder's permissions and free space; nothing was changed"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
