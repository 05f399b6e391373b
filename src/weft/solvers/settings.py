"""What a run is told: the problem, the solver and when to stop."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeVar

import msgspec

from weft.errors import ConfigError
from weft.losses import Loss, get_loss

_MOST_FOLDS = 20
_MOST_GROUPS = 100

Options = TypeVar("Options", bound=msgspec.Struct)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one run; every party gets the same.

    Attributes
    ----------
    loss, loss_parameters, lam
        The problem: P(w) = λ/2 ‖w‖² + 1/N Σ l(x_iᵀw).
    weigh
        ``samples``: all samples weigh the same. ``parties``: all parties do, so that the objective
        is λ/2 ‖w‖² plus the mean over parties of their mean loss; for methods on rows.
    solver, options
        Name of the algorithm, and what only this one reads.
    local
        HyFDCA's local dual method: ``safe``, ``practical`` or ``theory``.
    iic
        Inner-iteration constant: the share of the samples touched in an iteration (per cohort
        for ``safe``; ⌈iic · N / parties⌉ per party for the others).
    gamma
        Step γ_t of ``practical`` and ``theory``: a number, ``"1/t"`` or ``"auto"`` (1/t where
        Theorem 4.11 asks for it, else 1).
    norms
        ``sample``: holders of a sample share ‖x_i‖²; ``cohort``: only a bound per cohort;
        ``auto``: the former, which is faster, where the parties' terms allow it.
    gap, iterations, seconds, round_trips
        Stop at a certified relative gap, or after so much of something; None: no such limit.
    latency
        Seconds of a round trip, where ``seconds`` shall not be those of the clock but modelled
        ones: the slowest party's computing and so much for every round trip.
    path
        Further values of λ, each started from the last: the solvers for full participation.
    folds
        Folds of the samples, of which each is left out in turn, in the same messages; 0: none.
    groups
        Parts of the samples that get cuts of their own (cutting planes).
    patience, when_missing
        Seconds that a solver for full participation waits for a party, and what it does then:
        ``stop`` ends with the certificate reached so far, ``hyfdca`` goes on without the party
        and without certificates, until it is back.
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
    """

    lam: float
    loss: str = "hinge"
    loss_parameters: dict[str, float] = {}
    weigh: Literal["samples", "parties"] = "samples"
    solver: str = "hyfdca"
    options: dict[str, Any] = {}
    local: Literal["safe", "practical", "theory"] = "safe"
    iic: float = 1.0
    gamma: float | str = "auto"
    norms: Literal["auto", "sample", "cohort"] = "auto"
    gap: float | None = 1e-3
    iterations: int | None = 10_000
    seconds: float | None = None
    round_trips: int | None = None
    latency: float | None = None
    certify_every: int | None = None
    participation: str | float | dict[str, object] = "everyone"
    cipher: str = "pad"
    coordinator_sees: Literal["nothing", "weights", "papers"] = "nothing"
    path: tuple[float, ...] = ()
    folds: int = 0
    groups: int = 1
    patience: float = 60.0
    when_missing: Literal["stop", "hyfdca"] = "stop"
    seed: int = 0

    def __post_init__(self) -> None:
        # Whoever computes a path gets numbers of numpy, which do not travel.
        path = tuple(float(lam) for lam in self.path)
        msgspec.structs.force_setattr(self, "path", path)
        if not 0 < self.lam < math.inf:
            raise ConfigError(
                f"lambda is {self.lam:g}, but the model needs a positive regulariser; try 1e-3"
            )
        # Per party the share is of N / parties, of which a party can hold a multiple.
        safe = self.solver in ("auto", "hyfdca") and self.local == "safe"
        if not self.iic > 0 or (safe and self.iic > 1):
            raise ConfigError(
                f"iic is {self.iic:g}; give a positive share of the samples, at most 1"
            )
        if self.gap is not None and not self.gap > 0:
            raise ConfigError(f"gap is {self.gap:g}; a certified gap is positive, try 1e-3")
        for name in ("iterations", "round_trips", "certify_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; give a whole number of at least 1")
        if isinstance(self.gamma, str) and self.gamma not in ("auto", "1/t"):
            raise ConfigError(f"gamma = '{self.gamma}'; use a number, '1/t' or 'auto'")
        if not isinstance(self.gamma, str) and not 0 < self.gamma <= 1:
            raise ConfigError(f"gamma is {self.gamma:g}; a step lies above 0 and at most at 1")
        if self.local == "safe" and self.gamma not in ("auto", 1):
            raise ConfigError(
                f"gamma = {self.gamma!r} has no meaning for local = 'safe', which takes full "
                "steps; leave it out, or choose 'practical' or 'theory'"
            )
        limits = (self.gap, self.iterations, self.seconds, self.round_trips)
        if all(limit is None for limit in limits):
            raise ConfigError("nothing stops this run; set gap, iterations, seconds or round_trips")
        if self.seconds is not None and not self.seconds > 0:
            raise ConfigError(f"seconds is {self.seconds:g}; give a time above 0, or none")
        if self.latency is not None and not 0 <= self.latency < math.inf:
            raise ConfigError(f"latency is {self.latency:g}; give seconds of at least 0")
        if not all(0 < lam < math.inf for lam in self.path):
            raise ConfigError("a path of lambdas holds one that is not positive; try 1e-2, 1e-3")
        if self.folds and not 2 <= self.folds <= _MOST_FOLDS:
            raise ConfigError(f"folds is {self.folds}; give 2 to {_MOST_FOLDS}, or 0 for none")
        if not 1 <= self.groups <= _MOST_GROUPS:
            raise ConfigError(f"groups is {self.groups}; give 1 to {_MOST_GROUPS}")
        if not self.patience >= 0:
            raise ConfigError(f"patience is {self.patience:g}; give seconds of at least 0")
        self.make_loss()

    @property
    def lambdas(self) -> tuple[float, ...]:
        """All values of λ, the largest first: each is a good start for the next."""
        return tuple(sorted({self.lam, *self.path}, reverse=True))

    @property
    def smallest_lam(self) -> float:
        """The smallest λ that any problem of the run has, which a fold makes smaller yet."""
        return min(self.lambdas) * (0.25 if self.folds else 1.0)

    @property
    def hands_over(self) -> bool:
        """Whether HyFDCA goes on when a party stays away; with groups nobody has all that takes."""
        return self.when_missing == "hyfdca" and self.groups == 1

    def read_options(self, kind: type[Options]) -> Options:
        """The options as the algorithm knows them."""
        try:
            return msgspec.convert(self.options, kind)
        except msgspec.ValidationError as error:
            known = ", ".join(field.name for field in msgspec.structs.fields(kind)) or "none"
            raise ConfigError(
                f"the options of solver '{self.solver}' do not fit ({error}); it knows {known}"
            ) from None

    def make_loss(self) -> Loss:
        return get_loss(self.loss, **self.loss_parameters)

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Settings:
        return msgspec.json.decode(text, type=cls)
