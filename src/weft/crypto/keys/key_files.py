"""The files of a folder of keys: where they lie, who can read them, how they are written."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Literal

import msgspec

from weft.crypto.keys.public_keys_file import KeysError, PublicKeys, read_public
from weft.crypto.party_key_pairs import Identity, PublicIdentity
from weft.crypto.secret_bytes import Secret
from weft.storage.atomic_files import StorageError, replacing, write_private

#: First bytes of a private key file, to tell it from any other file.
MAGIC = b"weft identity 1\n"

#: Permissions of anybody but the owner.
_OTHERS = 0o077

#: What a name may hold and a folder's name should not: dots too, for a party may be called "..".
_ESCAPES = {ord(sign): f"%{ord(sign):02X}" for sign in "%/\\."}

# What can be seen of a file from outside: whether it is here, and who can read it.
Access = Literal["owner only", "open to others", "of another run", "not here", "out of reach"]


@dataclass(frozen=True)
class KeyFiles:
    """The files of one party, looked at from outside.

    Parameters
    ----------
    name
        The party.
    public
        Its public identity.
    identity, box
        Its private keys and its sealed run secret.
    remedies
        Commands that close to others what is open to them.
    """

    name: str
    public: PublicIdentity
    identity: Access
    box: Access
    remedies: tuple[str, ...]


# ── looking ───────────────────────────────────────────────────────────────────────────────────


def describe_keys(folder: Path) -> tuple[PublicKeys, list[KeyFiles]]:
    """What a folder holds, without reading a secret."""
    public = read_public(folder)
    return public, [_look(folder, name, public) for name in public.members]


def _look(folder: Path, party: str, public: PublicKeys) -> KeyFiles:
    home, key = _home(folder, party), identity_file(folder, party)
    sealed = box_file(folder, party, public.run)
    box = _access(sealed)
    if box == "not here" and has_other_runs(folder, party):
        box = "of another run"
    remedies = tuple(
        _remedy(path) for path in (home, key, sealed) if _access(path) == "open to others"
    )
    return KeyFiles(party, public.members[party], _access(key), box, remedies)


def _access(path: Path) -> Access:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "not here"
    except OSError:
        return "out of reach"
    return "open to others" if mode & _OTHERS else "owner only"


def has_other_runs(folder: Path, party: str) -> bool:
    """Whether a party has a box at all, if only of another run."""
    return any(_home(folder, party).glob("run-*.box"))


def _remedy(path: Path) -> str:
    return f"chmod {'700' if path.is_dir() else '600'} {quote(str(path))}"


# ── files ─────────────────────────────────────────────────────────────────────────────────────
#
# os.path says "no" where Path.exists() and Path.is_dir() raise: of a name too long for a file, and
# in a folder that is closed to us. What then follows fails with a sentence.


def _home(folder: Path, party: str) -> Path:
    return folder / party.translate(_ESCAPES)


def identity_file(folder: Path, party: str) -> Path:
    """Where a party's private keys lie."""
    return _home(folder, party) / "identity.key"


def box_file(folder: Path, party: str, run: str) -> Path:
    """Where the sealed secret of a run lies."""
    return _home(folder, party) / f"run-{run}.box"


def read_private(path: Path, party: str) -> bytes:
    """Read a file that only its owner can; that it is not there is for the caller to say."""
    try:
        home = path.parent.stat().st_mode
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not (home | mode) & _OTHERS:
                return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise KeysError(
            f"party {party}: {path} cannot be read ({error.strerror or error}); check its owner "
            "and permissions"
        ) from None
    # Whoever may write to the folder could exchange the file.
    opened, kind = (path, mode) if mode & _OTHERS else (path.parent, home)
    raise KeysError(
        f"party {party}: {opened} is open to others (mode {stat.S_IMODE(kind):04o}); close it with "
        f"'{_remedy(opened)}', and make new keys if others may have read it"
    )


def write_identity(path: Path, identity: Identity, made: list[Path]) -> None:
    """Write private keys, unless they are there already."""
    if not os.path.exists(path):
        write(path, Secret(MAGIC + identity.private().reveal()), made)


def write(path: Path, content: bytes | Secret, made: list[Path]) -> None:
    """Write a new file that only its owner can read."""
    _make_folder(path.parent, made, mode=0o700)
    made.append(path)
    write_private(path, content.reveal() if isinstance(content, Secret) else content)


def write_public(path: Path, public: PublicKeys, made: list[Path]) -> None:
    """Write ``public.json``; it decides which of the other files count."""
    if not os.path.exists(path):
        made.append(path)
    with replacing(path) as draft:
        draft.write_bytes(msgspec.json.format(public.to_json(), indent=2) + b"\n")


def _make_folder(path: Path, made: list[Path], *, mode: int = 0o777) -> None:
    if os.path.isdir(path):
        return
    _make_folder(path.parent, made)
    try:
        path.mkdir(mode)
    except OSError as error:
        raise StorageError(
            f"{path}: the folder cannot be made ({error.strerror or error}); check the "
            "permissions and free space there"
        ) from None
    made.append(path)


@contextmanager
def undone_on_failure() -> Iterator[list[Path]]:
    """A list of new files and folders, which are deleted again where the block fails."""
    made: list[Path] = []
    try:
        yield made
    except BaseException:
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        raise


def forget_other_runs(folder: Path, run: str) -> None:
    """Delete the boxes of runs that are over, also those of members that left."""
    for path in folder.glob("*/run-*.box"):
        if path.name != f"run-{run}.box":
            # One that cannot be deleted is of no use either: public.json no longer names it.
            with suppress(OSError):
                path.unlink()
