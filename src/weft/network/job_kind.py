"""What the coordinator undertakes in a run: the same steps, whatever is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from weft.network.presence_trace import Presence
from weft.network.run_progress import Kind, Told
from weft.network.task import LinearTask, NeuralTask, Task
from weft.protocol import Channel

Tell = Callable[[Told], None]


class Finished(Protocol):
    """A run that has come to its end."""

    @property
    def notes(self) -> list[str]:
        """Sentences about it, to which more may be added."""

    def write(self, folder: Path, presence: Presence) -> None:
        """Write all that the coordinator knows of it into a folder that is there."""


class Undertaking(Protocol):
    """What one kind of task comes to."""

    kind: Kind

    def coordinate(self, channel: Channel, run: bytes, tell: Tell) -> Finished:
        """Bring it to its end.

        Parameters
        ----------
        run
            Sixteen random bytes that name the run, the same after every restart.
        tell
            Is told of every iteration.
        """


def undertaking_of(task: Task) -> Undertaking:
    """Loads what one kind needs, and nothing of the other."""
    if isinstance(task, NeuralTask):
        return _Neural(task)
    if isinstance(task, LinearTask):
        return _Linear(task)
    raise TypeError(f"{type(task).__name__} is no kind of task")


class _Linear:
    kind: Kind = "linear"

    def __init__(self, task: LinearTask) -> None:
        self._task = task

    def coordinate(self, channel: Channel, run: bytes, tell: Tell) -> Finished:
        from weft.federation.coordinator import coordinate
        from weft.network.run_results import write_parcel

        task = self._task
        outcome = coordinate(channel, task.preprocessing, task.settings, run=run, progress=tell)
        return _Finished(outcome, outcome.result.notes, task, write_parcel)


class _Neural:
    kind: Kind = "neural"

    def __init__(self, task: NeuralTask) -> None:
        self._task = task

    def coordinate(self, channel: Channel, run: bytes, tell: Tell) -> Finished:
        from weft.network.neural_run_results import write_neural_parcel
        from weft.neural.coordinator import coordinate_neural

        outcome = coordinate_neural(channel, self._task.settings, run=run, progress=tell)
        return _Finished(outcome, outcome.notes, self._task, write_neural_parcel)


class _Finished:
    def __init__(
        self, outcome: Any, notes: list[str], task: Task, parcel: Callable[..., None]
    ) -> None:
        self._outcome, self._task, self._parcel = outcome, task, parcel
        self.notes = notes

    def write(self, folder: Path, presence: Presence) -> None:
        self._parcel(folder, self._outcome, self._task, presence)
