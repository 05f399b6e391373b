"""Weft on NVIDIA FLARE, the engine that carries envelopes between processes.

The party is a component of the client's one process, the coordinator a controller in a job process
of the server, the submitter an admin session. Nothing else of Weft but the kits knows the engine.

- `nvflare_transport`: frames in the engine's format, and the coordinator's
  `weft.network.transport_interface.Transport`;
- `client_party`: the component that answers for a site;
- `coordinator_job`: the controller that runs a task;
- `write_job`: a run as a job of the engine;
- `run_scheduler`: the component of the server: which job starts, who is there;
- `engine_internals`: all that is changed inside the engine, of which it promises nothing
  (`shared_timer` belongs to it);
- `no_memory_growth`: keeps long-lived processes from growing;
- `no_core_dumps`: keeps what they have in memory from the disk;
- `port_and_coordinator_checks`: checks of port, coordinator and certificate before the engine
  starts;
- `serve_and_join`: ``weft serve`` and ``weft join`` in the foreground;
- `on_demand_worker_process`: a site whose work is done in another process, `site_worker_process`,
  that `fork_server` starts; `site_process_frames` go between them;
- `event_log_files`: their readable log;
- `admin_session`, `submitter_brings_run_to_end`: the submitter's side.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from weft.errors import ConfigError


def check_engine() -> None:
    """Refuse if the engine is not installed."""
    if find_spec("nvflare") is None:
        raise ConfigError(
            "the network engine is not installed here; install it with pip install 'weft[network]'"
        )


def require_engine() -> None:
    """Load the engine, or refuse if it is not installed.

    The engine inspects every module loaded before it: most of a second after the rest of Weft,
    almost nothing before it.
    """
    check_engine()
    import_module("nvflare")


def require_client() -> None:
    """Load the engine with all that connects a site, or refuse if it is not installed."""
    require_engine()
    for name in ("nvflare.private.fed.app.client.client_train", f"{__name__}.client_party"):
        import_module(name)
