"""A party with dual variables of its own: α, its feature sums, and local ascent on them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Slots
from weft.guards.keep_apart_from_other_sent_duals import SentAside
from weft.guards.min_batch_between_sums import MinBatch
from weft.losses.compiled_sample_losses import formula_of
from weft.solvers.label_classes_for_guards import common_kinds
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.messages import Model, RoundReply, RoundRequest
from weft.solvers.rounds.party import RoundParty
from weft.solvers.rounds.sequential_kernels import ascend
from weft.solvers.run_settings import Settings
from weft.solvers.shared_sample_draws import order_of
from weft.sums.party_contribution import Wire

#: Feature sums are kept incrementally; this often they are summed anew against drift.
RESUM_EVERY = 1000
#: The most of a party's samples that are drawn at once where others see sums of them, as in HyFDCA.
_MOST_DRAWN = 0.7


class DualParty(RoundParty):
    """α of its rows, v = Σ p_i α_i x_i over them, and passes of SDCA with w kept in step.

    v travels, so that w = v/λ comes from the totals and the coordinator never sees α. A frozen
    point keeps the α that belongs to it: that certifies losses with kinks too.
    """

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        view = self.view
        self.alpha: Floats = np.zeros((view.n_rows, self.classes))
        self.v: Floats = np.zeros_like(self.w)
        self._v_sum = self.join("v", self.bounds.v)
        self._frozen = self.alpha
        cells = self.table.compressed()
        self._rows = (cells.indptr, cells.indices, cells.data)
        rows = np.repeat(np.arange(view.n_rows), np.diff(cells.indptr))
        self._norms = np.bincount(rows, cells.data**2, view.n_rows)
        self._formula = formula_of(self.loss)
        self._bounded = math.isfinite(self.loss.lipschitz)
        self._alpha_wire = Wire("alpha", view.n_shared_rows, self.bounds.alpha, self.cipher)
        self._own = np.flatnonzero(view.trained_rows).astype(np.int32)
        guarded = view.guarded_cohort
        kind = common_kinds(view, self.labels, self.loss)
        some = bool((guarded >= 0).any())
        self._guard = MinBatch(guarded, view.min_batch, kind) if some else None
        if self._guard is not None:
            self.aside = SentAside(self._guard, view.n_shared_rows)
        # The tolerance is for shares such as 1/N, whose product with N is one only almost.
        self._steps = math.ceil(settings.iic * view.n_samples / view.n_parties - 1e-9)
        if self._guard is not None:
            self._steps = min(self._steps, max(int(_MOST_DRAWN * len(self._own)), 1))

    def variables(self) -> dict[str, NDArray[Any]]:
        return {"alpha": self.alpha, "v": self.v, "w": self.w}

    def take_variables(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.alpha, self.v, self.w = (state[name].copy() for name in ("alpha", "v", "w"))

    def shown(self) -> Floats:
        return self.alpha

    def point(self, totals: Model) -> Floats:
        """w = v/λ, and from here on the α that goes with it."""
        self._frozen = self.alpha.copy()
        return self.weights_of(totals)

    @property
    def dual_is_shown(self) -> bool:
        return True

    def dual(self, z: Floats) -> Floats:
        return self._frozen

    def weights_of(self, totals: Model) -> Floats:
        """w = v/λ, with the totals of shared features from a message."""
        return self.opened("v", totals.v, self.v) / self.settings.lam

    def drawn(self, iteration: int) -> Slots:
        """⌈iic · N / parties⌉ own samples in a random order: whole passes and a part of one."""
        if not len(self._own):
            return self._own
        count, party = self._steps, self.view.party
        order: Slots = order_of(self.settings.seed, iteration, party, len(self._own), count)
        return self._own[order]

    def ascended(self, order: Slots, start: Floats, sigma: float, holders: Floats) -> Floats:
        """α after steps on these samples, from w = ``start`` and as if others stayed.

        Parameters
        ----------
        sigma
            By how much more than alone a step of this party may count in v: σ' of CoCoA+.
        holders
            Per row, how many parties share its loss.
        """
        alpha, w = self.alpha.copy(), start.copy()
        factor = sigma * self.sample_weight / self.settings.lam
        formula = self._formula
        ascend(self._rows, order, self.labels, self._norms, holders, formula, factor, alpha, w)
        return alpha

    def moved(self, new: Floats, message: RoundRequest) -> RoundReply:
        """Take a new α, as far as guards let it; the reply has this party's part of v."""
        reply = RoundReply()
        if self._guard is not None:
            held = self._guard.hold_back(new, self.alpha)
            if self.aside is not None:
                held |= self.aside.hold_apart(new, self.alpha)
                self.aside.pass_by(new)
            reply.held = int(self.view.counts[self._guard.atoms[held]].sum())
        if not self._bounded:
            self._alpha_wire.check(new)
        self._resum(new, message.iteration)
        self.alpha = new
        shared = self.view.n_shared_columns
        if shared:
            reply.v = self._v_sum.increment(self.v[:shared], message.v_pads)
        return reply

    def _resum(self, new: Floats, iteration: int) -> None:
        """Feature sums of a new α, from the rows that moved unless those are many."""
        moved = np.flatnonzero((new != self.alpha).any(axis=1)).astype(np.int32)
        if 2 * len(moved) > self.view.n_rows or iteration % RESUM_EVERY == 0:
            self.v = np.zeros_like(self.v)
            self.table.accumulate(None, new * self.sample_weight, self.v)
        else:
            change = (new[moved] - self.alpha[moved]) * self.sample_weight
            self.table.accumulate(moved, change, self.v)
