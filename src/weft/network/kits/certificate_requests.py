"""Requests for certificates: keys are made where they are used and never leave."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from uuid import uuid4

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from weft.errors import ConfigError
from weft.network.kits.certificates import (
    CertificateError,
    key_bytes,
    name_of,
    new_key,
    new_request,
    pem,
    read_request,
    requested_key,
)
from weft.storage.atomic_files import StorageError, write_private


def make_request(name: str, folder: Path) -> x509.CertificateSigningRequest:
    """Make a key and a signing request in a new folder, ``NAME.key`` and ``NAME.csr``.

    The request says the name and proves that its sender has the key; nothing in it is secret.
    """
    if not re.fullmatch(r"[A-Za-z0-9._%+@-]{1,64}", name) or name.startswith("."):
        raise ConfigError(
            f"{name!r} cannot be a site's or a submitter's name; use up to 64 letters, digits and "
            "signs, as federation.toml will have it"
        )
    if os.path.lexists(folder):
        raise ConfigError(f"{folder} exists already; name a new folder with --out")
    key = new_key()
    request = new_request(key, name)
    files = {f"{name}.key": key_bytes(key), f"{name}.csr": pem(request)}
    draft = folder.parent / f".{folder.name}.{uuid4().hex}.tmp"
    try:
        draft.mkdir(mode=0o700)
        for file, content in files.items():
            write_private(draft / file, content)
        os.rename(draft, folder)
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot be made ({error.strerror or error}); check the permissions and "
            "free space there"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return request


def read_requests(folder: Path) -> dict[str, RSAPublicKey]:
    """The keys in all signing requests (``*.csr``) of a folder, by the names that they say."""
    found: dict[str, RSAPublicKey] = {}
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".csr")
    except OSError as error:
        raise ConfigError(
            f"{folder} is no folder of signing requests ({error.strerror or error})"
        ) from None
    if not paths:
        raise ConfigError(f"{folder} has no signing requests (*.csr); put them there first")
    for path in paths:
        try:
            request = read_request(path.read_bytes())
            key = requested_key(request)
        except CertificateError as error:
            raise ConfigError(f"{path}: {error}; ask its sender for it again") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be read ({error.strerror or error})") from None
        name = name_of(request)
        if name in found:
            raise ConfigError(f"{folder} has two signing requests of '{name}'; keep the right one")
        found[name] = key
    return found
