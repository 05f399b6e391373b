"""Where the recording of a run grows, and where it ends up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from weft.errors import ConfigError
from weft.protocol.recording_file import MESSAGES, Head, Recorder
from weft.storage.atomic_files import StorageError, replacing


@contextmanager
def recording(
    folder: Path, head: Head, *, wanted: bool, store: Path | None = None, resume: bool = False
) -> Iterator[Recorder | None]:
    """A recorder for a run whose results will be in ``folder``; None where none is wanted.

    The file grows beside ``folder``, or among the run's checkpoints, where a run that is resumed
    finds it. A block that fails leaves nothing behind, unless there is a checkpoint to go on from.

    Parameters
    ----------
    folder
        The results folder, which is not there yet.
    head
        Whose messages it will hold.
    wanted
        Whether to record at all; an interrupted recording is always continued.
    store
        Folder of checkpoints, which exists; None: there will be none.
    resume
        Whether the run goes on from a checkpoint.
    """
    made: list[Path] = []
    if resume and store is not None:
        recorder = _resumed(store, wanted)
    elif wanted and store is not None:
        recorder = Recorder(store / MESSAGES, head)
    elif wanted:
        made = _make(folder.parent)
        recorder = Recorder(folder.with_name(f".{folder.name}.{uuid4().hex}.messages"), head)
    else:
        recorder = None
    if recorder is None:
        yield None
        return
    try:
        yield recorder
    except BaseException:
        if store is None or not _can_resume(store):
            recorder.discard()
            _unmake(made)
        else:
            recorder.close()
        raise
    recorder.path.unlink(missing_ok=True)


@contextmanager
def recorded_to(path: Path | None, head: Head) -> Iterator[Recorder | None]:
    """A recorder whose file is there when the block ends without error; None without a path."""
    if path is None:
        yield None
        return
    if path.exists():
        raise ConfigError(f"{path} exists already; name another file with --record")
    with replacing(path) as draft:
        recorder = Recorder(draft, head)
        try:
            yield recorder
            recorder.finish()
        except BaseException:
            recorder.discard()
            raise


def place(recorder: Recorder, folder: Path) -> None:
    """Complete a recording and let it be part of a results folder."""
    recorder.finish()
    target = folder / MESSAGES
    try:
        # The original stays until the whole folder is in its place.
        os.link(recorder.path, target)
    except OSError:
        os.replace(recorder.path, target)


def _resumed(store: Path, wanted: bool) -> Recorder | None:
    path = store / MESSAGES
    if path.exists():
        return Recorder.again(path)
    if wanted:
        raise ConfigError(
            f"there is no recording in {store}: the interrupted run was not recorded, and half a "
            "record would mislead; resume without recording"
        )
    return None


def _can_resume(store: Path) -> bool:
    return any(path.name != MESSAGES for path in store.iterdir())


def _make(folder: Path) -> list[Path]:
    """Make a folder with its parents; returns the new ones, the innermost first."""
    try:
        new = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{folder}: the folder cannot be made ({error.strerror or error}); check the "
            "permissions and free space there"
        ) from None
    return new


def _unmake(folders: list[Path]) -> None:
    for path in folders:
        with suppress(OSError):
            path.rmdir()
