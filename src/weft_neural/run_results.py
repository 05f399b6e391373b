"""The results of a neural run: written by the coordinator, read by the submitter, unsealed."""

from __future__ import annotations

import json
from pathlib import Path

from weft.network.presence_replay import Presence
from weft.network.run_results import HISTORY, PRESENCE, SUMMARY, ReturnedRun, undamaged
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


class ReturnedNeuralResults(ReturnedRun):
    """Results that came back from the coordinator.

    Attributes
    ----------
    model
        The server's.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        with undamaged():
            self.model = NeuralModel.load(folder / MODEL)
