"""The results of a neural run: written by the coordinator, read by the submitter, unsealed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.network.record_and_replay_absences import Presence
from weft.network.run_results import HISTORY, PRESENCE, SUMMARY, ReturnedRun, undamaged
from weft.network.submitter_visible_figures import Each, exact, own, rough, roughened, told_of
from weft.report.json_safe_and_rounded_values import finite
from weft_neural.history import NeuralOutcome
from weft_neural.neural_job_kind import MODEL
from weft_neural.results_folder import round_frame, summarise_neural
from weft_neural.submitted_neural_task import NeuralTask
from weft_neural.trained_model import NeuralModel

#: What a submitter gets of a summary; sizes of networks are no secret, so that bytes are exact.
TOLD: Mapping[str, Any] = {
    **dict.fromkeys(("name", "method", "rounds", "loss", "exposed", "notes", "weft"), exact),
    "accuracy": dict.fromkeys(
        ("server", "own", "own_spread", "received", "received_spread"), exact
    ),
    "model": {
        **dict.fromkeys(("classes", "hidden", "weights"), exact),
        "blocks": Each(dict.fromkeys(("extractor", "shape", "features"), exact)),
    },
    "federation": Each(dict.fromkeys(("blocks", "weight"), exact)),
    "cost": {
        **dict.fromkeys(("round_trips", "bytes_down", "bytes_up"), exact),
        **dict.fromkeys(("training_seconds", "averaging_seconds", "matching_seconds"), rough),
    },
    "settings": own,
    "versions": Each(exact),
}


def write_neural_run_results(
    folder: Path, outcome: NeuralOutcome, task: NeuralTask, presence: Presence
) -> None:
    """Write everything the coordinator knows of a finished run, including the server's model."""
    outcome.model.save(folder / MODEL)
    summary = told_of(finite(summarise_neural(outcome, task.name)), TOLD)
    (folder / SUMMARY).write_text(json.dumps(summary), encoding="utf-8")
    history = roughened(round_frame(outcome.history), exact_bytes=True)
    history.to_parquet(folder / HISTORY, index=False)
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
