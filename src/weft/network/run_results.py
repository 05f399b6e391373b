"""What a run leaves to whoever submitted it: a parcel from the coordinator, opened on its way in.

The coordinator knows everything of it but a linear model, whose slices are sealed to its readers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from weft.errors import ProtocolError
from weft.federation.coordinator import Outcome
from weft.network.presence_trace import Presence
from weft.network.run_progress import BYTES
from weft.network.task import LinearTask
from weft.report.history import history_frame
from weft.report.json_values import rounded
from weft.report.path import has_path, path_frame
from weft.report.summary import summarise

#: Folder of the parcel in that of a run.
PARCEL = "results"
_LETTERS, SUMMARY, HISTORY, _PATH, PRESENCE = (
    "letters.msgpack",
    "summary.json",
    "history.parquet",
    "path.csv",
    "presence.json",
)
#: The server's model of a neural run, which the coordinator knows.
MODEL = "model.npz"
#: Everything that may leave the coordinator with a parcel.
FILES = (_LETTERS, SUMMARY, HISTORY, _PATH, PRESENCE, MODEL)


class Letters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sealed slices by reader and writer, and what is needed to join them.

    Attributes
    ----------
    run
        Random name of the run, which they are written for.
    overlapping
        Whether a party was gone, so that others answered for its features too.
    """

    run: bytes
    head: str
    overlapping: bool
    by_reader: dict[str, dict[str, bytes]]


def write_parcel(folder: Path, outcome: Outcome, task: LinearTask, presence: Presence) -> None:
    """Write all that the coordinator knows of a run that is over."""
    sealed = Letters(
        outcome.run, outcome.head.to_json(), bool(outcome.result.gone), outcome.letters
    )
    (folder / _LETTERS).write_bytes(msgspec.msgpack.encode(sealed))
    summary = for_submitter(summarise(outcome, task.settings, task.name))
    (folder / SUMMARY).write_text(json.dumps(summary), encoding="utf-8")
    history = history_frame(outcome.result.history)
    for name in BYTES:
        history[name] = history[name].map(rounded)
    history.to_parquet(folder / HISTORY, index=False)
    if has_path(outcome.result):
        frame = path_frame(outcome.result, task.settings.make_loss().task)
        frame.to_csv(folder / _PATH, index=False)
    presence.save(folder / PRESENCE)


def for_submitter(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without what only a coordinator may know: who holds how much, with whom.

    Exact bytes, and values that the coordinator added, are sums of sizes of the parties' tables: a
    party that submits runs could work out from them how much others have in common. So bytes and
    the phases' seconds are rounded, and of encryption only seconds are left.
    """
    cost = summary["cost"]
    seconds = summary["encryption"]["coordinator"]["seconds"]
    return {
        **summary,
        "cohorts": None,
        "feature_sets": None,
        "cost": {**cost, **{key: rounded(cost[key]) for key in BYTES}},
        "phases": {
            phase: {key: value if key == "calls" else rounded(value) for key, value in cost.items()}
            for phase, cost in summary["phases"].items()
        },
        "encryption": {
            "coordinator": {"seconds": rounded(seconds)},
            "parties": None,
            "slowest": None,
        },
    }


class Parcel:
    """A parcel that came back.

    Attributes
    ----------
    summary, history, path, presence
        How the run went; ``path`` is None where there was one λ only.
    letters
        What is sealed of the model.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self.letters = msgspec.msgpack.decode((folder / _LETTERS).read_bytes(), type=Letters)
            self.summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text("utf-8"))
            self.history = pd.read_parquet(folder / HISTORY)
            found = folder / _PATH
            self.path = pd.read_csv(found) if found.exists() else None
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise ProtocolError(
                f"the results of the run came back damaged ({error}); resume the run to fetch "
                "them again"
            ) from None
        self.presence = Presence.load(folder / PRESENCE)

    @property
    def readers(self) -> tuple[str, ...]:
        """To whom the model is sealed."""
        return tuple(self.letters.by_reader)
