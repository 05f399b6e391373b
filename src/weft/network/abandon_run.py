"""Giving a run up: it cannot be resumed any more, and nothing is kept of it but that it was.

What is kept of a run until its end holds ciphertext at the coordinator, and secrets at the sites.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from weft.errors import ConfigError
from weft.network.broadcast import ask, failure_of
from weft.network.envelope import End, Ended, encode
from weft.network.run_index import Register
from weft.network.run_results import PARCEL
from weft.network.task import Task
from weft.network.transport import Post
from weft.protocol import Failure
from weft.storage.files import StorageError, locked

log = logging.getLogger("weft.coordinator")

#: Names in a run's folder at the coordinator: what is asked for, and who asks.
TASK, SUBMITTER = "task.json", "submitter"
#: How a run ended at a site whose owner wants nothing more of it.
DROPPED = "dropped by its owner"


def forget_run(
    open_post: Callable[[tuple[str, ...]], Post], folder: Path, run: str, submitter: str
) -> dict[str, Failure]:
    """Tell the parties of a run that it is given up, and delete its folder at the coordinator.

    Parameters
    ----------
    open_post
        Makes the post to some parties.
    folder
        Of this run.
    submitter
        Who wants it; it must be whoever submitted the run.

    Returns
    -------
    dict
        Parties that did not hear it, and why. They keep what they have of the run.
    """
    if not (folder / TASK).exists():
        # It never began, or was given up already.
        return {}
    with locked(folder / TASK):
        _check_owner(folder, submitter)
        task = Task.from_json((folder / TASK).read_text(encoding="utf-8"))
        # One that is over may have parties that do not know it yet.
        letter = encode(End(run, (folder / PARCEL).is_dir(), 0))
        answers = ask(open_post(task.parties), dict.fromkeys(task.parties, letter), task.timeout)
        delete_folder(folder)
    return {
        party: failure_of(answer)
        for party, answer in answers.items()
        if not isinstance(answer, Ended)
    }


def drop_run(home: Path, run: str) -> None:
    """Let a site take no part in a run any more, and delete what it has kept of it.

    What was booked ahead for the run in the site's ledger stays booked.

    Parameters
    ----------
    home
        The site's folder, which no other process uses now.

    Raises
    ------
    ConfigError
        The site does not take part in such a run.
    """
    register = Register(home)
    entry = register.get(run)
    if entry is None:
        raise ConfigError(f"this site takes no part in a run '{run}'; weft status lists its runs")
    if not entry.ended:
        # On file first: from here on it cannot be taken up again.
        register.end(run, DROPPED, [])
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


def _check_owner(folder: Path, submitter: str) -> None:
    owner = folder / SUBMITTER
    if owner.exists() and owner.read_text(encoding="utf-8") != submitter:
        raise ConfigError(
            f"run {folder.name} is not {submitter}'s; only whoever submitted it can give it up"
        )
