"""The results of a neural run: written by the coordinator, read by the submitter, unsealed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from weft.errors import DataError, ProtocolError
from weft.network.presence_trace import Presence
from weft.network.run_results import HISTORY, PRESENCE, SUMMARY
from weft.report.json_values import finite
from weft_neural.history import NeuralOutcome
from weft_neural.job import MODEL
from weft_neural.model import NeuralModel
from weft_neural.results_folder import round_frame, summarise_neural
from weft_neural.task import NeuralTask


def write_neural_run_results(
    folder: Path, outcome: NeuralOutcome, task: NeuralTask, presence: Presence
) -> None:
    """Write everything the coordinator knows of a finished run, including the server's model."""
    outcome.model.save(folder / MODEL)
    summary = summarise_neural(outcome, task.name)
    (folder / SUMMARY).write_text(json.dumps(finite(summary)), encoding="utf-8")
    round_frame(outcome.history).to_parquet(folder / HISTORY, index=False)
    presence.save(folder / PRESENCE)


class ReturnedNeuralResults:
    """Results that came back from the coordinator.

    Attributes
    ----------
    model
        The server's.
    summary, history
        How the run went.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self.model = NeuralModel.load(folder / MODEL)
            self.summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text("utf-8"))
            self.history = pd.read_parquet(folder / HISTORY)
        except (OSError, ValueError, DataError) as error:
            raise ProtocolError(
                f"the results of the run came back damaged ({error}); resume the run to fetch "
                "them again"
            ) from None
