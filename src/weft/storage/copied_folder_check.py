"""Telling a folder that was copied, or restored from a backup, from one that was written here.

A file system notes when the inode of a file last changed (ctime), and lets nobody set that: a copy
has the time of the copying. The folder has an empty file that is never touched again, and beside it
its time. A snapshot of a whole disk brings back both, and is not found out.
"""

from __future__ import annotations

from pathlib import Path

from weft.storage.atomic_files import StorageError, write_private

_TOUCHED_ONCE, _WHEN = "origin", "origin.time"


def mark_origin(folder: Path) -> None:
    """Mark a folder as written here; on the disk when this returns."""
    write_private(folder / _TOUCHED_ONCE, b"", durable=True)
    write_private(folder / _WHEN, _time_of(folder), durable=True)


def is_original(folder: Path) -> bool:
    """Whether the folder is the one that was marked, and no copy of it."""
    try:
        return (folder / _WHEN).read_bytes() == _time_of(folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be read ({error.strerror or error}); check its owner and permissions"
        ) from None


def _time_of(folder: Path) -> bytes:
    return str((folder / _TOUCHED_ONCE).stat().st_ctime_ns).encode()
