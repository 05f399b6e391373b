"""What the coordinator does in each kind of run: linear or neural."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from weft.network.presence_trace import Presence
from weft.network.run_progress import IterationRecord, Kind
from weft.network.task import LinearTask, NeuralTask, Task
from weft.protocol import Channel

OnIteration = Callable[[IterationRecord], None]


class FinishedRun(Protocol):
    """A run that has ended, with its results."""

    @property
    def notes(self) -> list[str]:
        """Sentences about it; more may be appended."""

    def write(self, folder: Path, presence: Presence) -> None:
        """Write everything the coordinator knows of it into an existing folder."""


class JobKind(Protocol):
    """How one kind of task is run."""

    kind: Kind

    def coordinate(self, channel: Channel, run: bytes, tell: OnIteration) -> FinishedRun:
        """Run it to its end.

        Parameters
        ----------
        run
            Sixteen random bytes that name the run, the same after every restart.
        tell
            Called after every iteration.
        """


def job_kind_of(task: Task) -> JobKind:
    """The kind of a task; imports only what that kind needs."""
    if isinstance(task, NeuralTask):
        return _Neural(task)
    if isinstance(task, LinearTask):
        return _Linear(task)
    raise TypeError(f"{type(task).__name__} is not a task")


class _Linear:
    kind: Kind = "linear"

    def __init__(self, task: LinearTask) -> None:
        self._task = task

    def coordinate(self, channel: Channel, run: bytes, tell: OnIteration) -> FinishedRun:
        from weft.federation.coordinator import coordinate
        from weft.network.run_results import write_run_results

        task = self._task
        outcome = coordinate(channel, task.preprocessing, task.settings, run=run, progress=tell)
        return _FinishedRun(outcome, outcome.result.notes, task, write_run_results)


class _Neural:
    kind: Kind = "neural"

    def __init__(self, task: NeuralTask) -> None:
        self._task = task

    def coordinate(self, channel: Channel, run: bytes, tell: OnIteration) -> FinishedRun:
        from weft_neural.coordinator import coordinate_neural
        from weft_neural.run_results import write_neural_run_results

        outcome = coordinate_neural(channel, self._task.settings, run=run, progress=tell)
        return _FinishedRun(outcome, outcome.notes, self._task, write_neural_run_results)


class _FinishedRun:
    def __init__(
        self, outcome: Any, notes: list[str], task: Task, write: Callable[..., None]
    ) -> None:
        self._outcome, self._task, self._write = outcome, task, write
        self.notes = notes

    def write(self, folder: Path, presence: Presence) -> None:
        self._write(folder, self._outcome, self._task, presence)
