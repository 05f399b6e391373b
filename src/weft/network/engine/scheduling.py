"""Lets the engine start a job that runs on the server alone.

Parties answer from their one long-lived process. A job process on every client, as the engine
plans for, would end the whole run when one of them dies, and would not come back with a client that
restarts. Three places of the engine (2.9.0) refuse a job without clients: its check of a job's
description, which a client that does not exist satisfies (`session`); its scheduler; and its job
runner. The latter two are settled here.
"""

from __future__ import annotations

import logging
from types import MethodType
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import Job, JobMetaKey
from nvflare.apis.job_scheduler_spec import DispatchInfo
from nvflare.app_common.job_schedulers.job_scheduler import (
    SCHEDULE_RESULT_OK,
    DefaultJobScheduler,
)

log = logging.getLogger("weft.server")

_SERVER = "server"
#: What the diary says of a party at which event.
_NEWS = {
    EventType.CLIENT_REGISTER_PROCESSED: "is connected",
    EventType.CLIENT_QUIT: "has left",
}


class RunScheduler(DefaultJobScheduler):
    """Schedules jobs for the server alone, as soon as there is room for one.

    Being the server's one component of ours, it also tells the diary who comes and goes.
    """

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_START:
            runner = fl_ctx.get_engine().job_runner
            runner._start_run = MethodType(_start_run, runner)
            # What a server that died left behind as running cannot be running now.
            runner.update_abnormal_finished_jobs([], fl_ctx)
        elif event_type in _NEWS:
            who = fl_ctx.get_peer_context() or fl_ctx
            log.info("%s %s", who.get_identity_name(default="a party"), _NEWS[event_type])
        super().handle_event(event_type, fl_ctx)

    def _try_job(
        self, job: Job, fl_ctx: FLContext
    ) -> tuple[int, dict[str, DispatchInfo] | None, str]:
        app = next(iter(job.deploy_map))
        only = DispatchInfo(app_name=app, resource_requirements={}, token=None)
        return SCHEDULE_RESULT_OK, {_SERVER: only}, ""


def _start_run(runner: Any, job_id: str, job: Job, client_sites: Any, fl_ctx: FLContext) -> None:
    """In place of the job runner's own, which waits for replies of clients."""
    job.meta[JobMetaKey.JOB_CLIENTS] = []
    problem = fl_ctx.get_engine().start_app_on_server(fl_ctx, job=job, job_clients={})
    if problem:
        raise RuntimeError(problem)
    runner._fire_job_lifecycle_event(EventType.JOB_STARTED, job_id, fl_ctx)
