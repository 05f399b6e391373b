"""The coordinator's side of a deployed run: begun, gone on with, or found to be over already."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_bytes

import msgspec

from weft.errors import ConfigError, PartyAway, ProtocolError
from weft.network.abandon_run import SUBMITTER, TASK, delete_folder
from weft.network.job_kind import Finished, undertaking_of
from weft.network.network_channel import NetworkChannel, Timeouts
from weft.network.run_progress import Progress, Told
from weft.network.run_results import PARCEL
from weft.network.task import Task
from weft.network.transport import Post
from weft.storage.atomic_folder import building
from weft.storage.files import locked, write_private
from weft.storage.journal import Journal

log = logging.getLogger("weft.coordinator")

#: Seconds between two tries to go on with a party that was away.
_WAIT = 1.0
#: More names in the folder of a run.
_SECRET, _JOURNAL = "run", "journal.weft"


def coordinate_run(
    open_post: Callable[[tuple[str, ...]], Post],
    folder: Path,
    task: Task,
    progress: Progress,
    submitter: str = "",
) -> None:
    """Bring a run to its end, from wherever it was left.

    Parameters
    ----------
    open_post
        Makes the post to some parties.
    folder
        Of this run: everything that must outlive this process lies there. The results are in its
        ``results`` when the run is over. A run that could not begin leaves no folder.
    progress
        Is told how it gets on; its name is that of the run.
    submitter
        Who may give the run up.

    Raises
    ------
    WeftError
        One sentence; the run can be resumed when what it says is mended.
    """
    _make(folder)
    # A server that was killed leaves a coordinator behind for some seconds.
    with locked(folder / TASK):
        task = _kept_task(folder, task, submitter)
        # With a journal it was killed before all parties knew that it is over.
        if (folder / PARCEL).is_dir() and not (folder / _JOURNAL).exists():
            log.info("run %s: was over already", progress.run)
            return
        _see_through(open_post(task.parties), folder, task, progress)


def _see_through(post: Post, folder: Path, task: Task, progress: Progress) -> None:
    """Run, and where nothing goes on without a party that is away, wait for it and go on.

    What it was missing from is not in the journal, and is asked again.
    """
    since, size = time.monotonic(), -1
    while True:
        try:
            _run(post, folder, task, progress)
            return
        except PartyAway as away:
            reached = (folder / _JOURNAL).stat().st_size
            if reached != size:
                since, size = time.monotonic(), reached
                log.info("run %s: waits, for %s", progress.run, away)
            if time.monotonic() - since > task.patience:
                raise
            time.sleep(_WAIT)


def _run(post: Post, folder: Path, task: Task, progress: Progress) -> None:
    journal = Journal(folder / _JOURNAL)
    timeouts = Timeouts(setup=task.setup, work=task.timeout)
    channel = NetworkChannel(post, progress.run, journal, timeouts)
    undertaking = undertaking_of(task)
    if len(journal):
        progress.go_on(len(journal) - 1)
    begun = True
    try:
        try:
            channel.hello(task.told(), task.timeout)
        except ProtocolError:
            begun = len(journal) > 0
            raise
        progress.begin(post.parties, undertaking.kind)

        def tell(record: Told) -> None:
            # What is repeated from the journal says who was away, not who is.
            progress.add(record, {} if channel.replaying else channel.away)

        finished = undertaking.coordinate(channel, _secret(folder), tell)
        _write_results(folder, finished, channel)
        for party, failure in channel.end().items():
            finished.notes.append(
                f"{party} does not know yet that the run is over ({failure.reason})"
            )
        # Who was late is known for certain only now.
        _write_results(folder, finished, channel)
    finally:
        channel.close()
        journal.close()
        if not begun:
            # Parties that would have taken part were told so; there is nothing to go on with.
            delete_folder(folder)
    # It holds ciphertext, or weights of parties, and nobody needs it any more.
    Journal(folder / _JOURNAL).delete()


def _write_results(folder: Path, finished: Finished, channel: NetworkChannel) -> None:
    with building(folder / PARCEL, replace=True) as draft:
        finished.write(draft, channel.presence)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be made ({error.strerror or error}); check permissions and free "
            "space there"
        ) from None


def _kept_task(folder: Path, task: Task, submitter: str) -> Task:
    """The task that a run began with; ``task`` must be the same, but for who is connected now."""
    path = folder / TASK
    if not path.exists():
        write_private(folder / SUBMITTER, submitter.encode(), durable=True)
        write_private(path, task.to_json().encode(), durable=True)
        return task
    kept = Task.from_json(path.read_text(encoding="utf-8"))
    if msgspec.structs.replace(task, parties=kept.parties) != kept:
        raise ConfigError(
            f"run {folder.name} was begun with another configuration; resume it with that one, or "
            "submit a new run"
        )
    return kept


def _secret(folder: Path) -> bytes:
    """The run's random name, which its letters are written for: the same after every restart."""
    path = folder / _SECRET
    if not path.exists():
        write_private(path, token_bytes(16), durable=True)
    return path.read_bytes()
