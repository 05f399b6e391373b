"""The coordinator's side of a deployed run: begun, gone on with, or found to be over already."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from secrets import token_bytes

from weft.algorithms.base import Record
from weft.coordination import coordinate
from weft.drafts import building
from weft.errors import ConfigError
from weft.network.channel import NetworkChannel, Timeouts
from weft.network.journal import Journal
from weft.network.post import Post
from weft.network.progress import Progress
from weft.network.results import PARCEL, write_parcel
from weft.network.task import Task
from weft.storage import locked, replacing

log = logging.getLogger("weft.coordinator")

#: Names in the folder of a run.
_TASK, _SECRET, _JOURNAL = "task.json", "run", "journal.weft"
#: Seconds to wait for parties that are not there when a run begins.
_BEGIN = 60.0


def coordinate_run(post: Post, folder: Path, task: Task, progress: Progress) -> None:
    """Bring a run to its end, from wherever it was left.

    Parameters
    ----------
    folder
        Of this run: everything that must outlive this process lies there. The results are in its
        ``results`` when the run is over.
    progress
        Is told how it gets on; its name is that of the run.

    Raises
    ------
    WeftError
        One sentence; the run can be resumed when what it says is mended.
    """
    _make(folder)
    # A server that was killed leaves a coordinator behind for some seconds.
    with locked(folder / _TASK):
        _keep_task(folder, task)
        if (folder / PARCEL).is_dir():
            log.info("run %s: was over already", progress.run)
            return
        _run(post, folder, task, progress)


def _run(post: Post, folder: Path, task: Task, progress: Progress) -> None:
    journal = Journal(folder / _JOURNAL)
    timeouts = Timeouts(setup=task.setup, work=task.timeout)
    channel = NetworkChannel(post, progress.run, journal, timeouts)
    if len(journal):
        log.info("run %s: goes on after %d exchanges", progress.run, len(journal) - 1)
    try:
        channel.hello(task.told(), _BEGIN)
        progress.begin(post.parties)

        def tell(record: Record) -> None:
            # What is repeated from the journal says who was away, not who is.
            progress.add(record, {} if channel.replaying else channel.away)

        secret = _secret(folder)
        outcome = coordinate(channel, task.preparation, task.settings, run=secret, progress=tell)
        unaware = channel.end()
        for party, failure in unaware.items():
            log.info("run %s: %s does not know that it is over: %s", progress.run, party, failure)
        with building(folder / PARCEL) as draft:
            write_parcel(draft, outcome, task, channel.presence)
    finally:
        channel.close()
        journal.close()
    # It holds ciphertext, and nobody needs it any more.
    Journal(folder / _JOURNAL).delete()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be made ({error.strerror or error}); check permissions and free "
            "space there"
        ) from None


def _keep_task(folder: Path, task: Task) -> None:
    """A run keeps the task that it began with."""
    path, text = folder / _TASK, task.to_json()
    if not path.exists():
        _write(path, text.encode())
    elif path.read_text(encoding="utf-8") != text:
        raise ConfigError(
            f"run {folder.name} was begun with another configuration; resume it with that one, or "
            "submit a new run"
        )


def _secret(folder: Path) -> bytes:
    """The run's random name, which its letters are written for: the same after every restart."""
    path = folder / _SECRET
    if not path.exists():
        _write(path, token_bytes(16))
    return path.read_bytes()


def _write(path: Path, content: bytes) -> None:
    with replacing(path, durable=True) as draft:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
