"""How a neural run went, round by round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.protocol import Meter
from weft_neural.settings import NeuralSettings
from weft_neural.trained_model import NeuralModel


@dataclass(frozen=True)
class Round:
    """One round, as the history keeps it.

    Accuracies of parties are those of networks right after their local steps (``local``) and of
    the copies of the server's that they began with (``received``), each on the party's own test
    samples: their mean, and their standard deviation over parties. None: not measured, or somebody
    fell silent, so that masks did not cancel.

    Attributes
    ----------
    turn
        Number of the round, from 1.
    present
        Parties whose networks were averaged and matched.
    loss
        Mean training loss of their steps.
    server_accuracy
        Of the server's model on samples with all blocks, where somebody could judge it.
    rows
        Of the server's hidden layers.
    objective
        Σ_m p_m ‖w_m − Π_m w_0‖² over all layers, after matching.
    training_seconds, averaging_seconds, matching_seconds
        Of this round: until all parties had answered, and at the server.
    round_trips, bytes_down, bytes_up
        Since the run's first message.
    """

    turn: int
    present: int
    loss: float | None
    local_accuracy: float | None
    local_spread: float | None
    received_accuracy: float | None
    received_spread: float | None
    server_accuracy: float | None
    rows: tuple[int, ...]
    objective: float
    training_seconds: float
    averaging_seconds: float
    matching_seconds: float
    round_trips: int
    bytes_down: int
    bytes_up: int

    @property
    def line(self) -> str:
        """It in a few words, for a diary."""
        loss = "" if self.loss is None else f", loss {self.loss:.4g}"
        return (
            f"round {self.turn}, {self.present} parties answered, {self.round_trips} round trips"
            f"{loss}"
        )


@dataclass
class NeuralOutcome:
    """How a neural run ended, as far as its coordinator knows.

    Attributes
    ----------
    model
        The server's.
    holders
        Blocks of every party.
    weights
        p_m.
    """

    model: NeuralModel
    history: list[Round]
    settings: NeuralSettings
    meter: Meter
    holders: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, float]
    notes: list[str]

    @property
    def last(self) -> Round:
        return self.history[-1]


def mean_and_spread(sums: Sequence[float]) -> tuple[float | None, float | None]:
    """From how many there are, their sum and the sum of their squares."""
    count, total, squares = sums
    if count < 0.5:
        return None, None
    mean = total / count
    return mean, math.sqrt(max(0.0, squares / count - mean**2))
