"""Vertical FedSGD and FedBCD, a party's half: gradient steps on its own columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.protocol import Message
from weft.protocol.message import integer, number
from weft.solvers.fedsgd_options import FedbcdOptions, FedsgdOptions
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.curvature import mean_curvature, sample_curvature
from weft.solvers.rounds.party import Handler, RoundParty
from weft.solvers.sampling import cohort_draws
from weft.solvers.settings import Settings
from weft.sums.contribution import Contribution

Floats = NDArray[np.float64]
Slots = NDArray[np.int32]


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

    def handlers(self) -> dict[str, Handler]:
        return {"merge": self._on_merge, "local": self._on_local}

    def size(self) -> Floats:
        one = sample_curvature(self.table, self.loss)
        mean = mean_curvature(self.table, self.loss, self.view.n_samples, self.draws(0))
        return np.array([one, mean])

    def begin(self, found: Message) -> None:
        """The rate of the first iteration.

        In Q steps of 1/Q the length, nobody goes further than in one step of that length, for
        which the curvature along all columns is what counts.
        """
        options = self.options
        if options.rate != "auto":
            self._rate = options.rate
            return
        largest = number(found, "party curvature" if self._whole else "sample curvature")
        curvature = self.view.n_parties * largest + self.settings.lam + options.pull
        self._rate = 1.0 / (options.steps * curvature)

    def point(self, message: Message) -> Floats:
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

    def _on_merge(self, message: Message) -> Message:
        """z ↓, slopes of the samples that this party speaks for ↑."""
        iteration = integer(message, "iteration")
        batch = self._batch(iteration)
        if "z" in message:
            self._z = self._open_z(message, batch)
        u = np.zeros((len(_of(self._labelled, batch)), self.classes))
        mine = _of(self.view.counted_rows, batch)
        if mine.any():
            u[mine] = self.loss.u(self._z[mine], _of(self.labels, batch)[mine])
        return self._give(self._slopes, u, batch, message)

    def _on_local(self, message: Message) -> Message:
        """z or slopes ↓, z of the next batch ↑."""
        iteration = integer(message, "iteration")
        batch = self._batch(iteration)
        told: Floats | None = None
        if "delta" in message:
            told = self._slopes.open(message["delta"], self.classes, batch)
        elif self._shared:
            self._z = self._open_z(message, batch)
        else:
            self._z = self.table.products(batch, self.w)
        self.w = self._steps(batch, told, iteration)
        self.check_size(self.w)
        following = self._batch(iteration + 1)
        if not self._shared:
            return {}
        z = self.table.products(following, self.w)
        return self._give(self._products, z, following, message)

    def _open_z(self, message: Message, batch: Slots | None) -> Floats:
        """z of the batch. In the first iteration nobody has named one, and all weights are 0."""
        if integer(message, "iteration") == 1:
            return np.zeros((len(_of(self.labels, batch)), self.classes))
        return self._products.open(message.get("z"), self.classes, batch)

    def _give(
        self, sum_: Contribution, values: Floats, batch: Slots | None, message: Message
    ) -> Message:
        reply: Message = {sum_.kind: sum_.increment(values, message, batch)}
        if batch is not None:
            reply[f"{sum_.kind}.slots"] = batch
        return reply

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


class FedbcdParty(FedsgdParty):
    options_kind = FedbcdOptions
