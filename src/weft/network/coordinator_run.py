"""The coordinator's side of a deployed run: start, resume, and results."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from secrets import token_bytes

import msgspec

from weft import __version__
from weft.errors import ConfigError, PartyAway, ProtocolError
from weft.network import clock
from weft.network.coordinator_snapshots import has_snapshot
from weft.network.discard_run import SUBMITTER, TASK, check_owner, delete_folder
from weft.network.installed_job_kinds import job_kind_of, read_task
from weft.network.job_kind_interface import FinishedRun
from weft.network.network_channel import NetworkChannel, Timeouts
from weft.network.run_progress import IterationRecord, Progress
from weft.network.run_results import RESULTS
from weft.network.submitted_task import Task
from weft.network.transport_interface import Transport
from weft.protocol.recording_file import MESSAGES, Recorder
from weft.storage.atomic_files import locked, write_private
from weft.storage.atomic_folder import building
from weft.storage.journal import Journal

log = logging.getLogger("weft.coordinator")

#: Seconds between two tries to go on with a party that was away.
_WAIT = 1.0
#: More names in the folder of a run.
_SECRET, JOURNAL = "run", "journal.weft"


def coordinate_run(
    open_transport: Callable[[tuple[str, ...]], Transport],
    folder: Path,
    task: Task,
    progress: Progress,
    submitter: str = "",
    *,
    record: bool = False,
) -> None:
    """Start or resume a run, and bring it to its end.

    Parameters
    ----------
    open_transport
        Makes the transport to some parties.
    folder
        The run's own: everything that must outlive this process. It has ``results`` when the run
        is over. A run that could not begin leaves no folder.
    progress
        Receives the run's progress; has its name.
    submitter
        Who asks for it; only the run's submitter may resume or abandon it.
    record
        Keep all messages in the folder, for audits, until somebody deletes them.

    Raises
    ------
    WeftError
        The run can be resumed once the stated cause is mended.
    """
    _make(folder)
    # A killed server leaves its coordinator running for some seconds.
    with locked(folder / TASK):
        task = _kept_task(folder, task, submitter)
        # A journal that is still there means a kill before all parties knew that it was over.
        if (folder / RESULTS).is_dir() and not (folder / JOURNAL).exists():
            log.info("run %s: was over already", progress.run)
            return
        _run_to_end(open_transport(task.parties), folder, task, progress, record)


def _run_to_end(
    transport: Transport, folder: Path, task: Task, progress: Progress, record: bool
) -> None:
    """Run; where the run needs an absent party, wait for it and resume.

    The exchange that the party missed is not in the journal, so it is asked again.
    """
    since, size = clock.now(), -1
    while True:
        try:
            _run(transport, folder, task, progress, record)
            return
        except PartyAway as away:
            reached = (folder / JOURNAL).stat().st_size
            if reached != size:
                since, size = clock.now(), reached
                log.info("run %s: waits, for %s", progress.run, away)
            if clock.now() - since > task.patience:
                raise
            progress.waits.stand()
            clock.sleep(_WAIT)


def _run(transport: Transport, folder: Path, task: Task, progress: Progress, record: bool) -> None:
    journal = Journal(folder / JOURNAL)
    if record and has_snapshot(journal):
        # What lies before it cannot be recorded any more.
        log.warning("run %s: is not recorded, since it was begun without that", progress.run)
        record = False
    recorder = _recorder(folder, task, record)
    kind = job_kind_of(task)
    timeouts = Timeouts(setup=task.setup, work=task.timeout, setup_phases=kind.setup_phases)
    progress.waits.patience = task.patience
    channel = NetworkChannel(
        transport,
        progress.run,
        journal,
        timeouts,
        record=recorder or False,
        waits=progress.waits,
        secret=_secret(folder),
    )
    if len(journal):
        progress.resume(channel.exchanges_before)
    begun = True
    try:
        try:
            channel.hello(task.told(), task.timeout)
        except ProtocolError:
            begun = len(journal) > 0
            raise
        progress.versions = {"coordinator": __version__, **channel.versions}
        progress.begin(transport.parties, kind.name, exact_bytes=kind.exact_bytes)

        channel.follower = lambda how_far: progress.follow(how_far, repeated=channel.replaying)

        def tell(record: IterationRecord) -> None:
            # A repeated exchange says who was away then, not who is now.
            repeated = channel.replaying
            progress.add(record, {} if repeated else channel.away, repeated=repeated)

        finished = kind.coordinate(task, channel, _secret(folder), tell)
        if recorder is not None:
            recorder.finish()
        _write_results(folder, finished, channel)
        for party, failure in channel.end().items():
            unaware = f"{party} does not know yet that the run is over ({failure.reason})"
            # Kinds of runs without a summary have no place for it.
            log.warning("run %s: %s", progress.run, unaware)
            finished.notes.append(unaware)
        # Only now is it certain who was late.
        _write_results(folder, finished, channel)
    finally:
        channel.close()
        journal.close()
        if recorder is not None:
            recorder.close()
        if not begun:
            # The parties were told, and there is nothing to resume.
            delete_folder(folder)
    # It holds ciphertext or weights of parties, and is not needed any more.
    Journal(folder / JOURNAL).delete()


def _recorder(folder: Path, task: Task, record: bool) -> Recorder | None:
    """Writes the run's recording, from its beginning.

    A resumed run repeats its journal, and with it all that was recorded before: writing it anew
    leaves out what was asked, was not answered and does not count, and gives the file of a run that
    was never interrupted. Half a recording would mislead, so that none stays where none is wanted.
    """
    path = folder / MESSAGES
    path.unlink(missing_ok=True)
    return Recorder(path, task.recording_head()) if record else None


def _write_results(folder: Path, finished: FinishedRun, channel: NetworkChannel) -> None:
    with building(folder / RESULTS, replace=True) as draft:
        finished.write(draft, channel.presence)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be made ({error.strerror or error}); check permissions and free "
            "space there",
            told="the coordinator has no folder for the run; its event log says why",
        ) from None


def _kept_task(folder: Path, task: Task, submitter: str) -> Task:
    """The task that a run began with; ``task`` must be the same except for its parties."""
    path = folder / TASK
    if not path.exists():
        write_private(folder / SUBMITTER, submitter.encode(), durable=True)
        write_private(path, task.to_json().encode(), durable=True)
        return task
    # Results are sealed to whoever the parties chose, but a run is under way for its submitter.
    check_owner(folder, submitter, "resume it")
    kept = read_task(path.read_text(encoding="utf-8"))
    if msgspec.structs.replace(task, parties=kept.parties) != kept:
        raise ConfigError(
            f"run {folder.name} was begun with another configuration; resume it with that one, or "
            "submit a new run"
        )
    return kept


def _secret(folder: Path) -> bytes:
    """The run's random name, which its sealed messages are bound to; restarts keep it."""
    path = folder / _SECRET
    if not path.exists():
        write_private(path, token_bytes(16), durable=True)
    return path.read_bytes()
