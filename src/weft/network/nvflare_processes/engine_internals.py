"""All that Weft changes inside the engine, in one place.

None of it is part of the interface that the engine promises to keep. `INTERNALS` names every piece
and what it is for; ``tests/network/test_engine_internals.py`` holds them against the installed
engine, and names what is different where a new version has changed one.

Parties answer from their one long-lived process. A job process on every client, as the engine
plans for, would end the whole run when one of them dies, and would not come back with a client that
restarts. Three places of the engine (2.9.0) refuse a job without clients: its check of a job's
description, which a client that does not exist satisfies (`write_job`); its scheduler; and its job
runner. The latter two are settled here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from types import MethodType, SimpleNamespace
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import Job, JobMetaKey
from nvflare.apis.job_scheduler_spec import DispatchInfo
from nvflare.app_common.job_schedulers.job_scheduler import (
    SCHEDULE_RESULT_OK,
    DefaultJobScheduler,
)

from weft.network.nvflare_processes.shared_timer import SharedTimer

#: Modules of the engine with what is used of each, and for what.
INTERNALS = {
    "nvflare.app_common.job_schedulers.job_scheduler": {
        "DefaultJobScheduler.schedule_job": "is asked which of some jobs begins",
        "DefaultJobScheduler._exceed_max_jobs": "would count jobs, which the queue does",
        "DefaultJobScheduler._try_job": "starts a job without asking clients",
    },
    "nvflare.private.fed.server.job_runner": {
        "JobRunner._start_run": "starts a job without clients",
        "JobRunner._fire_job_lifecycle_event": "tells that it has started",
        "JobRunner.update_abnormal_finished_jobs": "ends jobs that a dead server left",
    },
    "nvflare.fuel.f3.mpm": {
        "MainProcessMonitor._start_shutdown": "ends a job's process sooner",
    },
    "nvflare.private.fed.app.client.client_train": {
        "main": "reads time, to look once a second whether its own threads have connected",
    },
    "nvflare.fuel.f3.sfm.conn_manager": {
        "ConnManager.start_connector_task": "reads MAX_WAIT, between two tries to connect",
    },
    "nvflare.fuel.f3.cellnet.core_cell": {
        "CoreCell.__init__": "opens no port for job processes at a site",
        "CoreCell.broadcast_multi_requests": "carries envelopes",
    },
    "nvflare.fuel.f3.streaming.byte_receiver": {
        "RxTask._schedule_remove_task": "starts a thread for every message received",
        "RxTask._remove_task": "is what that thread does after a minute",
    },
}

_SERVER = "server"
#: Seconds for the engine's last messages of a job, of the three that its process idles.
_GRACE = 0.3
#: Seconds that a client waits at most between two tries to reach a server that went away. The
#: engine waits up to ten, and has no setting for it.
_RECONNECT = 2
#: Seconds of a client's first pause while it connects; each is twice the one before it.
_FIRST_PAUSE = 0.02


class ServerOnlyScheduler(DefaultJobScheduler):
    """Schedules jobs for the server alone, whichever it is given."""

    def _exceed_max_jobs(self, fl_ctx: FLContext) -> bool:
        """Jobs that wait for room are not among the candidates."""
        return False

    def _try_job(
        self, job: Job, fl_ctx: FLContext
    ) -> tuple[int, dict[str, DispatchInfo] | None, str]:
        app = next(iter(job.deploy_map))
        only = DispatchInfo(app_name=app, resource_requirements={}, token=None)
        return SCHEDULE_RESULT_OK, {_SERVER: only}, ""


def start_jobs_without_clients(runner: Any, fl_ctx: FLContext) -> None:
    """Change a server's job runner, whose own start waits for replies of clients."""
    runner._start_run = MethodType(_start_run, runner)
    # What a server that died left behind as running cannot be running now.
    runner.update_abnormal_finished_jobs([], fl_ctx)


def _start_run(runner: Any, job_id: str, job: Job, client_sites: Any, fl_ctx: FLContext) -> None:
    job.meta[JobMetaKey.JOB_CLIENTS] = []
    problem = fl_ctx.get_engine().start_app_on_server(fl_ctx, job=job, job_clients={})
    if problem:
        raise RuntimeError(problem)
    runner._fire_job_lifecycle_event(EventType.JOB_STARTED, job_id, fl_ctx)


def end_soon() -> None:
    """Shorten the three seconds that a process of the engine idles before it ends."""
    from nvflare.fuel.f3.mpm import MainProcessMonitor

    shut_down = MainProcessMonitor._start_shutdown

    def sooner(_: float, cleanup_grace_time: float) -> None:
        shut_down(_GRACE, cleanup_grace_time)

    MainProcessMonitor._start_shutdown = sooner


def connect_soon() -> None:
    """Shorten the first pauses of a client that connects, of which each is a second."""
    from nvflare.private.fed.app.client import client_train

    client_train.time = SimpleNamespace(sleep=growing_pauses(time.sleep))


def growing_pauses(sleep: Callable[[float], None]) -> Callable[[float], None]:
    """Pauses that are short at first, and in the end as long as they are asked to be."""
    longest = _FIRST_PAUSE

    def pause(seconds: float) -> None:
        nonlocal longest
        sleep(min(seconds, longest))
        longest = min(2 * longest, max(seconds, longest))

    return pause


def reconnect_soon() -> None:
    """Shorten the pauses of a client that has lost its server."""
    from nvflare.fuel.f3.sfm import conn_manager

    conn_manager.MAX_WAIT = _RECONNECT


def open_no_local_port() -> None:
    """Keep the engine from opening its port for job processes, of which a site has none.

    The port is on the loopback and unencrypted, so any process of the machine could impersonate
    another through it.
    """
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell

    begin = CoreCell.__init__

    @wraps(begin)
    def closed(cell: Any, *args: Any, **options: Any) -> None:
        begin(cell, *args, **{**options, "create_internal_listener": False})

    CoreCell.__init__ = closed


def forget_messages_by_one_thread() -> None:
    """Let one thread forget the messages that came in, each a minute later.

    The engine starts a thread for each, and a submitter asks a few things a second: a coordinator
    had about a hundred threads, and never gave back the memory that these had used.
    """
    from nvflare.fuel.f3.streaming.byte_receiver import RxTask

    timer = SharedTimer("weft received")

    def schedule(task: Any, ttl: float | None = None) -> None:
        with task.stop_lock:
            if task.cleanup_timer is None:
                seconds = task.completed_task_ttl if ttl is None else ttl
                task.cleanup_timer = timer.call_later(seconds, task._remove_task)

    RxTask._schedule_remove_task = schedule
