"""Folders that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from weft.errors import ConfigError
from weft.storage.atomic_files import StorageError


def refuse_existing(folder: Path) -> None:
    """Refuse an output folder that is not empty, is no folder, or cannot be written."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"the output folder {folder} exists and is not empty; name another one with --out, or "
            "delete it first"
        )
    # The first that exists, in which the others are made.
    above = next(path for path in folder.absolute().parents if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(
            f"the output folder {folder} cannot be made, for {above} is no folder that can be "
            "written; name another one with --out"
        )


@contextmanager
def building(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """A draft folder beside ``folder`` that takes its place when the block ends without error.

    Parameters
    ----------
    folder
        Where the result goes; parents are made as needed.
    replace
        Replace a folder that exists.
    """
    if not replace:
        refuse_existing(folder)
    draft = folder.with_name(f".{folder.name}.{uuid4().hex}.tmp")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        yield draft
        _move(draft, folder)
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot be written ({error.strerror or error}); check the folder's "
            "permissions and free space"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _move(draft: Path, folder: Path) -> None:
    if not folder.exists():
        os.replace(draft, folder)
        return
    # A folder cannot replace a full one in one step: the old one steps aside first.
    old = folder.with_name(f".{folder.name}.{uuid4().hex}.old")
    os.replace(folder, old)
    os.replace(draft, folder)
    shutil.rmtree(old)
