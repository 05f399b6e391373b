"""Jobs as the engine's server stores and lists them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
from nvflare.apis.job_def import JobMetaKey, RunStatus

from weft.network.kits.kit_folder import Kit
from weft.network.kits.nvflare_settings_of_kit import engine_folder
from weft.network.nvflare_processes.write_job import ENDING, FORGETS
from weft.network.run_progress import Report
from weft.network.run_queue import Submission
from weft.thread_safe_decoding import prepared

#: Status of a job that has not begun, and of one that was stopped.
WAITING, STOPPED = RunStatus.SUBMITTED.value, RunStatus.FINISHED_ABORTED.value


def is_over(status: str) -> bool:
    """Whether a job of that status has ended."""
    return status.startswith(("FINISHED", "FAILED", "ABANDONED"))


def ending_of(meta: Mapping[str, Any]) -> Report | None:
    """How the run of a job ended; None if it goes on, has not begun, or its process died."""
    try:
        return msgspec.convert(meta.get(ENDING), prepared(Report))
    except msgspec.ValidationError:
        return None


def submission_of(meta: Mapping[str, Any]) -> Submission:
    """What the queue must know of a job, from the engine's notes of it."""
    status, ending = str(meta.get(JobMetaKey.STATUS.value, "")), ending_of(meta)
    # Without a word about its end its process died, and the run can go on.
    kept = ending is None or (ending.kept and ending.state != "over")
    return Submission(
        job=str(meta[JobMetaKey.JOB_ID.value]),
        run=str(meta.get("job_name", meta.get(JobMetaKey.JOB_NAME.value, "?"))),
        submitter=str(meta.get(JobMetaKey.SUBMITTER_NAME.value, "")),
        submitted=_seconds(meta.get(JobMetaKey.SUBMIT_TIME.value)),
        started=_seconds(meta.get(JobMetaKey.START_TIME.value)),
        waits=status == WAITING and not meta.get(FORGETS),
        kept=is_over(status) and kept,
    )


def _seconds(stamp: Any) -> float:
    """A time of the engine's, which is a number or a text; 0 if there is none."""
    try:
        return float(stamp)
    except (TypeError, ValueError):
        pass
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except ValueError:
        return 0.0


def stored_jobs(kit: Kit) -> Iterator[dict[str, Any]]:
    """The engine's notes of all jobs in a coordinator's kit, whether or not its server runs."""
    for path in (engine_folder(kit.path) / "jobs").glob("*/meta"):
        try:
            found = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError):
            # It is being deleted, or is none of ours.
            continue
        if JobMetaKey.JOB_ID.value in found and JobMetaKey.STATUS.value in found:
            yield found
