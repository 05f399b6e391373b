"""FedAvg and its kin, a party's half: local steps on its own tile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.errors import ProtocolError
from weft.guards.min_batch import MinBatch
from weft.losses.compiled import formula_of
from weft.protocol import Message
from weft.protocol.message import array, integer
from weft.solvers.fedavg_kernels import sample_steps, shared_change, whole_turn
from weft.solvers.fedavg_options import AveragingOptions, HyfemOptions, ProxOptions
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.curvature import mean_curvature, sample_curvature
from weft.solvers.rounds.party import Handler, RoundParty, positive
from weft.solvers.settings import Settings

Floats = NDArray[np.float64]
Slots = NDArray[np.int32]


class FedavgParty(RoundParty):
    """Minimises λ/2 ‖w_k‖² + its mean loss, as if its own columns were all there are.

    A party's tile gives z_k = X_k w_k, which is not z where others hold columns of the same
    samples: what it minimises has another minimum than the problem, and so has the mean.
    """

    options_kind: ClassVar[type[AveragingOptions]] = AveragingOptions

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        self.options = settings.read_options(self.options_kind)
        self._own = np.flatnonzero(self.view.labelled[self.view.row_cohort]).astype(np.int32)
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

    def handlers(self) -> dict[str, Handler]:
        return {"local": self._on_local}

    def size(self) -> Floats:
        """The largest curvature of one sample's loss, and that of the mean loss, here."""
        one = sample_curvature(self.table, self.loss, self._own)
        if not self._full_steps:
            return np.array([one, one])
        count = len(self._own)
        mean = mean_curvature(self.table, self.loss, count, self.draws(0), self._own)
        return np.array([one, mean])

    def begin(self, found: Message) -> None:
        full = self.options.gradient == "full"
        curvature = positive(found, "party curvature" if full else "sample curvature")
        own = self.settings.lam + self.options.pull
        self._rate = self.options.a or 1.0 / (curvature + own)

    def point(self, message: Message) -> Floats:
        return self.opened("v", message, self.w)

    def variables(self) -> dict[str, NDArray[Any]]:
        return {"w": self.w, "told": self._told}

    def take_variables(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.w, self._told = state["w"].copy(), state["told"]

    def _on_local(self, message: Message) -> Message:
        """w₀ ↓, this party's share of w_k − w₀ ↑."""
        start = self.point(message)
        weight, weights = integer(message, "weight"), array(message, "weights")
        if weights.shape != (self._cohorts,) or weights.dtype != np.int64:
            raise _malformed()
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
            raise _malformed()
        if not largest < self.longest:
            self.check_size(moved)
        self.w = start
        if shared < len(start):
            self.w[shared:] = moved[shared:]
        reply: Message = {}
        if self._held:
            reply["held"], self._held = self._held, 0
        if shared:
            reply["v"] = self._total.add(change, message)
        return reply

    def _limits(self, weight: int) -> tuple[int, int]:
        """Between what the weights of a mean must lie in which this party weighs so much."""
        rows, parties = self.view.n_rows, self.view.n_parties
        if weight == 1 and rows > 1:
            return self.contributors, parties
        if weight != rows:
            raise ProtocolError("a message is malformed: 'weight' is neither one nor its samples")
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
        held = (told != used).any(axis=0)
        w[:, held] = start[:, held]
        used[:, held] = self._told[:, held]
        self._told = used
        self._held += int(held.sum())
        return w


class FedproxParty(FedavgParty):
    options_kind = ProxOptions


class HyfemParty(FedavgParty):
    options_kind = HyfemOptions


def _malformed() -> ProtocolError:
    return ProtocolError(
        "a message is malformed: 'weights' are no sums of weights of as many parties as there must "
        "be"
    )
