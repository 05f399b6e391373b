"""The submitter's side: from a config to a task, from the returned files to a results folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

from weft.config.common_config import FederationConfig
from weft.errors import ConfigError
from weft.network.installed_job_kinds import JOB_KINDS
from weft.network.presence_replay import Presence
from weft.network.run_description import Task
from weft.network.run_results import PRESENCE
from weft.storage.atomic_folder import building


def new_run(config: FederationConfig) -> str:
    """A new, unique name for a run."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", config.name).strip("-._")[:48]
    return f"{plain or 'run'}-{token_hex(4)}"


def task_of(config: FederationConfig, connected: Sequence[str]) -> Task:
    """The task of a config, for the parties that it names, or else all that are connected."""
    task: Task = JOB_KINDS[config.kind].make_task(config, _parties(config, connected))
    return task


def _parties(config: FederationConfig, connected: Sequence[str]) -> tuple[str, ...]:
    named = tuple(party.name for party in config.parties)
    parties = named or tuple(sorted(connected))
    if not parties:
        raise ConfigError(
            f"no party is connected, and {config.path.name} names none; start them with 'weft join'"
        )
    return parties


def write_out(
    returned: Path,
    out: Path,
    config: FederationConfig,
    keys: Path | None,
    party: str | None,
    *,
    command: str = "",
) -> tuple[dict[str, Any], list[str]]:
    """Make a results folder from the coordinator's files.

    Parameters
    ----------
    returned
        Folder with the coordinator's files.
    keys, party, command
        As in `weft.network.job_kind.JobKind.write_results`.

    Returns
    -------
    summary, remarks
        As there.
    """
    with building(out) as draft:
        summary, remarks = JOB_KINDS[config.kind].write_results(
            draft, returned, config, keys=keys, party=party, command=command
        )
        Presence.load(returned / PRESENCE).save(draft / PRESENCE)
    return summary, remarks
