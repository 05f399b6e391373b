"""Follows a run to its end, and resubmits it if its coordinator died."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from weft.errors import ConfigError, ProtocolError, WeftError
from weft.network.installed_job_kinds import job_kind_of
from weft.network.kits.kit_folder import Kit
from weft.network.nvflare_processes.admin_session import NoCoordinator, Session, is_over, places_of
from weft.network.nvflare_processes.port_and_coordinator_checks import (
    Unreachable,
    wait_for_coordinator,
)
from weft.network.nvflare_processes.stored_jobs import WAITING
from weft.network.run_progress import Report
from weft.network.submitted_task import Task

#: Seconds between two questions about progress.
_ASK = 0.5
#: And between two looks at the queue.
_LOOK = 5.0
#: Seconds that a job may take to end after its run is over.
_ENDING = 60.0


@dataclass
class Supervisor:
    """Brings a run to its end, even if processes die on the way.

    Parameters
    ----------
    kit
        A submitter's.
    say
        Called with news about anything but the run itself.
    show
        Called with the run's progress and the iterations since the last call.
    tries
        How often the run is submitted at most.
    patience
        Seconds to wait for a coordinator that is gone.
    session
        An open one to start with; a new one takes more than a second.
    """

    kit: Kit
    run: str
    task: Task
    say: Callable[[str], None]
    show: Callable[[Report], None]
    tries: int = 5
    patience: float = 300.0
    session: Session | None = None
    #: When the coordinator stopped answering.
    _lost: float | None = field(default=None, init=False)
    #: What was last said of the queue, and when it is looked at again.
    _place: str = field(default="", init=False)
    _next_look: float = field(default=0.0, init=False)

    def run_to_end(self, into: Path) -> Report:
        """Submit the run, follow it, and bring its files into a folder.

        Returns
        -------
        Report
            How it ended: ``over``, ``failed`` or ``stopped``.

        Raises
        ------
        ProtocolError
            It died too often.
        """
        number = 0
        while number < self.tries:
            try:
                with self._open() as session:
                    job = self._job(session)
                    if job is None:
                        number += 1
                        job = session.submit(self.run, self.task)
                    self._follow(session, job)
                    self._lost = None
                    ended = self._ended_in_queue(session, job) or session.fetch(
                        job, job_kind_of(self.task).result_files, into
                    )
                    if ended is not None:
                        return ended
                self.say(f"the coordinator's process died; run {self.run} is resumed")
            except (NoCoordinator, Unreachable) as error:
                self._wait(error)
        raise ProtocolError(
            f"the coordinator of run {self.run} died {self.tries} times; see its event log, then "
            f"go on with --resume {self.run}"
        )

    def _open(self) -> Session:
        given, self.session = self.session, None
        return Session(self.kit) if given is None else given

    def _wait(self, error: WeftError) -> None:
        """Wait for the coordinator to come back, within ``patience``."""
        now = time.monotonic()
        self._lost = now if self._lost is None else self._lost
        left = self._lost + self.patience - now
        self.say(str(error))
        try:
            wait_for_coordinator(self.kit, left, self.say)
        except Unreachable:
            left = 0.0
        if left <= 0:
            raise ProtocolError(
                f"the coordinator stays away; when it is back, go on with --resume {self.run}"
            ) from None
        self.say(f"the coordinator is there; run {self.run} is resumed")
        time.sleep(_ASK)

    def _job(self, session: Session) -> str | None:
        """A job of this run that has not ended."""
        for found in session.runs():
            if found.run == self.run and not found.ended:
                if found.forgets:
                    raise ConfigError(f"run {self.run} is being given up; submit a new run")
                return found.job
        return None

    def _ended_in_queue(self, session: Session, job: str) -> Report | None:
        """How a run ended that never began: refused, or taken out of the queue."""
        for found in session.runs():
            if found.job == job and found.never_began:
                return found.ending or Report(run=self.run, state="stopped", kept=False)
        return None

    def _tell_place(self, session: Session, job: str) -> None:
        """Say where the run stands in the queue, if that has changed."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK
        jobs = session.runs()
        place = places_of(jobs).get(job)
        going = [found.run for found in jobs if found.going]
        if place is None or (place == 1 and not going):
            return
        before = f"{place - 1} before it in the queue" if place > 1 else "it is the next"
        told = f"run {self.run} waits: {len(going)} under way, {before}"
        if told != self._place:
            self._place = told
            self.say(told)

    def _follow(self, session: Session, job: str) -> None:
        """Show the progress until the job is over."""
        seen, until = 0, float("inf")
        while time.monotonic() < until:
            report = self._asked(session, job, seen)
            if report is None:
                status = session.status(job)
                if is_over(status):
                    return
                if status == WAITING:
                    self._tell_place(session, job)
            else:
                # A real answer, not only a session that opens.
                self._lost = None
                seen += len(report.records)
                self.show(report)
                if report.state not in ("starting", "running") and until == float("inf"):
                    until = time.monotonic() + _ENDING
            time.sleep(_ASK)

    def _asked(self, session: Session, job: str, seen: int) -> Report | None:
        try:
            return session.progress(job, seen)
        except NoCoordinator:
            # A job's process that just died looks like this too; then its server still answers.
            session.status(job)
            return None
