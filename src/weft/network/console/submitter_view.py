"""A federation as its coordinator tells it to a submitter."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from weft import __version__
from weft.network.console.shared_view_records import (
    FederationView,
    RunRow,
    SiteRow,
    newest_first,
    parties_elsewhere,
)
from weft.network.kits.kit_folder import Kit
from weft.network.nvflare_processes.admin_session import (
    NoCoordinator,
    RunInfo,
    Session,
    newest_jobs,
    places_of,
)
from weft.network.nvflare_processes.kit_health import examine_machine
from weft.network.run_progress import Report
from weft.network.run_progress_file import GapCurve, GapPoint
from weft.network.run_status_line import report_text

_FROM = "The coordinator tells a submitter what a run has shown with its results: weft report."


class FollowedRun:
    """The gap of one run, for as long as somebody looks."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._gaps = GapCurve()
        #: The job that was asked last, and how many of its iterations were told.
        self._job, self._told = "", 0
        #: What was told last.
        self.report: Report | None = None

    @property
    def points(self) -> list[GapPoint]:
        return self._gaps.points

    def ask(self, session: Session, job: str) -> Report | None:
        """How the run gets on; of its iterations, those since the last time, and at least one."""
        since = max(0, self._told - 1) if job == self._job else 0
        report = session.progress(job, since)
        if report is not None:
            # One that was taken up again begins anew.
            self._job, self._told = job, since + len(report.records) if report.records else 0
            self.report = report
            self._gaps.extend(report.records, time.monotonic() - self._began)
        return report


#: A run is known by who submitted it and its name.
RunOf = tuple[str, str]


def told_runs(session: Session, follow: Callable[[RunOf], FollowedRun]) -> list[RunRow]:
    """All runs, the newest first.

    Parameters
    ----------
    follow
        What is remembered of a run.
    """
    jobs = session.runs()
    places = places_of(jobs)
    return [
        _row(session, job, places.get(job.job), follow((job.submitter, job.run)))
        for job in newest_jobs(jobs)
    ]


def _row(session: Session, job: RunInfo, place: int | None, followed: FollowedRun) -> RunRow:
    report = None if job.ended or place else followed.ask(session, job.job)
    # A job outlives its run by seconds, in which it answers itself.
    ending = job.ending if report is None else report
    known = report or followed.report
    return RunRow(
        run=job.run,
        state=job.words if report is None else report.state,
        sentence="" if ending is None else ending.sentence,
        submitted=job.submitted,
        submitter="" if job.submission is None else job.submission.submitter,
        place=place,
        progress="" if known is None or not known.records else report_text(known),
        versions={} if ending is None else ending.versions,
        wait=None if report is None else report.wait,
        parties=next((told.parties for told in (known, ending) if told and told.parties), []),
        away={} if report is None else report.away,
        curve=followed.points,
    )


class SubmitterView:
    """What a submitter's kit has to show; its session is opened again where it broke."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._session: Session | None = None
        self._followed: dict[RunOf, FollowedRun] = defaultdict(FollowedRun)

    def look(self) -> FederationView:
        try:
            return self._look()
        except NoCoordinator:
            self.close()
            raise

    def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            session.__exit__(None, None, None)

    def _look(self) -> FederationView:
        if self._session is None:
            self._session = Session(self._kit)
        session, kit = self._session, self._kit
        connected = session.connected()
        runs = told_runs(session, self._followed.__getitem__)
        versions: dict[str, str] = {}
        for row in reversed(runs):
            versions |= row.versions
        sites = [
            SiteRow(name=name, state="connected", version=versions.get(name, ""))
            for name in connected
        ]
        return FederationView(
            kind=kit.kind,
            owner=kit.name,
            federation=kit.federation,
            weft=__version__,
            now=time.time(),
            state="good",
            sentence=f"the coordinator answers; {len(connected)} connected"
            + (f": {', '.join(connected)}" if connected else ""),
            symptoms=list(examine_machine(kit)),
            sites=[*sites, *parties_elsewhere(sites, runs, "away")],
            runs=newest_first(runs),
            exposure_from=_FROM,
        )
