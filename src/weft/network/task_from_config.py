"""The submitter's side: from a config to a task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from secrets import token_hex

from weft.config.base_config_of_all_jobs import FederationConfig
from weft.errors import ConfigError
from weft.network.installed_job_kinds import kind_of_config
from weft.network.submitted_task import Task


def new_run(config: FederationConfig) -> str:
    """A new, unique name for a run."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", config.name).strip("-._")[:48]
    return f"{plain or 'run'}-{token_hex(4)}"


def task_of(config: FederationConfig, connected: Sequence[str]) -> Task:
    """The task of a config, for the parties that it names, or else all that are connected."""
    task: Task = kind_of_config(config).make_task(config, parties_of(config, connected))
    return task


def parties_of(config: FederationConfig, connected: Sequence[str]) -> tuple[str, ...]:
    """The parties that a config names, or else all that are connected."""
    named = tuple(party.name for party in config.parties)
    parties = named or tuple(sorted(connected))
    if not parties:
        raise ConfigError(
            f"no party is connected, and {config.path.name} names none; start them with 'weft join'"
        )
    return parties
