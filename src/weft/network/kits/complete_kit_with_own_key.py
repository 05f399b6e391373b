"""Installing a kit: completing it with the key that was made on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from weft.errors import ConfigError
from weft.network.kits.certificates import (
    CertificateError,
    check_signed,
    fingerprint,
    key_bytes,
    name_of,
    read_certificate,
    read_key,
)
from weft.network.kits.coordinator_move_letter import last_move, vouched_move
from weft.network.kits.keyless_kit_archive import read_archive
from weft.network.kits.kit_folder import Kit
from weft.network.kits.nvflare_settings_of_kit import COORDINATOR
from weft.network.kits.provisioning import write_kit
from weft.storage.atomic_files import StorageError, write_private


def install(archive: Path, folder: Path, out: Path | None = None) -> Kit:
    """Complete a kit with the key that was made here.

    Parameters
    ----------
    archive
        The kit as it came, without a key.
    folder
        What `make_request` made.
    out
        New folder for the kit; by default it is called as its owner, beside the archive.
    """
    files = read_archive(archive)
    name, key = _own_key(folder)
    certificate = _check_archive(archive, files, name, key)
    target = archive.parent / name if out is None else out
    if os.path.lexists(target):
        raise ConfigError(f"{target} exists already; name another folder with --out")
    draft = target.parent / f".{target.name}.{uuid4().hex}.tmp"
    try:
        write_kit(draft, {**files, f"startup/{certificate}.key": key_bytes(key)})
        os.rename(draft, target)
    except OSError as error:
        raise StorageError(
            f"{target}: the kit cannot be written ({error.strerror or error}); check the "
            "permissions and free space there"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Kit.open(target)


def renew(archive: Path, folder: Path, kit: Kit, *, new_authority: bool = False) -> Kit:
    """Put a new certificate and key into a kit; all that Weft keeps in it stays.

    Parameters
    ----------
    archive, folder
        As for `install`.
    kit
        The kit as it is. Nothing may run with it.
    new_authority
        Whether the federation was provisioned anew; else another authority is refused.

    Raises
    ------
    ConfigError
        The archive is of another owner, federation, authority or address.
    """
    files = read_archive(archive)
    name, key = _own_key(folder)
    base = _check_archive(archive, files, name, key)
    with TemporaryDirectory() as place:
        draft = Path(place) / "kit"
        write_kit(draft, {**files, f"startup/{base}.key": key_bytes(key)})
        _check_successor(archive, kit, Kit.open(draft), new_authority=new_authority)
    # One after the other: what is interrupted does not open, and can be done again.
    for file, content in {f"startup/{base}.key": key_bytes(key), **files}.items():
        write_private(kit.path / file, content)
    return Kit.open(kit.path)


def _check_successor(archive: Path, old: Kit, new: Kit, *, new_authority: bool) -> None:
    for what, before, now in (
        ("kind", old.kind, new.kind),
        ("name", old.name, new.name),
        ("federation", old.federation, new.federation),
    ):
        if before != now:
            raise ConfigError(
                f"{archive} has the {what} '{now}', but {old.path} has '{before}'; renew a kit "
                "with one that was made for it"
            )
    if old.fingerprint != new.fingerprint and not new_authority:
        raise ConfigError(
            f"{archive} is of another authority ({new.fingerprint[:19]} …) than {old.path}; if the "
            "organiser has provisioned the federation anew, compare the whole fingerprint by "
            "telephone ('weft federation install' without --renew shows it) and add --new-authority"
        )
    # The coordinator's certificate has its host, which the authority signed; of others, only a
    # letter of the authority changes the address.
    moved = old.kind != "coordinator" and (old.host, old.port) != (new.host, new.port)
    if moved and not new_authority and vouched_move(new) <= last_move(old):
        raise ConfigError(
            f"{archive} has the coordinator at {new.host}:{new.port}, but {old.path} at "
            f"{old.host}:{old.port}; let the old kit follow the organiser's letter first "
            "('weft federation follow')"
        )


def _own_key(folder: Path) -> tuple[str, RSAPrivateKey]:
    """Name and key in a folder that `make_request` made."""
    try:
        paths = [path for path in folder.iterdir() if path.suffix == ".key"]
        if len(paths) != 1:
            raise ConfigError(
                f"{folder} has {len(paths)} keys; name the folder that 'weft federation request' "
                "made"
            )
        return paths[0].stem, read_key(paths[0].read_bytes())
    except CertificateError as error:
        raise ConfigError(f"{paths[0]}: {error}; make a new request") from None
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read ({error.strerror or error})") from None


def _check_archive(archive: Path, files: Mapping[str, bytes], name: str, key: RSAPrivateKey) -> str:
    """Refuse another owner's kit; the base name of its certificate."""
    base = "server" if "startup/fed_server.json" in files else "client"
    again = "ask the organiser of the federation for it again"
    try:
        certificate = read_certificate(files[f"startup/{base}.crt"])
        authority = read_certificate(files["startup/rootCA.pem"])
        check_signed(certificate, authority)
    except KeyError as error:
        raise ConfigError(f"{archive} has no {error.args[0]}; {again}") from None
    except CertificateError as error:
        raise ConfigError(f"{archive} cannot be used: {error}; {again}") from None
    if base == "client" and name_of(certificate) != name:
        raise ConfigError(
            f"{archive} is the kit of '{name_of(certificate)}', but the request was made for "
            f"'{name}'; install the one that was sent to '{name}'"
        )
    if base == "server" and name != COORDINATOR:
        raise ConfigError(f"{archive} is the coordinator's kit, but the request is of '{name}'")
    if certificate.public_key() != key.public_key():
        raise ConfigError(
            f"{archive} was made for another key than the one of this request "
            f"({fingerprint(key.public_key())[:19]} …); send the organiser the request again"
        )
    return base
