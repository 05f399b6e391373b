"""Handing a run in to the coordinator, and following it to its end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.config.base_config_of_all_jobs import FederationConfig
    from weft.network.kits.kit_folder import Kit
    from weft.network.run_progress import Report
    from weft.network.submitted_task import Task


@dataclass(frozen=True)
class Returned:
    """A run that is over, and the folder with what came back of it, which is gone afterwards."""

    run: str
    task: Task
    folder: Path


@contextmanager
def followed_run(
    kit: Kit,
    config: FederationConfig,
    make_task: Callable[[Sequence[str], str], Task],
    *,
    resume: str | None = None,
    quiet: bool = False,
) -> Iterator[Returned]:
    """Submit a run and follow it until it is over.

    Parameters
    ----------
    make_task
        The task, given who is connected and the name of the run.
    resume
        The run to go on with; None: a new one.

    Raises
    ------
    ProtocolError
        It did not come to its end.
    """
    import tempfile
    from contextlib import ExitStack

    from weft.cli.terminal_output import RunLine
    from weft.errors import ConfigError, ProtocolError
    from weft.network.installed_job_kinds import job_kind_of
    from weft.network.nvflare_processes.admin_session import Session
    from weft.network.nvflare_processes.submitter_brings_run_to_end import Supervisor
    from weft.network.submitted_task import check_run
    from weft.network.task_from_config import new_run

    run = new_run(config) if resume is None else check_run(resume)
    with ExitStack() as stack:
        session = stack.enter_context(Session(kit))
        task = make_task(session.connected(), run)
        if resume is not None and all(found.run != run for found in session.runs()):
            raise ConfigError(f"the coordinator knows no run '{run}'; weft status lists them")
        # From here on it is the supervisor's.
        stack.pop_all()
    with (
        tempfile.TemporaryDirectory() as into,
        RunLine(run, job_kind_of(task).beginning, quiet=quiet) as line,
    ):
        line.say(f"run {run} with {', '.join(task.parties)}")
        supervisor = Supervisor(kit, run, task, line.say, line.follow, session=session)
        try:
            ended = supervisor.run_to_end(Path(into))
        except KeyboardInterrupt:
            line.say(
                f"run {run} goes on at the coordinator; follow it with --resume {run}, or end it "
                f"with weft stop {kit.path} {run}"
            )
            sys.exit(130)
        if ended.state != "over":
            raise ProtocolError(_why_not(ended, kit.path))
        yield Returned(run, task, Path(into))


def _why_not(ended: Report, kit: Path) -> str:
    """Why there is no result, and what can be done."""
    run = ended.run
    if ended.state == "stopped" and not ended.kept:
        return f"run {run} was taken out of the queue; --resume {run} puts it back at its end"
    if ended.state == "stopped":
        return f"run {run} was stopped; go on with --resume {run}"
    if not ended.kept:
        return f"{ended.sentence} (nothing was begun; submit it anew when that is mended)"
    return (
        f"{ended.sentence} (run {run} is kept: --resume {run} goes on if that can be mended, weft "
        f"stop {kit} {run} --forget gives it up)"
    )
