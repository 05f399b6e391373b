"""A kit that was restored from a backup: its runs under way must not go on.

A site that goes on from an older state would use pads a second time. Files that were copied are
found out (`weft.storage.copied_folder_check`); a disk that was set back as a whole is not, and
whoever did so says it here.
"""

from __future__ import annotations

from weft.errors import ConfigError
from weft.network.coordinator_run import JOURNAL
from weft.network.discard_run import delete_folder, leave_run
from weft.network.kits.kit_folder import Kit
from weft.network.run_results import RESULTS
from weft.network.saved_join_settings import exclusive_use
from weft.network.site_run_index import RunIndex


def drop_runs_under_way(kit: Kit) -> list[str]:
    """Drop every run of a kit that is not over, and all that is kept of it; their names.

    Nothing may run with the kit meanwhile.
    """
    if kit.kind == "submitter":
        raise ConfigError(f"{kit.path} is a submitter's kit, in which no run is kept")
    if kit.kind == "site":
        with exclusive_use(kit):
            return _drop_at_site(kit)
    return _drop_at_coordinator(kit)


def _drop_at_site(kit: Kit) -> list[str]:
    index = RunIndex(kit.home)
    known = {entry.run for entry in index.entries() if not entry.ended}
    folders = {path.name for path in kit.runs.iterdir() if path.is_dir()}
    for run in known:
        leave_run(kit.home, run)
    # One that the restored index does not know must not begin again either.
    for run in folders - known:
        index = RunIndex(kit.home)
        index.begin(run)
        leave_run(kit.home, run)
    return sorted(known | folders)


def _drop_at_coordinator(kit: Kit) -> list[str]:
    going = [
        path
        for path in sorted(kit.runs.iterdir())
        if path.is_dir() and ((path / JOURNAL).exists() or not (path / RESULTS).is_dir())
    ]
    for path in going:
        delete_folder(path)
    return [path.name for path in going]
