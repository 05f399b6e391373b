"""Local steps of gradient descent, averaged by feature: FedAvg, FedProx and linear HyFEM.

Every party takes steps on its own tile from the common w₀; the new w₀ is the mean of what they come
to, feature by feature, over those who take part. FedProx pulls local steps towards w₀. HyFEM is
FedProx where features are known, so that its matching of neurons is the identity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.errors import ConfigError, ProtocolError
from weft.guards.keep_apart_from_other_sent_duals import SentAside
from weft.guards.min_batch_between_sums import MinBatch
from weft.losses.compiled_sample_losses import formula_of
from weft.protocol.declared_message_fields import malformed
from weft.solvers.algorithm_entry import Algorithm, Range
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.bound_party_loss_curvature import mean_curvature, sample_curvature
from weft.solvers.rounds.coordinator import RoundCoordinator
from weft.solvers.rounds.coordinator_totals_and_bound import RoundsState, Step
from weft.solvers.rounds.messages import LOCAL, Model, RoundReply, RoundRequest, StepPhase
from weft.solvers.rounds.party import Handler, RoundParty, positive
from weft.solvers.rounds.sequential_kernels import sample_steps, shared_change, whole_turn
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants

# ── options ───────────────────────────────────────────────────────────────────────────────


class AveragingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """FedAvg: local steps with rate a/(b + √t) in iteration t, then the mean by feature.

    Attributes
    ----------
    a, b
        The rate's constants; without ``a``, one over the largest curvature of any sample's loss.
    gradient
        ``sample``: ⌈iic · N / parties⌉ steps, each on one sample drawn at random. ``full``: as many
        steps as ``steps`` says, each on the gradient of all of the party's samples, with the
        constant rate ``a`` (by default one over the largest curvature of any party's mean loss).
    steps
        Local steps of ``full``.
    average
        Whether the parties that took part weigh the same in a mean, or by their samples; by default
        as ``weigh`` says of the objective.
    """

    a: float | None = None
    b: float = 1.0
    gradient: Literal["sample", "full"] = "sample"
    steps: int = 1
    average: Literal["equal", "samples"] | None = None

    def __post_init__(self) -> None:
        rate = 1.0 if self.a is None else self.a
        if not (0 < rate < math.inf and 0 <= self.b < math.inf):
            raise ConfigError(
                f"the rate a/(b + √t) has a = {self.a} and b = {self.b:g}; give a above 0 and b of "
                "at least 0"
            )
        if self.steps < 1:
            raise ConfigError(f"steps is {self.steps}; give at least 1 local step")

    @property
    def pull(self) -> float:
        """μ of the term μ/2 ‖w_k − w₀‖² in the local objective."""
        return 0.0


class ProxOptions(AveragingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """FedProx: the local objective has a term μ/2 ‖w_k − w₀‖² more.

    Attributes
    ----------
    mu
        μ: how strongly local steps are pulled towards the mean that they began with.
    """

    mu: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.mu < math.inf:
            raise ConfigError(f"mu is {self.mu:g}; give at least 0")

    @property
    def pull(self) -> float:
        return self.mu


class HyfemOptions(ProxOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Linear HyFEM: features are known, so that matching is the identity.

    Attributes
    ----------
    variant
        ``prox`` keeps the term μ/2 ‖θ_k − P_kθ₀‖² of (8) in the 2024 text, ``avg`` leaves it out
        as (9) of the 2020 text does.
    """

    variant: Literal["prox", "avg"] = "prox"

    @property
    def pull(self) -> float:
        return self.mu if self.variant == "prox" else 0.0


# ── the coordinator ────────────────────────────────────────────────────────────────────


class FedavgCoordinator(RoundCoordinator):
    """w₀ down, each party's share of the change up: w₀ + Σ_k s_k (w_k − w₀) = Σ_k s_k w_k.

    The shares of those who take part and hold a feature add up to one. Changes go onto a running
    total, so that w₀ of a feature stays where it is while none of its holders takes part. Whoever
    falls silent in an iteration counts as one who stayed at w₀.
    """

    steps = (Step(LOCAL, gets=("v",), gives=("v",)),)
    everyone = False
    sizes = 2
    options: ClassVar[type[AveragingOptions]] = AveragingOptions

    def find(self, run: RoundsState, largest: list[float]) -> Constants:
        """Powers of two above the curvature of any sample's loss, and of any party's mean loss."""
        return Constants(sample_curvature=largest[0], party_curvature=largest[1])

    def tell(self, run: RoundsState, step: Step, messages: Mapping[str, RoundRequest]) -> None:
        """How much all who take part weigh, for each of a party's shared cohorts of features."""
        holdings, layout = run.holdings, run.column_layout
        default = "equal" if run.settings.weigh == "parties" else "samples"
        equal = (run.settings.read_options(self.options).average or default) == "equal"
        weights = np.ones(len(holdings.parties), np.int64) if equal else _samples(run)
        total = np.zeros(len(holdings.columns.sizes), np.int64)
        in_group = np.zeros(len(layout.cohorts), np.int64)
        for party in messages:
            in_group[layout.group[party]] += weights[holdings.index[party]]
        for cohorts, weight in zip(layout.cohorts, in_group.tolist(), strict=True):
            total[cohorts] += weight
        # Parties with the same features get the same sums.
        sums = [total[cohorts] for cohorts in layout.cohorts]
        mine = weights.tolist()
        for party, message in messages.items():
            message.weight = mine[holdings.index[party]]
            message.weights = sums[layout.group[party]]


def _samples(run: RoundsState) -> Ints:
    """Per party, how many samples it has."""
    rows, parties = run.holdings.rows, range(len(run.holdings.parties))
    return np.array([rows.sizes[rows.cohorts[k]].sum() for k in parties], np.int64)


# ── a party ────────────────────────────────────────────────────────────────────────────


class FedavgParty(RoundParty):
    """Minimises λ/2 ‖w_k‖² + its mean loss, as if its own columns were all there are.

    A party's tile gives z_k = X_k w_k, which is not z where others hold columns of the same
    samples: what it minimises has another minimum than the problem, and so has the mean.
    """

    options_kind: ClassVar[type[AveragingOptions]] = AveragingOptions

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        self.options = settings.read_options(self.options_kind)
        self._own = np.flatnonzero(self.view.trained_rows).astype(np.int32)
        self._total = self.join("v", self.longest)
        self._rate = 0.0
        count = math.ceil(settings.iic * self.view.n_samples / self.view.n_parties)
        self._steps = count if self.options.gradient == "sample" else self.options.steps
        self._cohorts = len(self.view.shared_columns) - 1
        self._cohort = self.view.column_cohort[: self.view.n_shared_columns]
        self._held = 0
        #: By how much of each row w moved when it was last told.
        self._told: Floats = np.zeros((self.view.n_rows if self.guarded else 0, self.classes))
        exposed = self.view.exposed[self.view.row_cohort]
        atom = np.where(exposed, self.view.row_cohort, -1).astype(np.int64)
        self._guard = MinBatch(atom, self.view.min_batch) if self.guarded else None
        if self._guard is not None:
            # Every party takes steps of its own, also on samples that others hold.
            self.aside = SentAside(self._guard, 0)
        self._full_steps = self.options.gradient == "full"
        #: This party's share of the last change, of shared columns.
        self.change = np.empty((self.view.n_shared_columns, self.classes))
        self._pulls = (settings.lam, self.options.pull)
        self._moved = np.zeros_like(self.w)
        if not self._full_steps:
            cells = self.table.compressed()
            rows = (cells.indptr, cells.indices, cells.data, self._own, context.labels)
            self._fixed = (*rows, *formula_of(self.loss), settings.seed)
            # Without a guard nobody looks at what was used.
            places = (self._cohort, np.zeros_like(context.labels), self._moved, self.change)
            steps = (self.view.party, self._steps)
            self._always = (*self._fixed, *steps, *self._pulls, *places)

    def handlers(self) -> dict[StepPhase, Handler]:
        return {LOCAL: self._on_local}

    def size(self) -> Floats:
        """The largest curvature of one sample's loss, and that of the mean loss, here."""
        one = sample_curvature(self.table, self.loss, self._own)
        if not self._full_steps:
            return np.array([one, one])
        count = len(self._own)
        mean = mean_curvature(self.table, self.loss, count, self.draws(0), self._own)
        return np.array([one, mean])

    def begin(self, found: Constants) -> None:
        if self._full_steps:
            curvature = positive(found.party_curvature, "party_curvature")
        else:
            curvature = positive(found.sample_curvature, "sample_curvature")
        own = self.settings.lam + self.options.pull
        self._rate = self.options.a or 1.0 / (curvature + own)

    def point(self, totals: Model) -> Floats:
        return self.opened("v", totals.v, self.w)

    def shown(self) -> Floats:
        return self._told

    def variables(self) -> dict[str, NDArray[Any]]:
        return {"w": self.w, "told": self._told}

    def take_variables(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.w, self._told = state["w"].copy(), state["told"]

    def _on_local(self, message: RoundRequest) -> RoundReply:
        """w₀ ↓, this party's share of w_k − w₀ ↑."""
        start = self.point(message)
        weight, weights = message.weight, message.weights
        if weight is None or weights is None or weights.shape != (self._cohorts,):
            raise _malformed_weights()
        mean = (weight, weights, *self._limits(weight))
        change, shared = self.change, len(self.change)
        if self._guard is None and not self._full_steps:
            rate = self._rate / (self.options.b + math.sqrt(self.iteration))
            moved = self._moved
            largest = whole_turn(*self._always, start, self.iteration, rate, *mean)
        else:
            moved = self._full(start) if self._full_steps else self._samples(start)
            largest = shared_change(start, moved, *mean, self._cohort, change)
        if largest < 0:
            raise _malformed_weights()
        if not largest < self.longest:
            self.check_size(moved)
        self.w = start
        if shared < len(start):
            self.w[shared:] = moved[shared:]
        reply = RoundReply()
        reply.held, self._held = self._held, 0
        if shared:
            reply.v = self._total.add(change, message.v_pads)
        return reply

    def _limits(self, weight: int) -> tuple[int, int]:
        """Between what the weights of a mean must lie in which this party weighs so much."""
        rows, parties = self.view.n_rows, self.view.n_parties
        if weight == 1 and rows > 1:
            return self.contributors, parties
        if weight != rows:
            raise malformed("weight", "is neither one nor its samples")
        return rows, parties * self.view.n_samples

    def remembered(self) -> dict[str, NDArray[Any]]:
        # Both are replaced in every iteration, never changed.
        return {"w": self.w, "told": self._told}

    def _full(self, start: Floats) -> Floats:
        """Steps on the mean loss of all own samples."""
        w, rows = start.copy(), self._own
        own, pull = self.settings.lam, self.options.pull
        used = np.zeros_like(self.labels)
        for _ in range(self._steps):
            u = self.loss.u(self.table.products(rows, w), self.labels[rows])
            used[rows] += u
            slope = own * w + pull * (w - start)
            down = np.zeros_like(w)
            self.table.accumulate(rows, u / max(len(rows), 1), down)
            w = w - self._rate * (slope - down)
        return self._kept(w, start, used)

    def _samples(self, start: Floats) -> Floats:
        """Steps on one sample each."""
        w = start.copy()
        used = np.zeros_like(self.labels)
        rate = self._rate / (self.options.b + math.sqrt(self.iteration))
        party = (self.view.party, self._steps)
        sample_steps(*self._fixed, self.iteration, *party, rate, *self._pulls, w, used)
        return self._kept(w, start, used)

    def _kept(self, w: Floats, start: Floats, used: Floats) -> Floats:
        """w, but for classes in which the sum, or its difference to the last one, would show a
        few samples only: there this party stays at w₀ for once.

        ``used`` says how much of each row w has moved by.
        """
        if self._guard is None:
            return w
        told = used.copy()
        self._guard.hold_back(told, self._told)
        if self.aside is not None:
            self.aside.hold_apart(told, self._told)
        held = (told != used).any(axis=0)
        w[:, held] = start[:, held]
        used[:, held] = self._told[:, held]
        self._told = used
        if self.aside is not None:
            self.aside.pass_by(used)
        self._held += int(held.sum())
        return w


def _malformed_weights() -> ProtocolError:
    return malformed("weights", "are no sums of weights of as many parties as there must be")


# ── the methods ────────────────────────────────────────────────────────────────────────


class FedproxCoordinator(FedavgCoordinator):
    options = ProxOptions


class FedproxParty(FedavgParty):
    options_kind = ProxOptions


class HyfemCoordinator(FedavgCoordinator):
    options = HyfemOptions


class HyfemParty(FedavgParty):
    options_kind = HyfemOptions


#: Bounds of section 7.3 of Overman, Blum and Klabjan; the rate is a/(b + √t).
_RATE: dict[str, Range] = {"a": (1e-5, 25.0), "b": (1e-5, 25.0)}
_PULL: Range = (1e-2, 1e4)


def _tuned(kind: type[AveragingOptions], settings: Settings, least_iic: float) -> dict[str, Range]:
    options = settings.read_options(kind)
    full = options.gradient == "full"
    found = {"a": _RATE["a"], "steps": (1.0, 100.0)} if full else {"iic": (least_iic, 5.0), **_RATE}
    return {**found, "mu": _PULL} if options.pull else found


_method = partial(
    Algorithm,
    reads=("iic", "certify_every"),
    trips="1",
    coordinator_sees="ciphertexts; totals of losses and norms",
    parties_see="w of their features, as a mean over all who hold them and take part",
)

FEDAVG = _method(
    "fedavg",
    FedavgCoordinator,
    FedavgParty,
    "local gradient steps on every tile, averaged by feature",
    options=AveragingOptions,
    tuned=partial(_tuned, AveragingOptions),
    weighs=True,
    guarantee="nothing on hybrid data; on rows, gradient = 'full' with one step is gradient "
    "descent",
    reference="McMahan et al. 2017; for hybrid data as in Overman, Blum and Klabjan 2022",
)

FEDPROX = _method(
    "fedprox",
    FedproxCoordinator,
    FedproxParty,
    "FedAvg whose local steps are pulled towards the mean",
    options=ProxOptions,
    tuned=partial(_tuned, ProxOptions),
    weighs=True,
    guarantee="nothing; at a fixed μ it ends beside the optimum",
    reference="Li et al. 2020 (Federated optimization in heterogeneous networks)",
)

HYFEM = _method(
    "hyfem",
    HyfemCoordinator,
    HyfemParty,
    "HyFEM for linear models: known features need no matching",
    options=HyfemOptions,
    tuned=partial(_tuned, HyfemOptions),
    guarantee="nothing: parties and server solve another problem",
    reference="Zhang et al. 2020 and 2024; linear as in Overman, Blum and Klabjan 2022",
)
