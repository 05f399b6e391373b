"""A run of a cluster that is going on, seen through a session of our own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from weft.errors import ProtocolError
from weft.network.kits.kit_folder import Kit
from weft.network.nvflare_processes.admin_session import Session
from weft.network.run_progress import Report
from weft.solvers.solver_interfaces_and_results import Record
from weft_examples.local_federation_processes import SUBMITTER, FederationProcesses

#: Seconds to wait for anything, which on a busy machine takes long, and between two questions.
LONG, _ASK = 90.0, 0.02


class FollowedRun:
    """The run that a ``weft submit`` of this name has handed in.

    Parameters
    ----------
    before
        Jobs that were there before it.
    """

    def __init__(
        self, session: Session, cluster: FederationProcesses, submit: str, before: frozenset[str]
    ) -> None:
        self._session, self._cluster, self._submit = session, cluster, submit
        self._before = before
        self._job: str | None = None
        self.records: list[Record] = []

    @property
    def newest(self) -> Record:
        return self.records[-1]

    @property
    def without(self) -> int:
        """Iterations in which a party was missing."""
        every_party = len(self._cluster.parties)
        return sum(record.present < every_party for record in self.records)

    def until(self, reached: Callable[[Report], bool]) -> Record:
        """Ask until something is so; returns the newest iteration."""
        until = time.monotonic() + LONG
        while True:
            report = self._ask()
            over = report is not None and report.state not in ("starting", "running")
            if report is not None and not over:
                self.records += [Record(**record) for record in report.records]
                if self.records and reached(report):
                    return self.newest
            if over or time.monotonic() > until or not self._cluster.is_running(self._submit):
                raise ProtocolError(
                    "the run was over, or stuck, before the demo came to its next step: "
                    + (self._cluster.log(self._submit).strip() or "it said nothing")
                )
            time.sleep(_ASK)

    def _ask(self) -> Report | None:
        if self._job is None:
            new = (run.job for run in self._session.runs() if run.job not in self._before)
            self._job = next(new, None)
        return None if self._job is None else self._session.progress(self._job, len(self.records))


@contextmanager
def followed(
    cluster: FederationProcesses, handing_in: Callable[[], None], submit: str
) -> Iterator[FollowedRun]:
    """Hand a run in under this name, and follow it."""
    with Session(Kit.open(cluster.kit(SUBMITTER), "submitter")) as session:
        before = frozenset(run.job for run in session.runs())
        handing_in()
        yield FollowedRun(session, cluster, submit, before)
