"""A federation from the coordinator's folder: its files are enough, nobody is asked."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from weft import __version__
from weft.errors import ConfigError, WeftError
from weft.network.console.shared_view_records import (
    ExposureRow,
    FederationView,
    RunRow,
    SiteRow,
    newest_first,
    parties_elsewhere,
)
from weft.network.discard_run import SUBMITTER, TASK
from weft.network.kits.kit_folder import Kit
from weft.network.nvflare_processes.admin_session import RunInfo, info_of, newest_jobs, places_of
from weft.network.nvflare_processes.kit_health import examine_machine, examine_process
from weft.network.nvflare_processes.stored_jobs import stored_jobs
from weft.network.process_pulse import Pulse, living_pulse, read_pulse
from weft.network.run_progress import Report
from weft.network.run_progress_file import RunFigures, figures_of_run
from weft.network.run_results import RESULTS, SUMMARY
from weft.network.run_status_line import report_text
from weft.network.serve_settings import read_serve_settings
from weft.network.submitted_task import check_run

#: A run's summary, as its results have it.
_Summary = dict[str, Any]
_INTERRUPTED = "weft serve does not run; the run goes on when it does"
_FROM = (
    "Of {runs} whose results the coordinator still has. What parties showed each other in sums, by "
    "sample, is in their own ledgers only."
)


class CoordinatorView:
    """What the coordinator's kit has to show."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        #: Jobs whose runs have ended, with their summaries: nothing of them changes any more.
        self._over: dict[str, tuple[RunRow, _Summary | None]] = {}

    def close(self) -> None:
        """Files are all it looks at."""

    def look(self) -> FederationView:
        kit, pulse = self._kit, living_pulse(self._kit.home)
        process = examine_process(kit)
        seen = self._runs(pulse is not None)
        runs = [row for row, _ in seen]
        summaries = [summary for _, summary in seen if summary is not None]
        sites = _sites(read_pulse(kit.home), living=pulse is not None)
        sites += parties_elsewhere(sites, runs, "away" if pulse is not None else "unknown")
        denied = self._denied()
        sites = [msgspec.structs.replace(site, denied=site.name in denied) for site in sites]
        counted = f"{len(summaries)} run{'' if len(summaries) == 1 else 's'}"
        return FederationView(
            kind=kit.kind,
            owner=kit.name,
            federation=kit.federation,
            weft=__version__,
            now=time.time(),
            state="good" if process.state == "good" else "bad",
            sentence=pulse.sentence if pulse is not None and pulse.well else process.found,
            symptoms=[process, *examine_machine(kit)],
            sites=sites,
            runs=newest_first(runs),
            exposure=_exposure(summaries),
            exposure_from=_FROM.format(runs=counted),
        )

    def _runs(self, served: bool) -> list[tuple[RunRow, _Summary | None]]:
        jobs = sorted(
            (info_of(meta) for meta in stored_jobs(self._kit)),
            key=lambda job: job.submission.submitted if job.submission else 0.0,
            reverse=True,
        )
        places = places_of(jobs)
        found = []
        for job in newest_jobs(jobs):
            known = self._over.get(job.job)
            if known is None:
                summary = self._summary(job)
                known = self._row(job, places.get(job.job), served, summary or {}), summary
                if job.ended and job.ending is not None:
                    self._over[job.job] = known
            found.append(known)
        return found

    def _row(self, job: RunInfo, place: int | None, served: bool, summary: _Summary) -> RunRow:
        figures = self._figures(job)
        report = figures.report if figures is not None else None
        ending = job.ending or report
        state, sentence = job.words, "" if ending is None else ending.sentence
        if not job.ended and place is None:
            # Its process takes seconds to begin; what an earlier one left does not count any more.
            goes = report is not None and job.going and report.state in ("starting", "running")
            if not goes:
                report, sentence = None, ""
            state = report.state if report is not None else "starting" if job.going else state
            if not served:
                state, sentence = "interrupted", _INTERRUPTED
        return RunRow(
            run=job.run,
            state=state,
            sentence=sentence,
            submitted=job.submitted,
            submitter=job.submission.submitter if job.submission else "",
            place=place,
            progress="" if report is None or not report.records else report_text(report),
            versions=_versions(report, ending),
            wait=report.wait if report is not None and state in ("starting", "running") else None,
            parties=[] if report is None else report.parties,
            away={} if report is None or job.ended else report.away,
            curve=[] if figures is None else figures.curve,
            asked=self._asked(job),
            exposed=str(summary.get("exposed") or ""),
            reached=summary.get("exposure_reached"),
        )

    def _denied(self) -> tuple[str, ...]:
        try:
            return read_serve_settings(self._kit).denied
        except ConfigError:
            # The server says so when it starts.
            return ()

    def _figures(self, job: RunInfo) -> RunFigures | None:
        return figures_of_run(self._kit.home, job.run) if self._owns(job) else None

    def _summary(self, job: RunInfo) -> _Summary | None:
        return self._plain(job, Path(RESULTS) / SUMMARY)

    def _asked(self, job: RunInfo) -> float | None:
        settings = (self._plain(job, Path(TASK)) or {}).get("settings")
        asked = settings.get("gap") if isinstance(settings, dict) else None
        return float(asked) if isinstance(asked, int | float) else None

    def _owns(self, job: RunInfo) -> bool:
        """Whether the run's folder is of this job's submitter, or there is none yet.

        Names of runs are chosen by submitters: what is known of one run is not told of another.
        """
        if not _is_name(job.run):
            return False
        try:
            return (self._kit.runs / job.run / SUBMITTER).read_text("utf-8") == job.submitter
        except FileNotFoundError:
            return not (self._kit.runs / job.run).exists()
        except (OSError, UnicodeDecodeError):
            return False

    def _plain(self, job: RunInfo, name: Path) -> dict[str, Any] | None:
        """What a file in a run's folder holds; None where there is none, or none that fits."""
        if not self._owns(job):
            return None
        try:
            content = (self._kit.runs / job.run / name).read_bytes()
            return msgspec.json.decode(content, type=dict[str, Any])
        except (OSError, msgspec.MsgspecError):
            return None


def _is_name(run: str) -> bool:
    """Whether a run's name, which its submitter chose, can be one of a folder."""
    try:
        check_run(run)
    except WeftError:
        return False
    return True


def _versions(report: Report | None, ending: Report | None) -> dict[str, str]:
    told = report.versions if report is not None and report.versions else None
    return told or ({} if ending is None else ending.versions)


def _sites(pulse: Pulse | None, *, living: bool) -> list[SiteRow]:
    if pulse is None:
        return []
    now = time.time()
    return [
        SiteRow(
            name=name,
            state=site.state(now) if living else "unknown",
            since=site.since if living else 0.0,
            seen=site.seen,
            version=site.version,
        )
        for name, site in sorted(pulse.sites.items())
    ]


def _exposure(summaries: list[dict[str, Any]]) -> list[ExposureRow]:
    """What is known of every party, over all runs that left a summary."""
    rows: dict[str, ExposureRow] = {}
    for summary in summaries:
        noise = (summary.get("settings") or {}).get("noise") or {}
        named = summary.get("exposed_parties") or []
        for party in (summary.get("federation") or {}).get("parties") or []:
            row = rows.get(party, ExposureRow(party=party, runs=0, reached=0))
            rows[party] = msgspec.structs.replace(
                row,
                runs=row.runs + 1,
                reached=(row.reached or 0) + (party in named),
                epsilon=row.epsilon + float(noise.get("epsilon") or 0.0),
                delta=row.delta + float(noise.get("delta") or 0.0),
            )
    return [rows[party] for party in sorted(rows)]
