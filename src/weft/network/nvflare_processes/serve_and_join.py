"""``weft serve`` and ``weft join``: the engine in this process, in the foreground.

The engine's own output goes to a file in the kit; the terminal shows the kit's event log. All files
are readable by the owner of this process only.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from weft.errors import ConfigError, WeftError
from weft.network.certificate_signatures import Credential
from weft.network.coordinator_metrics import coordinator_metrics
from weft.network.event_lines import LogStyle
from weft.network.kits.kit_folder import Kit
from weft.network.kits.nvflare_settings_of_kit import HEARTBEAT
from weft.network.metrics_text import Metric
from weft.network.nvflare_processes.event_log_files import (
    LogFollower,
    event_log_file,
    start_event_log,
)
from weft.network.nvflare_processes.leave_out_harmless_log_lines import leave_out_expected_errors
from weft.network.nvflare_processes.no_core_dumps import write_no_core
from weft.network.nvflare_processes.no_memory_growth import (
    collect_garbage_often,
    return_large_blocks,
    share_pools,
)
from weft.network.nvflare_processes.port_and_coordinator_checks import (
    check_port_free,
    wait_for_coordinator,
)
from weft.network.nvflare_processes.process_status_thread import ProcessHeart
from weft.network.process_metrics_file import MetricsFile, machine_metrics
from weft.network.process_pulse import Pulse
from weft.network.run_progress_file import read_figures
from weft.network.serve_settings import ServeSettings, write_serve_settings

if TYPE_CHECKING:
    # A coordinator that waits for runs loads nothing that only a run or a site needs.
    from weft.network.nvflare_processes.on_demand_worker_process import SiteProcess
    from weft.network.site_answers_envelopes import Site

log = logging.getLogger("weft.process")

#: Seconds to disconnect from the other side.
_FAREWELL = 3.0


class _Asked(BaseException):
    """This process was asked to end."""


class _Failed(Exception):
    """The engine did not start; the text says why."""


def serve(kit: Kit, settings: ServeSettings) -> NoReturn:
    """Run the coordinator's server until this process is asked to end."""
    from nvflare.private.fed.app.server import server_train

    from weft.network.nvflare_processes.engine_internals import forget_messages_by_one_thread

    write_no_core()
    check_port_free(kit)
    share_pools()
    return_large_blocks()
    forget_messages_by_one_thread()
    kit.prepare()
    # Where the processes of runs find them, and the next server.
    write_serve_settings(kit, settings)

    heart = coordinator_heart(kit, Path(settings.metrics) if settings.metrics else None)

    def start() -> None:
        log.info("serving %s on %s:%d", kit.federation, kit.host, kit.port)
        if settings.record:
            log.info("the messages of all runs are recorded in %s", kit.runs)
        leave_out_expected_errors()
        collect_garbage_often()
        heart.start()
        server_train.main(_arguments(kit, fed_server="fed_server.json"))

    def leave() -> None:
        heart.stop()
        _end_jobs()

    _run(kit, start, leave, settings.log)


def coordinator_heart(kit: Kit, metrics: Path | None) -> ProcessHeart:
    """What ``weft serve`` tells of itself while it serves."""
    from weft.network.nvflare_processes.run_scheduler import RunScheduler

    def collect() -> list[Metric]:
        known = coordinator_metrics(RunScheduler.sites(), read_figures(kit.home))
        return [*machine_metrics(kit), *known]

    def look() -> dict[str, Any]:
        newest = RunScheduler.newest
        return {"ready": newest is not None and newest.serving, "sites": RunScheduler.sites()}

    def status(pulse: Pulse) -> str:
        going = [run for run in read_figures(kit.home) if run.state in ("starting", "running")]
        runs = "; ".join(f"{run.run} {run.state}{run.waits_text}" for run in going)
        return f"{pulse.sentence}; {runs or 'no run'}"

    file = None if metrics is None else MetricsFile(metrics, collect)
    return ProcessHeart(kit, look, RunScheduler.news, status=status, metrics=file)


def join(
    kit: Kit,
    site: Site | SiteProcess,
    wait: float,
    style: LogStyle = "text",
    metrics: Path | None = None,
) -> NoReturn:
    """Run a party until this process is asked to end.

    Parameters
    ----------
    wait
        Seconds to wait for a coordinator that is not there yet.
    style
        How events are shown on the terminal.
    metrics
        File for metrics.
    """
    from nvflare.private.fed.app.client import client_train

    from weft.network.nvflare_processes.client_party import PartyComponent
    from weft.network.nvflare_processes.engine_internals import (
        connect_soon,
        forget_messages_by_one_thread,
        open_no_local_port,
        reconnect_soon,
    )
    from weft.network.secure_session import SecureSite

    kit.prepare()
    share_pools()
    return_large_blocks()
    connect_soon()
    reconnect_soon()
    open_no_local_port()
    forget_messages_by_one_thread()
    PartyComponent.site = SecureSite(site, Credential.of(kit), kit.name, kit.host)
    heart = site_heart(kit, site, metrics)

    def start() -> None:
        collect_garbage_often()
        heart.start()
        wait_for_coordinator(kit, wait, log.info)
        options = (f"uid={kit.name}", f"heart_beat_interval={HEARTBEAT:g}")
        arguments = _arguments(kit, *options, fed_client="fed_client.json", local_rank=0)
        try:
            client_train.main(arguments)
        except RuntimeError as error:
            if str(error) != "Login failed.":
                raise
            raise _Failed(
                f"the coordinator at {kit.host}:{kit.port} does not let {kit.name} in; ask the "
                "organiser of the federation whether this kit is still valid"
            ) from None

    def leave() -> None:
        heart.stop()
        site.close()
        if PartyComponent.client is not None:
            PartyComponent.client.close()

    _run(kit, start, leave, style)


def site_heart(kit: Kit, site: Site | SiteProcess, metrics: Path | None) -> ProcessHeart:
    """What ``weft join`` tells of itself while it takes part."""
    from weft.network.nvflare_processes.client_party import PartyComponent
    from weft.network.nvflare_processes.on_demand_worker_process import SiteProcess
    from weft.network.site_metrics import run_metrics

    traffic = PartyComponent.traffic
    if isinstance(site, SiteProcess):
        exposure = site.exposure
    else:
        from weft.network.exposure_metrics import ExposureMetrics

        exposure = ExposureMetrics(kit.home / "ledger", kit.name).metrics

    def collect() -> list[Metric]:
        known = [*traffic.metrics(), *run_metrics(site.runs())]
        return [*machine_metrics(kit), *known, *exposure()]

    def look() -> dict[str, Any]:
        return {"ready": traffic.ready, "seen": traffic.seen}

    def status(pulse: Pulse) -> str:
        going = [run.run for run in site.runs() if not run.ended]
        return f"{pulse.sentence}; {'takes part in ' + ', '.join(going) if going else 'no run'}"

    file = None if metrics is None else MetricsFile(metrics, collect)
    return ProcessHeart(kit, look, PartyComponent.news, status=status, metrics=file)


def _arguments(kit: Kit, *options: str, **more: Any) -> Namespace:
    """What the engine's own programs read from their command line."""
    common = ["secure_train=true", f"org={kit.organisation}", "config_folder=config"]
    return Namespace(workspace=str(kit.path), set=[*common, *options], **more)


def _run(
    kit: Kit, start: Callable[[], None], leave: Callable[[], None], style: LogStyle
) -> NoReturn:
    """Run the engine until it ends or is asked to, then end this process.

    It never returns, because the engine's threads may never end.
    """
    code, sentence = 0, ""
    with _apart(kit, style) as terminal:
        try:
            start()
            code, sentence = 2, f"the engine ended by itself; {kit.path / 'log.txt'} says why"
        except _Asked:
            log.info("asked to end")
        except (WeftError, _Failed) as error:
            code, sentence = 2, str(error)
        except (Exception, SystemExit) as error:
            logging.getLogger().exception("the engine broke down")
            code, kind = 2, type(error).__name__
            sentence = f"the engine broke down ({kind}); {kit.path / 'log.txt'} says why"
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _within(_FAREWELL, leave)
        log.info("ended")
    if sentence:
        os.write(terminal[1], f"weft: {sentence}\n".encode())
    os._exit(code)


def _within(seconds: float, work: Callable[[], None]) -> None:
    """Try something that may hang or fail when the other side is gone."""

    def quietly() -> None:
        try:
            work()
        except Exception as error:
            logging.getLogger().info("leaving failed: %r", error)

    thread = Thread(target=quietly, daemon=True)
    thread.start()
    thread.join(seconds)


@contextmanager
def _apart(kit: Kit, style: LogStyle) -> Iterator[tuple[int, int]]:
    """Send the engine's output to a file; the terminal follows the event log.

    Yields
    ------
    output, errors
        File descriptors of the terminal.
    """
    os.umask(0o077)
    terminal = os.dup(1), os.dup(2)
    path = kit.home / "engine.log"
    try:
        engine = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        start_event_log(kit, style)
    except OSError as error:
        raise ConfigError(
            f"{kit.home} cannot be written to ({error.strerror or error}); check its owner, "
            "permissions and free space"
        ) from None
    reader = LogFollower(
        event_log_file(kit, style), terminal[0], others=[event_log_file(kit)], streams=[path]
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(engine, 1)
    os.dup2(engine, 2)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ask)
    try:
        yield terminal
    finally:
        reader.close()


def _ask(number: int, frame: FrameType | None) -> None:
    raise _Asked


def _end_jobs() -> None:
    """End the processes of running jobs: their runs can be resumed."""
    import psutil

    jobs = psutil.Process().children()
    for job in jobs:
        job.terminate()
    _, alive = psutil.wait_procs(jobs, timeout=_FAREWELL / 2)
    for job in alive:
        job.kill()
