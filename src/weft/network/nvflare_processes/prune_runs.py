"""Deleting what a coordinator keeps of runs that are over: their results, and the engine's jobs.

Runs that can go on are never touched: sites keep secrets of them, and must be told first. Sites
have nothing to prune: of a run that is over they keep a line in ledger and index, which count, and
the model, which is theirs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from weft.errors import ConfigError
from weft.network.coordinator_run import JOURNAL
from weft.network.kits.kit_folder import Kit
from weft.network.kits.nvflare_settings_of_kit import engine_folder
from weft.network.nvflare_processes.port_and_coordinator_checks import check_port_free
from weft.network.nvflare_processes.stored_jobs import is_over
from weft.network.run_progress_file import delete_figures
from weft.network.run_results import RESULTS
from weft.network.submitted_task import check_run
from weft.protocol.recording_file import MESSAGES
from weft.storage.atomic_files import StorageError

_DAY = 86400.0


@dataclass(frozen=True)
class KeptRun:
    """A run of which the coordinator keeps something.

    Parameters
    ----------
    folders
        All that is kept: its own folder, and one for every time that it was submitted.
    ended
        When it ended, in seconds since 1970; None: it waits, is under way, or can go on.
    recorded
        Whether its messages are kept, for audits.
    home
        Where its figures lie; None: it has none.
    """

    run: str
    folders: tuple[Path, ...]
    ended: float | None
    recorded: bool = False
    home: Path | None = None

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        paths = (path for folder in self.folders for path in folder.rglob("*"))
        return sum(path.stat().st_size for path in paths if path.is_file())

    def delete(self) -> None:
        """Delete it; where the disk fails, what is left is found again the next time."""
        for folder in self.folders:
            try:
                shutil.rmtree(folder)
            except OSError as error:
                raise StorageError(
                    f"{folder} cannot be deleted ({error.strerror or error}); check its owner and "
                    "permissions, and prune again"
                ) from None
        if self.home is not None:
            delete_figures(self.home, self.run)


def kept_runs(kit: Kit) -> list[KeptRun]:
    """All runs of a coordinator's kit that does not serve; those that ended last come first.

    Raises
    ------
    ConfigError
        The coordinator is running.
    """
    try:
        check_port_free(kit)
    except ConfigError:
        raise ConfigError(
            f"weft serve runs with {kit.path}, or another process has its port {kit.port}; end it, "
            "prune, and start it again: runs under way go on"
        ) from None
    jobs = _jobs(engine_folder(kit.path) / "jobs")
    names = {*jobs, *(path.name for path in _folders(kit.runs))}
    found = [replace(_kept(kit.runs / name, jobs.get(name, ())), home=kit.home) for name in names]
    return sorted(found, key=lambda one: (-(one.ended or 0.0), one.run))


def old_runs(
    known: Sequence[KeptRun],
    now: float,
    *,
    older_than: float | None,
    keep: int | None,
    recordings: bool,
) -> list[KeptRun]:
    """Those to delete: over for so many days, and not among the last so many.

    Parameters
    ----------
    recordings
        Also runs whose messages are kept.
    """
    over = [one for one in known if one.ended is not None]
    return [
        one
        for one in over[keep or 0 :]
        if (older_than is None or one.ended is None or now - one.ended > older_than * _DAY)
        and (recordings or not one.recorded)
    ]


@dataclass(frozen=True)
class _Job:
    """A submission of a run, as the engine stores it."""

    folder: Path
    over: bool
    changed: float


def _jobs(folder: Path) -> dict[str, list[_Job]]:
    """All submissions by their runs; what cannot be read is nobody's, and stays."""
    found: dict[str, list[_Job]] = {}
    for path in _folders(folder):
        try:
            content = (path / "meta").read_bytes()
            meta = msgspec.json.decode(content, type=dict[str, object])
            changed = (path / "meta").stat().st_mtime
        except (OSError, msgspec.MsgspecError):
            continue
        job = _Job(path, is_over(str(meta.get("status", ""))), changed)
        found.setdefault(_run_of(meta, path), []).append(job)
    return found


def _run_of(meta: dict[str, object], job: Path) -> str:
    """The run of a job. Its submitter chose that name: no other folder may be meant by it."""
    try:
        return check_run(str(meta.get("name", "")))
    except ConfigError:
        return job.name


def _kept(folder: Path, jobs: Collection[_Job]) -> KeptRun:
    there = folder.is_dir()
    over = (folder / RESULTS).is_dir() and not (folder / JOURNAL).exists()
    # Without a folder nothing of it began, or it was given up.
    done = all(job.over for job in jobs) and (over if there else bool(jobs))
    times = [job.changed for job in jobs]
    if there:
        times.append(folder.stat().st_mtime)
    return KeptRun(
        folder.name,
        (*((folder,) if there else ()), *(job.folder for job in jobs)),
        max(times) if done else None,
        (folder / MESSAGES).exists(),
    )


def _folders(parent: Path) -> list[Path]:
    try:
        with os.scandir(parent) as found:
            return [Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
