"""What every algorithm has: a coordinator that runs it, a party's half, and a declared need."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto import Adder
from weft.matching.holding_map import HoldingMap
from weft.protocol import Answer, Channel
from weft.solvers.held_out_score_counts import HeldOutSums
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants
from weft.solvers.solver_settings import Scoring
from weft.sums.gap_certificate import Certificate


@dataclass(frozen=True)
class Record:
    """One iteration of a run, as the history keeps it.

    Costs are totals since the run's first message, matching and scaling included.
    ``primal``, ``dual`` and ``gap`` are of the newest certificate, which ``certified_at``
    dates (None: no certificate yet). The estimates use stored sums of absent parties; they
    are shown, but never stop a run.
    """

    iteration: int
    present: int
    round_trips: int
    bytes_down: int
    bytes_up: int
    compute_seconds: float
    wall_seconds: float
    primal: float | None = None
    dual: float | None = None
    gap: float | None = None
    certified_at: int | None = None
    loss_estimate: float | None = None
    gap_estimate: float | None = None
    lam: float | None = None

    @property
    def line(self) -> str:
        """It in a few words, for a diary."""
        known = "" if self.gap is None else f", certified gap {self.gap:.2e}"
        return (
            f"iteration {self.iteration}, {self.present} parties answered, {self.round_trips} "
            f"round trips{known}"
        )

    def modelled_seconds(self, latency: float) -> float:
        """Seconds over a network: the slowest party's computing, and so much a round trip."""
        return self.compute_seconds + latency * self.round_trips


@dataclass(frozen=True)
class Stage:
    """One λ of a run that is done.

    Attributes
    ----------
    number
        Under which the parties keep its model.
    round_trips
        Spent from the beginning of the run to its end.
    scores
        Per fold: samples left out, their losses, and how many are predicted rightly (for a
        regression: squared errors); not a number where nobody knows that. With ``auc``, pairs in
        the right order and all pairs besides. On shares, of all folds together.
    """

    number: int
    lam: float
    certificate: Certificate
    round_trips: int
    scores: list[list[float]] | None = None

    @property
    def fold_scores(self) -> list[float]:
        """Per fold, the share predicted rightly (for a regression: the mean squared error)."""
        return [good / count if count else math.nan for count, _, good, *_ in self.scores or ()]

    @property
    def fold_losses(self) -> list[float]:
        """Per fold, the mean loss of the samples left out."""
        return [loss / count if count else math.nan for count, loss, *_ in self.scores or ()]

    @property
    def fold_aucs(self) -> list[float]:
        """Per fold, the share of pairs in the right order, of one label holder each."""
        pairs = [fold[3:] or [0.0, 0.0] for fold in self.scores or ()]
        return [right / count if count else math.nan for right, count in pairs]

    def qualities(self, task: str, scoring: Scoring | None) -> list[float]:
        """Scores of the folds, so that more is better; not a number where there is none.

        Where nobody knows what is predicted rightly, they are minus mean losses.
        """
        if scoring == "auc":
            return self.fold_aucs
        scores = self.fold_scores
        if scoring == "loss" or all(math.isnan(score) for score in scores):
            return [-loss for loss in self.fold_losses]
        return [-score for score in scores] if task == "regression" else scores

    def quality(self, task: str, scoring: Scoring | None = None) -> float:
        """Mean score over the folds that have one, so that more is better."""
        known = [score for score in self.qualities(task, scoring) if not math.isnan(score)]
        return sum(known) / len(known) if known else -math.inf


@dataclass
class Result:
    """How a run ended.

    Attributes
    ----------
    certificate
        Of the model that the parties hold now; None when not every party answered for it.
    model_iteration
        Which pair the parties shall release: the iteration of a frozen pair, or None for the
        weights they hold.
    stopped
        Why the run ended, in words.
    lam
        λ of a model that belongs to no stage; None: that of the settings.
    gone
        Parties that stayed away in mid-run, for longer than it could wait.
    stages
        The models of a run over several λ or folds, in the order in which they were trained.
    weights
        w by feature slot and class as the coordinator saw it last, where it may see it.
    held_out
        Counts of the scores of samples that folds left out, of the released model.
    """

    history: list[Record] = field(default_factory=list)
    certificate: Certificate | None = None
    model_iteration: int | None = None
    stopped: str = ""
    weights: Floats | None = None
    stages: list[Stage] = field(default_factory=list)
    lam: float | None = None
    gone: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    held_out: HeldOutSums | None = None

    @property
    def stage(self) -> Stage | None:
        """The one whose model is released."""
        return next((s for s in self.stages if s.number == self.model_iteration), None)


class PartyHalf(Protocol):
    """A party's half of an algorithm."""

    def phases(self) -> dict[str, Answer]: ...

    def weights(self, model: int | None) -> Floats: ...

    def state(self) -> dict[str, NDArray[Any]]: ...

    def restore(self, state: Mapping[str, NDArray[Any]], constants: Constants) -> None: ...

    def settle(self, ack: int) -> None: ...


@dataclass(frozen=True)
class ModelShare:
    """A party's share of the weights of all columns.

    Attributes
    ----------
    words
        (problems × columns of the whole table), modulo 2^64 in units of 2^−``bits``.
    columns
        Which of them are those of the party's own columns.
    """

    words: NDArray[np.uint64]
    columns: Ints
    bits: int


#: The error of a share that its party keeps to itself.
WITHHELD = -1.0


@dataclass(frozen=True)
class MomentShare:
    """A party's share of a matrix or vector over all columns, modulo 2^64 in units of 2^−``bits``.

    ``error`` is how far an entry of the matrix, or the whole vector, may be off; `WITHHELD` where
    words are noise in the place of a share, so that readers have nothing.
    """

    words: NDArray[np.uint64]
    bits: int
    error: float


@dataclass(frozen=True)
class MomentShares:
    """A party's shares of second moments: XᵀX, and Xᵀ diag(l''(z)) X problem by problem.

    With each of these go ``rests``, the same of the digits of l''(z) that follow its leading ones,
    and the gradient Xᵀ l'(z) there, or with none of them. ``labels`` is −½ Σy of two classes, from
    which an intercept alone is fitted; of counts −Σy, and Σ log y!. ``weighed``: whether samples
    have weights. ``pearson``: of a gamma model, Σ(y/μ − 1)².
    """

    gram: MomentShare | None
    hessians: tuple[MomentShare, ...]
    rests: tuple[MomentShare, ...]
    gradients: tuple[MomentShare, ...]
    labels: MomentShare | None = None
    weighed: bool = False
    pearson: MomentShare | None = None


class SharingHalf(PartyHalf, Protocol):
    """One that has shares of weights only."""

    def model_share(self, model: int | None) -> ModelShare: ...

    def moment_shares(self, model: int | None) -> MomentShares: ...


class InferringHalf(PartyHalf, Protocol):
    """One that knows scores at a finished model."""

    def closed_scores(self, model: int | None) -> Floats | None: ...


PartyFactory = Callable[[PartyContext, Settings], PartyHalf]


@dataclass
class Checkpointing:
    """Where and how often a run saves itself, and whether it continues from there."""

    folder: Path
    every: int = 100
    resume: bool = False


class Coordinator(ABC):
    """Drives a run over a channel; sees totals and pseudonyms, never data."""

    @abstractmethod
    def run(
        self,
        channel: Channel,
        holdings: HoldingMap,
        settings: Settings,
        adder: Adder,
        *,
        unit: float,
        label: float,
        offset: float = 0.0,
        weight: float = 1.0,
        classes: int,
        progress: Callable[[Record], None] | None = None,
        checkpointing: Checkpointing | None = None,
        warm: bool = False,
    ) -> Result:
        """Train until a stopping rule holds.

        Parameters
        ----------
        adder
            The coordinator's half of the cipher, as it was used to set the run up.
        unit
            A power of two above every party's part of every ‖x_i‖².
        label
            A power of two above every |label|.
        offset, weight
            The same above every |offset| of a sample and every weight.
        warm
            Whether the parties bring a model to start from.
        """
