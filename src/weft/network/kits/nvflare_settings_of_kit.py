"""A kit's settings for the engine: which classes run, who may do what, where things are stored.

The keys are those of the engine's own templates (``nvflare/lighter/templates``, 2.9.0). What is
not there is left out on purpose:

- no component that streams logs to the coordinator, at either end (tracebacks can carry data);
- no launcher of jobs on a site: the party lives in the site's one process, and a job that is sent
  to a site finds nothing to start it;
- nothing of a site's own at the top level of its ``resources.json``: the engine sends such keys to
  the coordinator.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from weft.network.kits.federation_plan import FederationPlan, Recipient

Settings = dict[str, Any]
#: The kinds of kits.
Kind = Literal["coordinator", "site", "submitter"]
#: The folder of the coordinator's kit, and the name of its signing request.
COORDINATOR = "coordinator"

#: The coordinator's class: the only one that a job may name.
RUN = "weft.network.nvflare_processes.coordinator_job.CoordinatorController"
#: The party's class, in the site's process.
PARTY = "weft.network.nvflare_processes.client_party.PartyComponent"
#: The class in the coordinator's server that starts runs.
SCHEDULER = "weft.network.nvflare_processes.run_scheduler.RunScheduler"

#: Role of a submitter with the engine: may submit, and manage what it submitted.
SUBMITTER_ROLE = "lead"

#: Seconds between two signs of life of a site (an option of the process, which starts it).
HEARTBEAT = 2.0
#: Seconds after which the coordinator takes a silent site as gone.
GONE = 30.0

_STORAGE = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"


def engine_folder(kit: Path) -> Path:
    """Where the coordinator's engine keeps jobs and snapshots."""
    return kit / "weft" / "engine"


def startup_file(one: Recipient) -> str:
    """The file by which the engine knows what kind of kit it is."""
    return {
        "coordinator": "fed_server.json",
        "site": "fed_client.json",
        "submitter": "fed_admin.json",
    }[one.kind]


def settings_of(plan: FederationPlan, one: Recipient, kit: Path) -> dict[str, Settings]:
    """All files of settings of a kit, by their path in it.

    Parameters
    ----------
    kit
        Where the kit will lie; the coordinator's storage must be named in full, and `Kit.prepare`
        names it anew where a kit was moved.
    """
    startup = f"startup/{startup_file(one)}"
    if one.kind == "coordinator":
        return {
            startup: _server(plan),
            "local/resources.json": _server_resources(kit),
            "local/authorization.json": _server_rights(),
            "local/comm_config.json": _communication(),
            "local/log_config.json": _logging(),
        }
    if one.kind == "site":
        return {
            startup: _client(plan, one),
            "local/resources.json": _client_resources(),
            "local/authorization.json": _no_rights(),
            "local/comm_config.json": _communication(),
            "local/log_config.json": _logging(),
        }
    return {startup: _admin(plan, one), "local/resources.json": _admin_resources()}


# ── the coordinator ───────────────────────────────────────────────────────────────────────────


def _server(plan: FederationPlan) -> Settings:
    return {
        "format_version": 2,
        "require_signed_jobs": True,
        "servers": [
            {
                "name": plan.name,
                # A host called localhost is listened on at 127.0.0.1 only, any other everywhere.
                "service": {"target": f"{plan.host}:{plan.port}", "scheme": "grpc"},
                "admin_server": plan.host,
                # The same port: submitters and sites come in by one door.
                "admin_port": plan.port,
                "ssl_private_key": "server.key",
                "ssl_cert": "server.crt",
                "ssl_root_cert": "rootCA.pem",
                "connection_security": "mtls",
            }
        ],
    }


def _server_resources(kit: Path) -> Settings:
    resources: Settings = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [RUN],
        "allow_log_streaming": False,
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": 1000,
                "heart_beat_timeout": GONE,
                # How soon a job's process notices that its run is over, in seconds.
                "check_engine_frequency": 0.5,
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor"
            ".StorageStatePersistor",
            "args": {"uri_root": "/", "storage": {"path": _STORAGE, "args": {"uri_root": "/"}}},
        },
        "components": [
            {
                "id": "job_scheduler",
                "path": SCHEDULER,
                "args": {"max_jobs": 1, "min_schedule_interval": 1.0},
            },
            {
                "id": "job_manager",
                "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                "args": {"job_store_id": "job_store"},
            },
            {"id": "job_store", "path": _STORAGE},
            {
                "id": "process_launcher",
                "path": "nvflare.app_common.job_launcher.server_process_launcher"
                ".ServerProcessJobLauncher",
                "args": {},
            },
        ],
    }
    return up_to_date(resources, kit)


def up_to_date(resources: Settings, kit: Path) -> Settings:
    """The coordinator's ``resources.json``: storage where the kit lies now, today's scheduler."""
    home = engine_folder(kit.absolute())
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(home / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(home / "jobs")
        if component["id"] == "job_scheduler":
            component["path"] = SCHEDULER
    return resources


def _server_rights() -> Settings:
    """A submitter manages its own runs, but cannot read files, run code or stop the server."""
    return _rights(
        {
            SUBMITTER_ROLE: {
                "submit_job": "any",
                "manage_job": "n:submitter",
                "download_job": "n:submitter",
                "list_job_components": "n:submitter",
                "download_job_components": "n:submitter",
                "app_command": "any",
                "view": "any",
                "clone_job": "none",
                "operate": "none",
                "shell_commands": "none",
                "byoc": "none",
            }
        }
    )


# ── a site ────────────────────────────────────────────────────────────────────────────────────


def _client(plan: FederationPlan, one: Recipient) -> Settings:
    return {
        "format_version": 2,
        "require_signed_jobs": True,
        "servers": [
            {
                "name": plan.name,
                "service": {"target": f"{plan.host}:{plan.port}", "scheme": "grpc"},
                "identity": plan.host,
            }
        ],
        "client": {
            "ssl_private_key": "client.key",
            "ssl_cert": "client.crt",
            "ssl_root_cert": "rootCA.pem",
            "fqsn": one.name,
            "is_leaf": True,
            "connection_security": "mtls",
        },
    }


def _client_resources() -> Settings:
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [PARTY],
        "allow_log_streaming": False,
        "client": {
            # A coordinator that restarted is asked again soon, and not waited for long.
            "client_register_interval": 1.0,
            "maint_msg_timeout": 8.0,
            "retry_timeout": 30,
        },
        "components": [{"id": "weft_party", "path": PARTY, "args": {}}],
    }


def _no_rights() -> Settings:
    """What the coordinator's users may do on a site: nothing."""
    return _rights({SUBMITTER_ROLE: "none"})


# ── a submitter ───────────────────────────────────────────────────────────────────────────────


def _admin(plan: FederationPlan, one: Recipient) -> Settings:
    return {
        "format_version": 1,
        "admin": {
            "project_name": plan.name,
            "username": one.name,
            "server_identity": plan.host,
            "scheme": "grpc",
            "host": plan.host,
            "port": plan.port,
            "connection_security": "mtls",
            "uid_source": "user_input",
            "with_file_transfer": True,
            "upload_dir": "transfer",
            "download_dir": "transfer",
            "client_key": "client.key",
            "client_cert": "client.crt",
            "ca_cert": "rootCA.pem",
        },
    }


def _admin_resources() -> Settings:
    return {
        "format_version": 1,
        "admin": {
            "idle_timeout": 900.0,
            "login_timeout": 10.0,
            "with_debug": False,
            "authenticate_msg_timeout": 5.0,
            "prompt": "> ",
        },
    }


# ── all ───────────────────────────────────────────────────────────────────────────────────────


def _rights(permissions: Settings) -> Settings:
    # Roles that Weft does not use are named as well: what is not named is refused by the
    # engine today, and should stay so.
    others = dict.fromkeys(("project_admin", "org_admin", "member"), "none")
    return {"format_version": "1.0", "permissions": {**others, **permissions}}


def _communication() -> Settings:
    return {
        "allow_adhoc_conns": False,
        "backbone_conn_gen": 2,
        "heartbeat_interval": 5,
        "subnet_heartbeat_interval": 5,
        # Between processes of one machine.
        "internal": {
            "scheme": "tcp",
            "resources": {"host": "localhost", "connection_security": "clear"},
        },
    }


def _logging() -> Settings:
    """Everything in a file: the terminal shows Weft's own event log."""
    text = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": text}},
        "handlers": {
            "file": {
                "class": "logging.handlers.RotatingFileHandler",
                "level": "INFO",
                "formatter": "plain",
                "filename": "log.txt",
                "mode": "a",
                "maxBytes": 20971520,
                "backupCount": 5,
            },
        },
        "loggers": {"root": {"level": "INFO", "handlers": ["file"]}},
    }
