"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import struct
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from numpy.typing import NDArray

from weft.errors import WeftError
from weft.storage.fast_npz_files import read_arrays, write_arrays

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has none.
    fcntl = None  # type: ignore[assignment]

#: What reading a damaged file of arrays may raise.
_DAMAGE = (OSError, ValueError, EOFError, KeyError, RuntimeError, struct.error)
#: Seconds between two attempts to get a lock, and before giving up.
_PAUSE, _PATIENCE = 0.005, 120.0


#: What others are told of a file that cannot be used: where it lies is nobody else's business.
_UNTOLD = "cannot write down what it must keep; its own log says where and why"


class StorageError(WeftError):
    """A file could not be written; others are not told which."""

    def __init__(self, reason: str = "", *, told: str | None = None) -> None:
        if told is None:
            told = _UNTOLD if os.sep in reason else reason
        super().__init__(reason, told=told)


class DamagedFile(StorageError):
    """A file is not what was written, and never will be."""


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block ends without error.

    A reader therefore sees the old file or the whole new one, and an interrupted write leaves
    nothing behind. A ``durable`` file also survives a power cut.
    """
    if not path.parent.is_dir():
        raise StorageError(f"{path}: the folder {path.parent} does not exist; create it first")
    draft = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        yield draft
        if durable:
            _sync(draft)
        os.replace(draft, path)
        if durable:
            _sync(path.parent)
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written ({error.strerror or error}); check the folder's "
            "permissions and free space; what was there before is still whole"
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    if path.is_dir() and os.name == "nt":  # pragma: no cover - Windows opens no folders.
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other threads and processes out of the same block for ``path``.

    The lock is on an empty file beside ``path``, which stays there: deleting it could let two
    holders in. The lock ends with its process, so a kill leaves none behind.
    """
    if fcntl is None:  # pragma: no cover - Windows has none.
        warnings.warn(
            f"this system has no file locks (fcntl), so that {path} may lose what two runs write "
            "at once; run one after the other",
            stacklevel=3,
        )
        yield
        return
    lock = path.with_name(f".{path.name}.lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unlocked(lock, error.strerror or str(error)) from None
    try:
        _take(handle, lock)
        yield
    finally:
        # Also if a child process inherited the handle.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _take(handle: int, lock: Path) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise _unlocked(lock, f"another run has had it for {_PATIENCE:g} s") from None
        except OSError as error:
            raise _unlocked(lock, error.strerror or str(error)) from None
        time.sleep(_PAUSE)


def _unlocked(lock: Path, why: str) -> StorageError:
    return StorageError(
        f"{lock}: cannot be locked ({why}); end other runs that use this folder, check its "
        "permissions, or name one on a disk of this machine"
    )


def write_private(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace a file by one that only its owner can read."""
    with replacing(path, durable=durable) as draft, open(draft, "wb", opener=_private) as file:
        file.write(content)


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read a file that :func:`save_arrays` wrote."""
    try:
        with path.open("rb") as file:
            return read_arrays(file)
    except FileNotFoundError:
        raise StorageError(f"{path} does not exist; start without it") from None
    except _DAMAGE as error:
        # numpy's own text may advise loading untrusted content.
        kind = type(error).__name__
        raise StorageError(f"{path} is damaged or of another kind ({kind})") from None


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], *, durable: bool = False) -> None:
    """Write a file of arrays that only its owner can read."""
    with replacing(path, durable=durable) as draft, open(draft, "wb", opener=_private) as file:
        write_arrays(file, arrays)


def _private(path: str, flags: int) -> int:
    """Open a file that, where it is new, only its owner can read."""
    return os.open(path, flags, 0o600)


def part_of(arrays: Mapping[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    """Arrays whose names begin with ``name.``, without that prefix."""
    start = len(name) + 1
    return {key[start:]: a for key, a in arrays.items() if key.startswith(f"{name}.")}
