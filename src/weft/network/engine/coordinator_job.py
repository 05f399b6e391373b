"""The coordinator in a job process of the engine's server."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace
from nvflare.fuel.f3.mpm import MainProcessMonitor

from weft.errors import WeftError
from weft.network.abandon_run import forget_run
from weft.network.coordinator_run import coordinate_run
from weft.network.credentials import Credential
from weft.network.engine.event_log import keep_diary
from weft.network.engine.job_metadata import ending_file
from weft.network.engine.jobs import OUTCOME, PROGRESS, task_file
from weft.network.engine.transport import NvflarePost
from weft.network.kits.open_kit import Kit, packed_json
from weft.network.run_progress import Progress, Report
from weft.network.run_results import FILES, PARCEL
from weft.network.secure_session import BondedPost
from weft.network.task import Task, check_run
from weft.network.transport import Stopped

log = logging.getLogger("weft.coordinator")

#: Seconds for the engine's last messages of a job.
_GRACE = 0.3


class CoordinatorController(Controller):
    """Runs one task, and tells how it gets on.

    A run that fails for a reason ends its job in order, with a sentence in a file: a job that the
    engine calls failed is one whose process died, and is worth another try.

    Parameters
    ----------
    run
        Name of the run.
    forget
        Give the run up.
    """

    def __init__(self, run: str, forget: bool = False) -> None:
        super().__init__()
        self.run, self.forget = run, forget
        self._progress = Progress(run)

    def start_controller(self, fl_ctx: FLContext) -> None:
        fl_ctx.get_engine().register_app_command(PROGRESS, self._tell)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is left to do."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        _end_soon()
        engine = fl_ctx.get_engine()
        workspace: Workspace = engine.get_workspace()
        job = fl_ctx.get_job_id()
        kit = Kit.look(workspace.get_root_dir())
        keep_diary(kit)
        log.info("run %s: %s", self.run, "is given up" if self.forget else "begins")
        try:
            # A job's config comes from outside: its run must not name another folder.
            folder = kit.runs / check_run(self.run)
            credential = Credential.of(kit)

            def open_post(parties: tuple[str, ...]) -> BondedPost:
                carrier = NvflarePost(
                    engine.get_cell(), parties, lambda: bool(abort_signal.triggered)
                )
                return BondedPost(carrier, credential)

            submitter = _submitter(workspace, job)
            if self.forget:
                deaf = forget_run(open_post, folder, self.run, submitter)
                self._progress.end("forgotten", away=deaf)
            else:
                path = task_file(Path(workspace.get_app_dir(job)))
                task = Task.from_json(path.read_text(encoding="utf-8"))
                coordinate_run(open_post, folder, task, self._progress, submitter)
                self._progress.end("over")
        except Stopped as error:
            self._progress.end("stopped", str(error))
        except WeftError as error:
            self._progress.end("failed", str(error))
        except Exception as error:
            log.exception("run %s: the coordinator broke down", self.run)
            self._progress.end(
                "failed",
                f"the coordinator broke down ({type(error).__name__}: {error}); its diary says why",
            )
        self._hand_out(kit, job, Path(workspace.get_run_dir(job)))

    def process_result_of_unknown_task(self, *_: Any, **__: Any) -> None:
        """There are no tasks in the engine's sense."""

    def _tell(self, topic: str, data: Any, fl_ctx: FLContext) -> dict[str, Any]:
        since = data.get("since", 0) if isinstance(data, dict) else 0
        return self._progress.since(since).to_plain()

    def _hand_out(self, kit: Kit, job: str, run_dir: Path) -> None:
        """Put what may leave into the job's folder, which the engine gives to the submitter."""
        told = self._ended(kit)
        packed = packed_json(told.to_plain())
        (run_dir / OUTCOME).write_bytes(packed)
        ending = ending_file(kit, job)
        ending.parent.mkdir(mode=0o700, exist_ok=True)
        ending.write_bytes(packed)
        if told.state == "over":
            for name in FILES:
                found = kit.runs / self.run / PARCEL / name
                if found.exists():
                    (run_dir / name).write_bytes(found.read_bytes())

    def _ended(self, kit: Kit) -> Report:
        """How the run ended, without its iterations."""
        try:
            kept = (kit.runs / check_run(self.run)).is_dir()
        except WeftError:
            kept = False
        return msgspec.structs.replace(self._progress.since(), records=[], kept=kept)


def _submitter(workspace: Workspace, job: str) -> str:
    """Who handed this job in, by the certificate that the server has seen."""
    meta = msgspec.json.decode(Path(workspace.get_job_meta_path(job)).read_bytes())
    return str(meta.get(JobMetaKey.SUBMITTER_NAME.value, ""))


def _end_soon() -> None:
    """Shorten the three seconds that a process of the engine idles before it ends."""
    shut_down = MainProcessMonitor._start_shutdown

    def sooner(_: float, cleanup_grace_time: float) -> None:
        shut_down(_GRACE, cleanup_grace_time)

    MainProcessMonitor._start_shutdown = sooner
