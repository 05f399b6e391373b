"""Gradient descent on columns: vertical FedSGD, and FedBCD with several steps an exchange.

Label holders learn z of a batch from the sum of all parties' parts, the others the slopes of the
loss; every party then moves the weights of its own columns, which never travel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Slots
from weft.errors import ConfigError
from weft.protocol import Request
from weft.protocol.declared_message_fields import malformed
from weft.solvers.algorithm_entry import Algorithm, bounds
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.bound_party_loss_curvature import mean_curvature, sample_curvature
from weft.solvers.rounds.coordinator import RoundCoordinator
from weft.solvers.rounds.coordinator_totals_and_bound import RoundsState, Step
from weft.solvers.rounds.messages import LOCAL, MERGE, Model, RoundReply, RoundRequest, StepPhase
from weft.solvers.rounds.party import Handler, RoundParty, positive
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants
from weft.solvers.shared_sample_draws import cohort_draws
from weft.sums.party_contribution import Contribution

# ── options ────────────────────────────────────────────────────────────────────────────


class FedsgdOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """FedSGD: one gradient step on every party's columns between two exchanges.

    Attributes
    ----------
    batch
        Samples of an iteration, the same at all parties; None: all of them.
    rate
        How far a step goes; ``auto``: one over a bound on the curvature of what is minimised.
    decay
        ``sqrt``: the rate of iteration t is rate/√t. ``auto``: that for minibatches and for losses
        with kinks, where steps of the same length end beside the optimum.
    """

    batch: int | None = None
    rate: float | Literal["auto"] = "auto"
    decay: Literal["auto", "none", "sqrt"] = "auto"

    def __post_init__(self) -> None:
        if self.batch is not None and self.batch < 1:
            raise ConfigError(f"batch is {self.batch}; give at least 1 sample, or leave it out")
        if self.rate != "auto" and not self.rate > 0:
            raise ConfigError(f"rate is {self.rate:g}; give a number above 0, or 'auto'")

    @property
    def steps(self) -> int:
        """Steps between two exchanges."""
        return 1

    @property
    def pull(self) -> float:
        """μ of the term μ/2 ‖w_k − w_k⁰‖², w_k⁰ being the columns as of the last exchange."""
        return 0.0


class FedbcdOptions(FedsgdOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """FedBCD-p: several steps between two exchanges, all parties at the same time.

    Attributes
    ----------
    local_steps
        The paper's Q.
    mu
        Above 0 this is FedPBCD-p, whose local objective has a term μ/2 ‖w_k − w_k⁰‖² more.
    """

    local_steps: int = 5
    mu: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_steps < 1:
            raise ConfigError(f"local_steps is {self.local_steps}; give at least 1")
        if not self.mu >= 0:
            raise ConfigError(f"mu is {self.mu:g}; give at least 0")

    @property
    def steps(self) -> int:
        return self.local_steps

    @property
    def pull(self) -> float:
        return self.mu


# ── the coordinator ────────────────────────────────────────────────────────────────────


#: Where everyone has all labels, z of a batch comes with the question for that of the next.
_AT_ONCE = Step(LOCAL, gets=("z",), gives=("z",))


class FedsgdCoordinator(RoundCoordinator):
    """z of a batch down to label holders, their slopes to the others, z of the next batch up.

    Slopes are a sum by sample to which one label holder of each sample adds something. Weights
    never travel: every feature has one holder.
    """

    steps = (
        Step(MERGE, gets=("z",), gives=("delta",)),
        Step(LOCAL, gets=("delta",), gives=("z",)),
    )
    windows = ("z", "delta")
    model_of = ()
    sizes = 2

    def find(self, run: RoundsState, largest: list[float]) -> Constants:
        """Powers of two above the curvature of any party's part of a sample, and of the mean."""
        return Constants(sample_curvature=largest[0], party_curvature=largest[1])

    def readers(self, run: RoundsState, kind: str, present: list[str]) -> list[str]:
        """z is for those who have labels of some sample."""
        if kind != "z":
            return present
        return [party for party in present if party in run.holdings.label_parties]

    def ask(
        self,
        run: RoundsState,
        step: Step,
        present: list[str],
        riders: list[Request[Any, Any]],
    ) -> list[str]:
        if run.holdings.labels_everywhere:
            if step is not self.steps[0]:
                return present
            step = _AT_ONCE
        return super().ask(run, step, present, riders)


# ── a party ────────────────────────────────────────────────────────────────────────────


class FedsgdParty(RoundParty):
    """w_k ← w_k − η (λ w_k − X_kᵀ u/B) on a batch of B samples, with u = −l'(z).

    Batches are drawn from the seed, cohort by cohort, so that all parties have the same. In
    several steps between two exchanges (FedBCD) the other parties' part of z stays as it was, and
    so does u of samples whose labels are elsewhere. Sums over samples are all that others see:
    there are no feature sums, and so nothing for ``min_batch`` to hold back.
    """

    options_kind: ClassVar[type[FedsgdOptions]] = FedsgdOptions

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        self.options = settings.read_options(self.options_kind)
        view = self.view
        self._shared = view.n_shared_rows > 0
        self._products = self.join("z", self.reach)
        self._slopes = Contribution(
            "delta",
            view.n_shared_rows,
            self.classes,
            self.bounds.alpha,
            self.cipher,
            windows=True,
        )
        self.sums["delta"] = self._slopes
        self._labelled = view.labelled[view.row_cohort][:, None]
        #: z of the batch, as far as labels are here.
        self._z: Floats = np.zeros((0, self.classes))
        self._rate = 0.0

    def handlers(self) -> dict[StepPhase, Handler]:
        return {MERGE: self._on_merge, LOCAL: self._on_local}

    def size(self) -> Floats:
        one = sample_curvature(self.table, self.loss)
        mean = mean_curvature(self.table, self.loss, self.view.n_samples, self.draws(0))
        return np.array([one, mean])

    def begin(self, found: Constants) -> None:
        """The rate of the first iteration.

        In Q steps of 1/Q the length, nobody goes further than in one step of that length, for
        which the curvature along all columns is what counts.
        """
        options = self.options
        if options.rate != "auto":
            self._rate = options.rate
            return
        if self._whole:
            largest = positive(found.party_curvature, "party_curvature")
        else:
            largest = positive(found.sample_curvature, "sample_curvature")
        curvature = self.view.n_parties * largest + self.settings.lam + options.pull
        self._rate = 1.0 / (options.steps * curvature)

    def point(self, totals: Model) -> Floats:
        return self.w

    def variables(self) -> dict[str, NDArray[Any]]:
        return {"w": self.w, "z": self._z}

    def take_variables(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.w, self._z = state["w"].copy(), state["z"].copy()

    # ── batches ───────────────────────────────────────────────────────────────────────────

    @property
    def _size(self) -> int:
        """How many samples a batch shall have."""
        samples = self.view.n_samples
        return samples if self.options.batch is None else min(self.options.batch, samples)

    @property
    def _whole(self) -> bool:
        """Whether an iteration has all samples."""
        return self._size == self.view.n_samples

    @cached_property
    def _cohorts(self) -> NDArray[np.int64]:
        """Per cohort: number, first row, size, and how many of a batch are drawn from it."""
        view = self.view
        drawn = -(-self._size * view.sizes // view.n_samples)
        return np.column_stack([view.cohort, view.cohort_start[:-1], view.sizes, drawn])

    @cached_property
    def _shares(self) -> Floats:
        """Per row, what it weighs in the mean over a batch, which is unbiased."""
        sizes, drawn = self._cohorts[:, 2], self._cohorts[:, 3]
        share: Floats = sizes / (np.maximum(drawn, 1) * self.view.n_samples)
        return share[self.view.row_cohort][:, None]

    def _batch(self, iteration: int) -> Slots | None:
        """The rows of an iteration; None: all."""
        if self._whole:
            return None
        rows: Slots = np.sort(cohort_draws(self.settings.seed, iteration, self._cohorts))
        return rows

    # ── phases ────────────────────────────────────────────────────────────────────────────

    def _on_merge(self, message: RoundRequest) -> RoundReply:
        """z ↓, slopes of the samples that this party speaks for ↑."""
        batch = self._batch(message.iteration)
        if self._shared and self._labelled.any():
            self._z = self._open_z(message, batch)
        u = np.zeros((len(_of(self._labelled, batch)), self.classes))
        mine = _of(self.view.counted_rows, batch)
        if mine.any():
            u[mine] = self.loss.u(self._z[mine], _of(self.labels, batch)[mine])
        reply = RoundReply()
        reply.delta = self._slopes.increment(u, message.delta_pads, batch)
        reply.delta_slots = batch
        return reply

    def _on_local(self, message: RoundRequest) -> RoundReply:
        """z or slopes ↓, z of the next batch ↑."""
        batch = self._batch(message.iteration)
        told: Floats | None = None
        if message.delta is not None:
            told = self._slopes.open(message.delta, self.classes, batch)
        elif not _of(self._labelled, batch).all():
            raise malformed("delta", "is missing, and labels of some samples are")
        elif self._shared:
            self._z = self._open_z(message, batch)
        else:
            self._z = self.table.products(batch, self.w)
        self.w = self._steps(batch, told, message.iteration)
        self.check_size(self.w)
        reply = RoundReply()
        if self._shared:
            following = self._batch(message.iteration + 1)
            z = self.table.products(following, self.w)
            reply.z = self._products.increment(z, message.z_pads, following)
            reply.z_slots = following
        return reply

    def _open_z(self, message: RoundRequest, batch: Slots | None) -> Floats:
        """z of the batch. In the first iteration nobody has named one, and all weights are 0."""
        if message.iteration == 1:
            return np.zeros((len(_of(self.labels, batch)), self.classes))
        return self._products.open(message.z, self.classes, batch)

    def _steps(self, batch: Slots | None, told: Floats | None, iteration: int) -> Floats:
        """Gradient steps from the columns as they were exchanged."""
        start, w = self.w, self.w
        options, lam = self.options, self.settings.lam
        labels, shares = _of(self.labels, batch), _of(self._shares, batch)
        labelled = _of(self._labelled, batch)
        rate = self._rate / math.sqrt(iteration) if self._decays else self._rate
        u = told
        for step in range(options.steps):
            if labelled.any():
                z = self._z + self.table.products(batch, w - start) if step else self._z
                own = self.loss.u(z, labels)
                u = own if told is None else np.where(labelled, own, told)
            assert u is not None
            down = np.zeros_like(w)
            self.table.accumulate(batch, u * shares, down)
            w = w - rate * (lam * w - down + options.pull * (w - start))
        return w

    @property
    def _decays(self) -> bool:
        if self.options.decay != "auto":
            return self.options.decay == "sqrt"
        return not self._whole or math.isinf(self.loss.smoothness)


def _of(values: Any, batch: Slots | None) -> Any:
    """The rows of a batch."""
    return values if batch is None else values[batch]


# ── the methods ────────────────────────────────────────────────────────────────────────


class FedbcdParty(FedsgdParty):
    options_kind = FedbcdOptions


#: Shortest and longest step that is tried.
_RATE = (1e-5, 25.0)

_method = partial(
    Algorithm,
    coordinator=FedsgdCoordinator,
    reads=("certify_every",),
    cut="columns",
    everyone=True,
    sample_sums=1,
    trips="1; 2 with holders without labels",
    coordinator_sees="ciphertexts; totals of losses and norms; which samples are drawn",
    parties_see="z of the samples drawn at label holders, slopes of the loss at the others",
)

FEDSGD = _method(
    "fedsgd",
    party=FedsgdParty,
    about="stochastic gradient descent on columns, one step between two exchanges",
    options=FedsgdOptions,
    tuned=bounds(rate=_RATE),
    guarantee="the optimum for smooth losses with all samples in a batch; else near it",
    reference="Liu et al. 2022 (FedBCD), the case of one local step",
)

FEDBCD = _method(
    "fedbcd",
    party=FedbcdParty,
    about="block coordinate descent on columns: several steps between two exchanges",
    options=FedbcdOptions,
    tuned=bounds(rate=_RATE, local_steps=(1.0, 50.0)),
    guarantee="the optimum for smooth losses with all samples in a batch and small steps",
    reference="Liu et al. 2022 (FedBCD-p; with mu > 0, FedPBCD-p)",
)
