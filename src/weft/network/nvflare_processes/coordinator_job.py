"""The coordinator in a job process of the engine's server."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace

from weft.errors import ConfigError, WeftError
from weft.network.certificate_signatures import Credential
from weft.network.coordinator_run import coordinate_run
from weft.network.discard_run import abandon_run
from weft.network.installed_job_kinds import job_kind_of, read_task
from weft.network.kits.kit_folder import Kit, packed_json
from weft.network.nvflare_processes.engine_internals import end_soon, forget_messages_by_one_thread
from weft.network.nvflare_processes.event_log_files import start_event_log
from weft.network.nvflare_processes.leave_out_harmless_log_lines import leave_out_expected_errors
from weft.network.nvflare_processes.no_memory_growth import share_pools
from weft.network.nvflare_processes.nvflare_transport import NvflareTransport
from weft.network.nvflare_processes.write_job import (
    FORGETS,
    OUTCOME,
    PROGRESS,
    ending_file,
    task_file,
)
from weft.network.run_progress import Progress, Report
from weft.network.run_progress_file import delete_figures, figures_written
from weft.network.run_results import RESULTS
from weft.network.secure_session import SecureTransport
from weft.network.serve_settings import read_log_style, read_serve_settings
from weft.network.submitted_task import check_run
from weft.network.transport_interface import Stopped
from weft.storage.atomic_files import StorageError

log = logging.getLogger("weft.coordinator")


class CoordinatorController(Controller):
    """Runs one task and reports its progress.

    A run that fails for a known reason ends its job normally, with the reason in a file. A job that
    the engine calls failed is one whose process died, and is retried.

    Parameters
    ----------
    run
        Name of the run.
    forget
        Abandon the run.
    """

    def __init__(self, run: str, forget: bool = False) -> None:
        super().__init__()
        leave_out_expected_errors()
        self.run, self.forget = run, forget
        self._progress = Progress(run)
        #: What may leave the coordinator when the run is over.
        self._files: tuple[str, ...] = ()

    def start_controller(self, fl_ctx: FLContext) -> None:
        fl_ctx.get_engine().register_app_command(PROGRESS, self._tell)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is left to do."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        end_soon()
        share_pools()
        forget_messages_by_one_thread()
        engine = fl_ctx.get_engine()
        workspace: Workspace = engine.get_workspace()
        job = fl_ctx.get_job_id()
        kit = Kit.inspect(workspace.get_root_dir())
        start_event_log(kit, read_log_style(kit), self.run)
        log.info("run %s: %s", self.run, "is given up" if self.forget else "begins")
        watching = ExitStack()
        try:
            # A job's config comes from outside: its run must not name another folder.
            folder = kit.runs / check_run(self.run)
            credential = Credential.of(kit)

            def open_transport(parties: tuple[str, ...]) -> SecureTransport:
                carrier = NvflareTransport(
                    engine.get_cell(), parties, lambda: bool(abort_signal.triggered)
                )
                return SecureTransport(carrier, credential)

            submitter = submitter_of(workspace, job, forget=self.forget)
            if self.forget:
                deaf = abandon_run(open_transport, folder, self.run, submitter)
                delete_figures(kit.home, self.run)
                self._progress.end("forgotten", away=deaf)
            else:
                path = task_file(Path(workspace.get_app_dir(job)))
                task = read_task(path.read_text(encoding="utf-8"))
                self._files = job_kind_of(task).result_files
                chosen = read_serve_settings(kit)
                chosen.check_parties(task.parties)
                watching.enter_context(figures_written(kit.home, self._progress))
                coordinate_run(
                    open_transport, folder, task, self._progress, submitter, record=chosen.record
                )
                self._progress.end("over")
        except Stopped as error:
            self._progress.end("stopped", str(error))
        except WeftError as error:
            log.error("run %s: %s", self.run, error)
            whose = "the coordinator " if isinstance(error, StorageError) else ""
            self._progress.end("failed", whose + error.told)
        except Exception as error:
            log.exception("run %s: the coordinator broke down", self.run)
            # Only the kind of error leaves: its text may hold sizes that are the coordinator's.
            self._progress.end(
                "failed",
                f"the coordinator broke down ({type(error).__name__}); its event log says why",
            )
        watching.close()
        self._hand_out(kit, job, Path(workspace.get_run_dir(job)))

    def process_result_of_unknown_task(self, *_: Any, **__: Any) -> None:
        """Weft uses no tasks of the engine."""

    def _tell(self, topic: str, data: Any, fl_ctx: FLContext) -> dict[str, Any]:
        since = data.get("since", 0) if isinstance(data, dict) else 0
        return self._progress.since(since).to_plain()

    def _hand_out(self, kit: Kit, job: str, run_dir: Path) -> None:
        """Copy the results into the job's folder, which the engine sends to the submitter."""
        told = self._ended(kit)
        packed = packed_json(told.to_plain())
        (run_dir / OUTCOME).write_bytes(packed)
        ending = ending_file(kit, job)
        ending.parent.mkdir(mode=0o700, exist_ok=True)
        ending.write_bytes(packed)
        if told.state == "over":
            for name in self._files:
                found = kit.runs / self.run / RESULTS / name
                if found.exists():
                    (run_dir / name).write_bytes(found.read_bytes())

    def _ended(self, kit: Kit) -> Report:
        """How the run ended, without its iterations."""
        try:
            kept = (kit.runs / check_run(self.run)).is_dir()
        except WeftError:
            kept = False
        return msgspec.structs.replace(self._progress.since(), records=[], kept=kept)


def submitter_of(workspace: Workspace, job: str, *, forget: bool) -> str:
    """The submitter of this job, from the certificate that the server saw.

    Refuses a job that the queue let pass because it claims to abandon a run, and does not.
    """
    path = Path(workspace.get_job_meta_path(job))
    meta = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    if bool(meta.get(FORGETS)) != forget:
        raise ConfigError("this job is not what it says it is; submit the run with weft submit")
    return str(meta.get(JobMetaKey.SUBMITTER_NAME.value, ""))
