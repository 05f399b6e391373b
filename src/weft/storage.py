"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from weft.errors import WeftError

#: What reading damaged bytes as a zip file of arrays may raise.
_DAMAGE = (OSError, ValueError, EOFError, KeyError, RuntimeError, BadZipFile, zlib.error,
           struct.error)  # fmt: skip


class StorageError(WeftError):
    """A file could not be written."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block ends without error.

    A reader therefore sees the old file or the whole new one, and an interrupted write leaves
    nothing behind.
    """
    if not path.parent.is_dir():
        raise StorageError(f"{path}: the folder {path.parent} does not exist; create it first")
    draft = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        yield draft
        os.replace(draft, path)
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written ({error.strerror or error}); check the folder's "
            "permissions and free space; what was there before is still whole"
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read a file that :func:`save_arrays` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError:
        raise StorageError(f"{path} does not exist; start without it") from None
    except _DAMAGE as error:
        # numpy's own words may advise to load what nobody should trust.
        kind = type(error).__name__
        raise StorageError(f"{path} is damaged or of another kind ({kind})") from None


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a file of arrays that only its owner can read."""
    with replacing(path) as draft:
        draft.touch(mode=0o600)
        with draft.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
