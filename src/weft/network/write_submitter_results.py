"""The submitter's side: from the files that come back to a results folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.config.base_config_of_all_jobs import FederationConfig
from weft.network.installed_job_kinds import kind_of_config
from weft.network.record_and_replay_absences import Presence
from weft.network.run_results import PRESENCE
from weft.storage.atomic_folder import building


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
        As in `weft.network.job_kind_interface.JobKind.write_results`.

    Returns
    -------
    summary, remarks
        As there.
    """
    with building(out) as draft:
        summary, remarks = kind_of_config(config).write_results(
            draft, returned, config, keys=keys, party=party, command=command
        )
        Presence.load(returned / PRESENCE).save(draft / PRESENCE)
    return summary, remarks
