"""The submitter's side: an admin session with the engine's server."""

from __future__ import annotations

import io
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from nvflare.fuel.flare_api.api_spec import (
    AuthenticationError,
    AuthorizationError,
    InternalError,
    InvalidJobDefinition,
    JobNotDone,
    JobNotFound,
    JobNotRunning,
    NoConnection,
    NoReply,
    SessionClosed,
)
from nvflare.fuel.flare_api.flare_api import new_secure_session

from weft.errors import ConfigError, ProtocolError, WeftError
from weft.network.kits.kit_folder import Kit
from weft.network.nvflare_processes.port_and_coordinator_checks import (
    Unreachable,
    check_coordinator,
)
from weft.network.nvflare_processes.stored_jobs import ending_of, is_over, submission_of
from weft.network.nvflare_processes.write_job import FORGETS, OUTCOME, PROGRESS, write_job
from weft.network.run_progress import Report
from weft.network.run_queue import Submission, in_order
from weft.thread_safe_decoding import prepared

if TYPE_CHECKING:
    from weft.network.submitted_task import Task

#: Seconds to get a session.
_LOGIN = 10.0
_WORDS = {
    "SUBMITTED": "waiting",
    "DISPATCHED": "starting",
    "FINISHED:CAN_NOT_SCHEDULE": "refused",
    "FINISHED:COMPLETED": "ended",
    "FINISHED:ABORTED": "stopped",
    "FINISHED:EXECUTION_EXCEPTION": "its process died",
    "FINISHED:ABNORMAL": "its process died",
}


class NoCoordinator(WeftError):
    """The coordinator's server stopped answering."""


@dataclass(frozen=True)
class RunInfo:
    """A job of a run, as the server lists it; a run that was resubmitted has several.

    Attributes
    ----------
    status
        In the engine's words, such as ``RUNNING`` or ``FINISHED:COMPLETED``.
    submitted
        When, for people to read.
    submission
        What the queue knows of it.
    ending
        How the run ended; None if it is running, or its process died.
    forgets
        Whether the job abandons the run.
    """

    run: str
    job: str
    status: str
    submitted: str
    ending: Report | None = None
    forgets: bool = False
    submission: Submission | None = None

    @property
    def going(self) -> bool:
        """Whether its run is under way."""
        return self.status == "RUNNING" and not self.forgets

    @property
    def submitter(self) -> str:
        """Who submitted it; empty if that is not known."""
        return "" if self.submission is None else self.submission.submitter

    @property
    def waits(self) -> bool:
        """Whether it is in the queue."""
        return self.submission is not None and self.submission.waits

    @property
    def never_began(self) -> bool:
        """Whether it ended in the queue."""
        return self.ended and self.submission is not None and not self.submission.started

    @property
    def ended(self) -> bool:
        return is_over(self.status)

    @property
    def words(self) -> str:
        """The status in Weft's words."""
        if self.ending is not None:
            return self.ending.state
        if self.forgets:
            return "is being given up"
        return _WORDS.get(self.status, self.status.lower())


def places_of(jobs: Iterable[RunInfo]) -> dict[str, int]:
    """Places in the queue by jobs, from 1 on; those that do not wait have none."""
    known = [found.submission for found in jobs if found.submission is not None]
    return {one.job: place for place, one in enumerate(in_order(known), 1)}


def newest_jobs(jobs: Iterable[RunInfo]) -> list[RunInfo]:
    """Of every run the newest job, where those that come first are newer.

    A run that was gone on with has several. Its name is chosen by whoever submits it: the same name
    of another submitter is another run, and hides nobody's.
    """
    found: dict[tuple[str, str], RunInfo] = {}
    for job in jobs:
        found.setdefault((job.submitter, job.run), job)
    return [*found.values()]


class Session:
    """A session with the coordinator's server; as a context, it closes at the end.

    Errors of the engine are raised as one readable sentence.

    Parameters
    ----------
    kit
        A submitter's.
    """

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        check_coordinator(kit)
        kit.prepare()
        with _worded(), _quiet():
            self._engine = new_secure_session(kit.name, str(kit.path), timeout=_LOGIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        with _quiet():
            self._engine.close()

    @property
    def submitter(self) -> str:
        """Whose session it is."""
        return self._kit.name

    def connected(self) -> list[str]:
        """Names of the parties that are connected."""
        with _worded(), _quiet():
            return sorted(client.name for client in self._engine.get_connected_client_list())

    def submit(self, run: str, task: Task | None) -> str:
        """Submit or resume a run; a task of None abandons it. Returns the job's id."""
        with tempfile.TemporaryDirectory() as folder, _worded(), _quiet():
            return str(self._engine.submit_job(str(write_job(Path(folder), run, task))))

    def status(self, job: str) -> str:
        """The engine's status of a job."""
        with _worded(), _quiet():
            return str(self._engine.get_job_meta(job)["status"])

    def progress(self, job: str, since: int) -> Report | None:
        """The run's progress; None if its job has not begun or is over."""
        try:
            with _worded(), _quiet():
                told = self._engine.do_app_command(job, PROGRESS, {"since": since})
        except _Silent:
            return None
        return msgspec.convert(told, prepared(Report))

    def runs(self) -> list[RunInfo]:
        """All jobs that the server knows, the newest first."""
        with _worded(), _quiet():
            found = self._engine.list_jobs(detailed=True, reverse=True)
        return [info_of(entry) for entry in found]

    def stop(self, job: str) -> None:
        """End a job; its run can be resumed."""
        with _worded(), _quiet():
            self._engine.abort_job(job)

    def delete(self, job: str) -> None:
        """Delete a job that is over from the server."""
        with _worded(), _quiet():
            self._engine.delete_job(job)

    def fetch(self, job: str, names: tuple[str, ...], into: Path) -> Report | None:
        """Copy the named files of a finished job into a folder; how the run ended.

        Returns
        -------
        Report or None
            None if the job's process died before it could report.
        """
        with tempfile.TemporaryDirectory() as folder:
            with _worded(), _quiet():
                found = self._engine.download_job_result(job, folder)
            workspace = Path(found) / "workspace"
            told = workspace / OUTCOME
            if not told.is_file():
                return None
            for name in names:
                if (workspace / name).is_file():
                    shutil.copyfile(workspace / name, into / name)
            return msgspec.json.decode(told.read_bytes(), type=prepared(Report))


class _Silent(WeftError):
    """A job does not answer because it has not begun yet, or is over."""


def info_of(entry: dict[str, Any]) -> RunInfo:
    """A job, from the engine's notes of it."""
    known = submission_of(entry)
    return RunInfo(
        run=known.run,
        job=known.job,
        status=str(entry["status"]),
        submitted=_moment(entry.get("submit_time")),
        ending=ending_of(entry),
        forgets=bool(entry.get(FORGETS)),
        submission=known,
    )


def _moment(stamp: Any) -> str:
    """The engine's seconds as a readable time."""
    if not isinstance(stamp, int | float | str):
        return "at an unknown time"
    try:
        return f"{datetime.fromtimestamp(float(stamp)):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return str(stamp)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the engine prints and logs off the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)


@contextmanager
def _worded() -> Iterator[None]:
    """Raise the engine's exceptions as readable sentences."""
    try:
        yield
    except (NoReply, JobNotRunning):
        raise _Silent("the job does not answer") from None
    except (NoConnection, SessionClosed, ConnectionError, TimeoutError) as error:
        raise NoCoordinator(
            f"the coordinator does not answer any more ({error}); check that 'weft serve' runs"
        ) from None
    except (AuthenticationError, AuthorizationError) as error:
        raise ConfigError(
            f"the coordinator does not allow this to the kit's owner ({error}); ask the "
            "organiser of the federation"
        ) from None
    except InvalidJobDefinition as error:
        raise ConfigError(f"the coordinator refuses this run ({error})") from None
    except (JobNotFound, JobNotDone) as error:
        raise ConfigError(f"the coordinator says: {error}; look with 'weft status'") from None
    except WeftError:
        raise
    except InternalError as error:
        if PROGRESS in str(error):
            # The job's process is there, but our controller in it is not yet.
            raise _Silent("the job does not answer") from None
        raise _trouble(error) from None
    except Exception as error:
        raise _trouble(error) from None


def _trouble(error: Exception) -> NoCoordinator:
    return NoCoordinator(
        f"the engine could not talk to the coordinator ({type(error).__name__}: {error})"
    )


__all__ = [
    "NoCoordinator",
    "RunInfo",
    "Session",
    "Unreachable",
    "info_of",
    "is_over",
    "newest_jobs",
    "places_of",
]

# ── abandoning a run ──────────────────────────────────────────────────────────────────────────────


#: Seconds between two looks at a job.
_LOOK = 0.3


@dataclass(frozen=True)
class AbandonRequest:
    """Stops a run if it is still running, abandons it, and deletes its jobs at the server.

    Parameters
    ----------
    patience
        Seconds to wait for the coordinator, which in turn waits for parties.
    """

    session: Session
    run: str
    patience: float = 180.0

    def send(self) -> dict[str, str]:
        """Abandon the run; the parties that could not be told, and why.

        Raises
        ------
        WeftError
            It could not be abandoned; the text says why.
        """
        jobs = [
            found
            for found in self.session.runs()
            # Another's of the same name is not meant, nor could it be stopped.
            if found.run == self.run and found.submitter in ("", self.session.submitter)
        ]
        if not jobs:
            raise ConfigError(
                f"the coordinator knows no run '{self.run}' of yours; weft status lists what there "
                "is, with who submitted it and may give it up"
            )
        if not self.session.connected():
            raise ConfigError("no party is connected, so none could be told; wait until one is")
        self._end(jobs)
        job = self.session.submit(self.run, None)
        self._wait(lambda: self._is_over(job))
        told = self.session.fetch(job, (), Path())
        if told is None or told.state != "forgotten":
            why = "its process died" if told is None else told.sentence
            raise ProtocolError(f"run {self.run} could not be given up: {why}")
        for over in (*(found.job for found in jobs), job):
            self.session.delete(over)
        return told.away

    def _end(self, jobs: Sequence[RunInfo]) -> None:
        going = [found.job for found in jobs if not found.ended]
        for job in going:
            self.session.stop(job)
        self._wait(lambda: all(self._is_over(job) for job in going))

    def _is_over(self, job: str) -> bool:
        return is_over(self.session.status(job))

    def _wait(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + self.patience
        while not done():
            if time.monotonic() > until:
                raise ProtocolError(
                    f"the coordinator has not given run {self.run} up within {self.patience:g} s; "
                    "look with weft status, and say it once more"
                )
            time.sleep(_LOOK)
