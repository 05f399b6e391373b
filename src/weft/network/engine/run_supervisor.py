"""Sees a run through: follows it, and hands it in again when its coordinator died."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from weft.errors import ConfigError, ProtocolError, WeftError
from weft.network.engine.admin_session import NoCoordinator, Session, is_over
from weft.network.engine.preflight import Unreachable, knock_until
from weft.network.kits.open_kit import Kit
from weft.network.run_progress import Report
from weft.network.run_results import FILES
from weft.network.task import Task

#: Seconds between two questions how a run gets on.
_ASK = 0.5
#: Seconds that a job may take to end after its run is over.
_ENDING = 60.0


@dataclass
class Supervisor:
    """Brings a run to its end, whatever dies on the way.

    Parameters
    ----------
    kit
        A submitter's.
    say
        Is told what happens besides the run itself.
    show
        Is told how the run gets on, with the iterations since it was told last.
    tries
        How often the run is handed in at most.
    patience
        Seconds to wait for a coordinator that is gone.
    session
        One that is open already, to begin with: another costs more than a second.
    """

    kit: Kit
    run: str
    task: Task
    say: Callable[[str], None]
    show: Callable[[Report], None]
    tries: int = 5
    patience: float = 300.0
    session: Session | None = None
    #: Since when the coordinator does not answer.
    _lost: float | None = field(default=None, init=False)

    def see_through(self, into: Path) -> Report:
        """Hand the run in, follow it, and bring its files into a folder.

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
                    ended = session.fetch(job, FILES, into)
                    if ended is not None:
                        return ended
                self.say(f"the coordinator's process died; run {self.run} is taken up again")
            except (NoCoordinator, Unreachable) as error:
                self._wait(error)
        raise ProtocolError(
            f"the coordinator of run {self.run} died {self.tries} times; look into its diary, then "
            f"go on with --resume {self.run}"
        )

    def _open(self) -> Session:
        given, self.session = self.session, None
        return Session(self.kit) if given is None else given

    def _wait(self, error: WeftError) -> None:
        """Until the coordinator is back, but not for ever."""
        now = time.monotonic()
        self._lost = now if self._lost is None else self._lost
        left = self._lost + self.patience - now
        self.say(str(error))
        try:
            knock_until(self.kit, left, self.say)
        except Unreachable:
            left = 0.0
        if left <= 0:
            raise ProtocolError(
                f"the coordinator stays away; when it is back, go on with --resume {self.run}"
            ) from None
        self.say(f"the coordinator is there; run {self.run} is taken up again")
        time.sleep(_ASK)

    def _job(self, session: Session) -> str | None:
        """A job of this run that is still at it."""
        for found in session.runs():
            if found.run == self.run and not found.ended:
                if found.forgets:
                    raise ConfigError(f"run {self.run} is being given up; submit a new run")
                return found.job
        return None

    def _follow(self, session: Session, job: str) -> None:
        """Show how it gets on until the job is over."""
        seen, until = 0, float("inf")
        while time.monotonic() < until:
            report = self._asked(session, job, seen)
            if report is None:
                if is_over(session.status(job)):
                    return
            else:
                # An answer: not merely a session that opens.
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
