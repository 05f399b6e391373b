"""A run as a job of the engine: it names our controller and ships no code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from weft.network.kits.kit_folder import Kit

if TYPE_CHECKING:
    from weft.network.submitted_task import Task

#: Topic of questions about progress, and the file that says how the run ended.
PROGRESS, OUTCOME = "weft.progress", "outcome.json"
#: Weft's entries in the engine's listing of a job: it abandons a run; how its run ended.
FORGETS, ENDING = "weft_forgets", "weft_ending"

_APP = "coordinator"
_CONTROLLER = "weft.network.nvflare_processes.coordinator_job.CoordinatorController"
#: The engine's check of a job insists on a client; this one does not exist.
_NOBODY = "nobody"


def ending_file(kit: Kit, job: str) -> Path:
    """Where a job tells its server how its run ended."""
    return kit.home / "endings" / f"{job}.json"


def task_file(app: Path) -> Path:
    """The task in an app's folder.

    It is a file of its own because the engine expands variables in its settings.
    """
    return app / "config" / "task.json"


def write_job(folder: Path, run: str, task: Task | None) -> Path:
    """Write a run's job below ``folder``.

    Parameters
    ----------
    task
        What the run does; None abandons the run.

    Returns
    -------
    Path
        The job's folder, named like the run.
    """
    job = folder / run
    config = job / _APP / "config"
    config.mkdir(parents=True)
    meta: dict[str, object] = {
        "name": run,
        "resource_spec": {},
        "deploy_map": {_APP: ["server", _NOBODY]},
    }
    arguments: dict[str, object] = {"run": run}
    if task is None:
        meta |= {FORGETS: True}
        arguments |= {"forget": True}
    _write(job / "meta.json", meta)
    controller = {"id": _APP, "path": _CONTROLLER, "args": arguments}
    _write(
        config / "config_fed_server.json",
        {"format_version": 2, "workflows": [controller], "components": []},
    )
    _write(
        config / "config_fed_client.json", {"format_version": 2, "executors": [], "components": []}
    )
    if task is not None:
        task_file(job / _APP).write_text(task.to_json(), encoding="utf-8")
    return job


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
