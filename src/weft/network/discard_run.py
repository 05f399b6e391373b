"""Abandoning a run: it can no longer be resumed, and only its name is kept.

Until then its files hold ciphertext at the coordinator and secrets at the sites.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from weft.errors import ConfigError
from weft.network.envelope_bytes import End, Ended, encode
from weft.network.exchange_outcomes_and_journal_records import ask, failure_of
from weft.network.installed_job_kinds import read_task
from weft.network.run_results import RESULTS
from weft.network.site_run_index import RunIndex
from weft.network.transport_interface import Transport
from weft.protocol import Failure
from weft.storage.atomic_files import StorageError, locked

log = logging.getLogger("weft.coordinator")

#: Files in a run's folder at the coordinator: the task, and who submitted it.
TASK, SUBMITTER = "task.json", "submitter"
#: How a run ended at a site whose owner left it.
DROPPED = "dropped by its owner"


def abandon_run(
    open_transport: Callable[[tuple[str, ...]], Transport], folder: Path, run: str, submitter: str
) -> dict[str, Failure]:
    """Tell the parties of a run that it is abandoned, and delete its folder at the coordinator.

    Parameters
    ----------
    open_transport
        Makes the transport to some parties.
    folder
        Of this run.
    submitter
        Who asks for it; only the run's submitter may.

    Returns
    -------
    dict
        Parties that could not be told, and why. They keep their files of the run.
    """
    if not (folder / TASK).exists():
        # It never began, or was abandoned before.
        return {}
    with locked(folder / TASK):
        check_owner(folder, submitter, "give it up")
        task = read_task((folder / TASK).read_text(encoding="utf-8"))
        # Some parties may not know yet that it is over.
        envelope = encode(End(run, (folder / RESULTS).is_dir(), 0))
        answers = ask(
            open_transport(task.parties), dict.fromkeys(task.parties, envelope), task.timeout
        )
        delete_folder(folder)
    return {
        party: failure_of(answer)
        for party, answer in answers.items()
        if not isinstance(answer, Ended)
    }


def leave_run(home: Path, run: str) -> None:
    """Take a site out of a run, and delete its files of that run.

    What the site's ledger booked ahead for the run stays booked.

    Parameters
    ----------
    home
        The site's folder; no other process may use it meanwhile.

    Raises
    ------
    ConfigError
        The site does not take part in such a run.
    """
    index = RunIndex(home)
    entry = index.get(run)
    if entry is None:
        raise ConfigError(f"this site takes no part in a run '{run}'; weft status lists its runs")
    if not entry.ended:
        # Index first: from here on the run cannot be resumed.
        index.end(run, DROPPED, [])
    if (home / "runs" / run).exists():
        delete_folder(home / "runs" / run)


def delete_folder(folder: Path) -> None:
    """Delete the folder of a run."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be deleted ({error.strerror or error}); delete it by hand"
        ) from None


def check_owner(folder: Path, submitter: str, what: str) -> None:
    """Refuse whoever did not submit a run; ``what`` only its submitter can do."""
    owner = folder / SUBMITTER
    if owner.exists() and owner.read_text(encoding="utf-8") != submitter:
        raise ConfigError(f"run {folder.name} is not {submitter}'s; only its submitter can {what}")
