"""Weft's component in the engine's server: which jobs start, who comes and goes, how runs ended."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from threading import Event
from typing import Any, ClassVar

import msgspec
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import Job, RunStatus
from nvflare.apis.job_def_manager_spec import JobDefManagerSpec
from nvflare.apis.storage import StorageException
from nvflare.apis.utils.job_utils import get_event_job_id
from nvflare.private.defs import ClientType

from weft.network.kits.kit_folder import Kit
from weft.network.nvflare_processes.engine_internals import (
    ServerOnlyScheduler,
    start_jobs_without_clients,
)
from weft.network.nvflare_processes.stored_jobs import submission_of
from weft.network.nvflare_processes.write_job import ENDING, FORGETS, ending_file
from weft.network.process_pulse import SeenSite
from weft.network.run_progress import Report
from weft.network.run_queue import QueueLimits, Submission, next_to_begin, too_many
from weft.network.serve_settings import read_serve_settings
from weft.network.versions import VERSION_PROPERTY, told_version

log = logging.getLogger("weft.server")

#: Events about the other end of a connection.
_COMING, _LIVING, _LEAVING = (
    EventType.CLIENT_REGISTER_PROCESSED,
    EventType.CLIENT_HEARTBEAT_PROCESSED,
    EventType.CLIENT_QUIT,
)


class RunScheduler(ServerOnlyScheduler):
    """Schedules jobs for the server alone: whose turn it is, as soon as there is room.

    A job that abandons a run does not wait for room. As Weft's only component in the server, it
    also logs who comes and goes, and records how runs ended.

    Attributes
    ----------
    newest
        The one that the engine has made in this process.
    limits
        How many runs there may be; those of the kit, from when the server starts.
    news
        Set where somebody came or went.
    serving
        Whether the server has started.
    """

    newest: ClassVar[RunScheduler | None] = None
    news: ClassVar[Event] = Event()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.limits = QueueLimits()
        #: Submitters of the runs that this process has begun, by their jobs.
        self._submitters: dict[str, str] = {}
        #: Submitters of the runs that are being given up, by the jobs that do it.
        self._given_up: dict[str, str] = {}
        self.serving = False
        #: Parties that were logged as connected, also those that are gone since.
        self._sites: dict[str, SeenSite] = {}
        RunScheduler.newest = self

    @classmethod
    def sites(cls) -> dict[str, SeenSite]:
        """Sites that are or were connected to this process."""
        return {} if cls.newest is None else dict(cls.newest._sites)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_START:
            self._read_limits(fl_ctx)
            start_jobs_without_clients(fl_ctx.get_engine().job_runner, fl_ctx)
            fl_ctx.get_engine().get_cell().core_cell.set_cell_disconnected_cb(self.lost)
            self.serving = True
            self.news.set()
        elif event_type in (_COMING, _LIVING, _LEAVING):
            self._see(event_type, fl_ctx)
        elif event_type == EventType.JOB_COMPLETED:
            self._submitters.pop(get_event_job_id(fl_ctx), None)
            _note_ending(get_event_job_id(fl_ctx), fl_ctx)
        super().handle_event(event_type, fl_ctx)

    def lost(self, other: Any) -> None:
        """The engine has lost a connection, of a process that was killed or cut off."""
        who = other.info.fqcn
        if self._leave(who):
            log.warning("%s is gone: its connection broke", who)

    def _see(self, event_type: str, fl_ctx: FLContext) -> None:
        """Log who is there. Parties that outlive a server only send heartbeats."""
        peer = fl_ctx.get_peer_context() or fl_ctx
        who = peer.get_identity_name(default="somebody")
        if event_type == _COMING and fl_ctx.get_prop(FLContextKey.CLIENT_TYPE) == ClientType.ADMIN:
            log.info("submitter %s is connected", who)
        elif event_type == _LEAVING:
            if self._leave(who):
                log.info("%s has left", who)
        else:
            self._meet(who, told_version(peer.get_prop(VERSION_PROPERTY)), event_type == _COMING)

    def _meet(self, who: str, version: str, comes: bool) -> None:
        """A site is there, new or known."""
        known, now = self._sites.get(who), time.time()
        new = comes or known is None or not known.there
        since = now if new or known is None else known.since
        version = version or ("" if known is None else known.version)
        self._sites[who] = SeenSite(since=since, seen=now, version=version)
        if new:
            log.info("%s is connected", who)
            self.news.set()

    def _leave(self, who: str) -> bool:
        """A site is there no longer; whether it was."""
        known = self._sites.get(who)
        if known is None or not known.there:
            return False
        self._sites[who] = msgspec.structs.replace(known, since=time.time(), there=False)
        self.news.set()
        return True

    def _read_limits(self, fl_ctx: FLContext) -> None:
        kit = Kit.inspect(fl_ctx.get_engine().get_workspace().get_root_dir())
        self.limits = read_serve_settings(kit).queue

    def schedule_job(
        self, job_manager: JobDefManagerSpec, job_candidates: list[Job], fl_ctx: FLContext
    ) -> Any:
        """The job that begins now, if there is one; what is too much is refused."""
        known = {job.job_id: submission_of(job.meta) for job in job_candidates}
        giving_up = {job.job_id: job for job in job_candidates if job.meta.get(FORGETS)}
        waiting = {job.job_id: job for job in job_candidates if job.job_id not in giving_up}
        for one in self._refused(waiting, [known[job] for job in giving_up], job_manager, fl_ctx):
            self._refuse(one, job_manager, fl_ctx)
            waiting.pop(one.job, None)
            giving_up.pop(one.job, None)
        begins = self._next(job_manager, fl_ctx) if waiting else None
        chosen = None if begins is None else waiting.get(begins.job)
        if begins is not None and chosen is not None:
            self._submitters[begins.job] = begins.submitter
        else:
            # Where no run begins, so that nobody who gives up many of them holds others up.
            chosen = self._next_given_up(giving_up, known)
        return super().schedule_job(job_manager, [] if chosen is None else [chosen], fl_ctx)

    def _refused(
        self,
        waiting: Mapping[str, Job],
        giving_up: Sequence[Submission],
        job_manager: JobDefManagerSpec,
        fl_ctx: FLContext,
    ) -> Iterator[Submission]:
        """What is too much: runs that wait, and runs that are given up at the same time."""
        most = self.limits.each_waiting
        if len(waiting) > most:
            yield from too_many(_known(job_manager, fl_ctx), self.limits)
        before: Counter[str] = Counter()
        for one in sorted(giving_up, key=lambda one: (one.submitted, one.job)):
            before[one.submitter] += 1
            if before[one.submitter] > most:
                yield one

    def _next(self, job_manager: JobDefManagerSpec, fl_ctx: FLContext) -> Submission | None:
        with self.lock:
            under_way = set(self.scheduled_jobs) - self._given_up.keys()
        going = {job: self._submitters.get(job, "") for job in under_way}
        if len(going) >= self.limits.at_once:
            return None
        return next_to_begin(_known(job_manager, fl_ctx), going, self.limits)

    def _next_given_up(
        self, jobs: Mapping[str, Job], known: Mapping[str, Submission]
    ) -> Job | None:
        """A job that gives a run up needs no room; a submitter has one of them at a time."""
        with self.lock:
            under_way = set(self.scheduled_jobs)
        self._given_up = {job: who for job, who in self._given_up.items() if job in under_way}
        having = set(self._given_up.values())
        for number in sorted(jobs, key=lambda job: (known[job].submitted, job)):
            who = known[number].submitter
            if who not in having:
                self._given_up[number] = who
                return jobs[number]
        return None

    def _refuse(self, one: Submission, job_manager: JobDefManagerSpec, fl_ctx: FLContext) -> None:
        why = self.limits.refuses(one.submitter)
        told = Report(run=one.run, state="failed", sentence=why, kept=False)
        job_manager.update_meta(one.job, {ENDING: told.to_plain()}, fl_ctx)
        job_manager.set_status(one.job, RunStatus.FINISHED_CANT_SCHEDULE, fl_ctx)
        log.warning("run %s: is not queued: %s", one.run, why)


def _known(job_manager: JobDefManagerSpec, fl_ctx: FLContext) -> list[Submission]:
    """All jobs that are stored, as the queue knows them."""
    return [submission_of(job.meta) for job in job_manager.get_all_jobs(fl_ctx)]


def _note_ending(job: str, fl_ctx: FLContext) -> None:
    """Copy how a job's run ended into the engine's listing."""
    engine = fl_ctx.get_engine()
    path = ending_file(Kit.inspect(engine.get_workspace().get_root_dir()), job)
    try:
        told = msgspec.json.decode(path.read_bytes())
        engine.job_def_manager.update_meta(job, {ENDING: told}, fl_ctx)
    except (OSError, ValueError, StorageException) as error:
        # Its process died, or the job was deleted with an abandoned run.
        logging.getLogger(__name__).info("the end of job %s is not noted (%s)", job, error)
    path.unlink(missing_ok=True)
