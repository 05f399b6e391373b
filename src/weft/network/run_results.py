"""The results of a linear run: written by the coordinator, read by the submitter.

The coordinator knows all of them except the model, whose slices are sealed to its readers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from weft.errors import DataError, ProtocolError
from weft.federation.release.coordinator import Outcome
from weft.network.record_and_replay_absences import Presence
from weft.network.submitted_task import LinearTask
from weft.network.submitter_visible_figures import HISTORY as HISTORY_COLUMNS
from weft.network.submitter_visible_figures import LINEAR, PATH, listed, roughened, told_of
from weft.report.history_table import history_frame
from weft.report.lambda_path import has_path, path_frame
from weft.report.summary import summarise
from weft.thread_safe_decoding import prepared

#: Folder of the results in a run's folder.
RESULTS = "results"
_SLICES, SUMMARY, HISTORY, _PATH, PRESENCE = (
    "sealed_slices.msgpack",
    "summary.json",
    "history.parquet",
    "path.csv",
    "presence.json",
)
#: Every file that may leave the coordinator.
FILES = (_SLICES, SUMMARY, HISTORY, _PATH, PRESENCE)


class SealedSlices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sealed slices of the model by reader and writer, and what is needed to join them.

    Attributes
    ----------
    run
        Random name of the run, which they are bound to.
    overlapping
        Whether a party was gone, so others also answered for its features.
    """

    run: bytes
    head: str
    overlapping: bool
    by_reader: dict[str, dict[str, bytes]]


def write_run_results(folder: Path, outcome: Outcome, task: LinearTask, presence: Presence) -> None:
    """Write everything the coordinator knows of a finished run."""
    sealed = SealedSlices(
        outcome.run, outcome.head.to_json(), bool(outcome.result.gone), outcome.letters
    )
    (folder / _SLICES).write_bytes(msgspec.msgpack.encode(sealed))
    summary = told_of(summarise(outcome, task.settings, task.name), LINEAR)
    (folder / SUMMARY).write_text(json.dumps(summary), encoding="utf-8")
    history = listed(roughened(history_frame(outcome.result.history)), HISTORY_COLUMNS)
    history.to_parquet(folder / HISTORY, index=False)
    if has_path(outcome.result):
        frame = path_frame(outcome.result, task.settings.make_loss().task, task.settings.scoring)
        listed(frame, PATH).to_csv(folder / _PATH, index=False)
    presence.save(folder / PRESENCE)


@contextmanager
def undamaged() -> Iterator[None]:
    """Refuse files that cannot be read as results of a run."""
    try:
        yield
    except (OSError, ValueError, DataError, msgspec.MsgspecError) as error:
        raise ProtocolError(
            f"the results of the run came back damaged ({error}); resume the run to fetch them "
            "again"
        ) from None


class ReturnedRun:
    """What came back from the coordinator of a run of any kind.

    Attributes
    ----------
    summary, history
        How the run went.
    """

    def __init__(self, folder: Path) -> None:
        with undamaged():
            self.summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text("utf-8"))
            self.history = pd.read_parquet(folder / HISTORY)


class ReturnedResults(ReturnedRun):
    """The same of a linear run.

    Attributes
    ----------
    path
        One row per λ; None where there was one λ only.
    sealed
        The slices of the model.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        with undamaged():
            self.sealed = msgspec.msgpack.decode(
                (folder / _SLICES).read_bytes(), type=prepared(SealedSlices)
            )
            found = folder / _PATH
            self.path = pd.read_csv(found) if found.exists() else None

    @property
    def readers(self) -> tuple[str, ...]:
        """Parties that can open the model."""
        return tuple(self.sealed.by_reader)
