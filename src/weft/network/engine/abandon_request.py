"""The submitter's side of abandoning a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.errors import ConfigError, ProtocolError
from weft.network.engine.admin_session import RunInfo, Session, is_over

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
        jobs = [found for found in self.session.runs() if found.run == self.run]
        if not jobs:
            raise ConfigError(
                f"the coordinator knows no run '{self.run}'; weft status lists what there is"
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
