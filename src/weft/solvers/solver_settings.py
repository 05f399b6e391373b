"""How a problem is solved, whatever the problem."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from weft.errors import ConfigError
from weft.solvers.held_out_evaluation_settings import MOST_FOLDS
from weft.solvers.subspace.settings import SubspaceSettings

#: By what folds choose λ.
Scoring = Literal["accuracy", "auc", "loss"]


class SolverSettings(SubspaceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a problem is solved, whatever the problem: limits, who takes part, what is hidden.

    Settings that only some solvers read are declared with those solvers and inherited here, as
    a run is told all of them at one level; ``options`` is what only one solver reads.

    Attributes
    ----------
    options
        What only the named algorithm reads.
    iic
        Inner-iteration constant: the share of the samples touched in an iteration (per cohort
        for ``safe``; ⌈iic · N / parties⌉ per party for the others).
    gap, iterations, seconds, round_trips
        Stop at a certified relative gap, or after so much of something; None: no such limit.
    certify_every
        Iterations between certificates; None: each pass over the data for HyFDCA, else 10.
    participation
        ``"everyone"``, a fraction, ``{"cyclic": groups}`` or ``{"trace": [[names], …]}``.
    cipher
        What hides every sum from the coordinator: ``pad``, ``bfv``, ``paillier``; ``plain``
        hides nothing, for simulation.
    coordinator_sees
        ``nothing``: neither w nor any part of it. ``weights``: one holder of each feature opens
        the total and tells it w. ``papers``: every party's feature sums travel in the clear, as
        in the papers' protocol; for simulated parties only.
    folds
        Folds of the samples, of which each is left out in turn, in the same messages; 0: none.
    scoring
        By what folds choose λ: ``accuracy``, ``auc`` (over pairs of samples of one label holder) or
        ``loss``, which is the log-loss for the logistic loss; None: accuracy, or the squared error.
    patience
        Seconds to wait for a party without which nothing goes on.
    seed
        Seed of every draw.
    """

    options: dict[str, Any] = msgspec.field(default_factory=dict)
    iic: float = 1.0
    gap: float | None = 1e-3
    iterations: int | None = 10_000
    seconds: float | None = None
    round_trips: int | None = None
    certify_every: int | None = None
    participation: str | float | dict[str, Any] = "everyone"
    cipher: str = "pad"
    coordinator_sees: Literal["nothing", "weights", "papers"] = "nothing"
    folds: int = 0
    scoring: Scoring | None = None
    patience: float = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.iic > 0:
            raise ConfigError(f"iic is {self.iic:g}; give a positive share of the samples")
        if self.gap is not None and not self.gap > 0:
            raise ConfigError(f"gap is {self.gap:g}; a certified gap is positive, try 1e-3")
        for name in ("iterations", "round_trips", "certify_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; give a whole number of at least 1")
        limits = (self.gap, self.iterations, self.seconds, self.round_trips)
        if all(limit is None for limit in limits):
            raise ConfigError("nothing stops this run; set gap, iterations, seconds or round_trips")
        if self.seconds is not None and not self.seconds > 0:
            raise ConfigError(f"seconds is {self.seconds:g}; give a time above 0, or none")
        if self.folds and not self._fewest_folds <= self.folds <= MOST_FOLDS:
            raise ConfigError(
                f"folds is {self.folds}; give 2 to {MOST_FOLDS}, or 0 for none (one part alone is "
                "held_out = 0.2 in [evaluation])"
            )
        if self.scoring is not None and not self.folds:
            raise ConfigError(
                f"scoring is '{self.scoring}', but no samples are left out to score; set folds = 5"
            )
        if not self.patience >= 0:
            raise ConfigError(f"patience is {self.patience:g}; give seconds of at least 0")

    @property
    def _fewest_folds(self) -> int:
        return 2
