"""D3CA: dual coordinate ascent on tiles of both rows and columns (Nathan and Klabjan 2016).

Each party runs SDCA on its own tile: with z_k = x_{k,i}ᵀw_k from its own columns only, and a share
1/h_i of the loss, where h_i parties propose something for sample i. The proposals for a sample
are averaged, and v = Xᵀα is made of the averages. Every party so acts as if the others' columns
gave the same z as its own: α does not end where the dual objective is largest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.solvers.algorithm_entry import Algorithm
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.coordinator import RoundCoordinator
from weft.solvers.rounds.coordinator_totals_and_bound import Step
from weft.solvers.rounds.dual_party import DualParty
from weft.solvers.rounds.messages import LOCAL, MERGE, RoundReply, RoundRequest, StepPhase
from weft.solvers.rounds.party import Handler
from weft.solvers.run_settings import Settings


class D3caOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """D3CA: by what the sum of all proposals for a sample is divided.

    Attributes
    ----------
    average
        ``parties``: by the number of parties, as in the paper, whose P × Q tiles are the parties;
        where nobody shares a sample this is CoCoA. ``holders``: by how many parties propose
        something for the sample, as if those who hold other samples did not move. That is faster
        where it converges.
    """

    average: Literal["parties", "holders"] = "parties"


class D3caCoordinator(RoundCoordinator):
    """v down and proposals up; their sums down and changes of v up."""

    steps = (
        Step(LOCAL, gets=("v",), gives=("delta",)),
        Step(MERGE, gets=("delta",), gives=("v",)),
    )


class D3caParty(DualParty):
    """Proposals from its own tile, and the α that all holders of a sample agree on.

    Proposals are changes of a running total, which so is α itself, to the bit the same at every
    holder.
    """

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        view = self.view
        self._proposals = self.join("delta", self.bounds.alpha)
        #: α as the totals have it, or as it will be, at rows that nobody else holds. Guards may
        #: have held its last change back.
        self._target: Floats = np.zeros_like(self.alpha)
        self._computing = np.maximum(view.computing, 1)[view.row_cohort].astype(np.float64)
        holders = settings.read_options(D3caOptions).average == "holders"
        parties = np.full(view.n_rows, float(view.n_parties))
        self._share = 1.0 / (self._computing if holders else parties)[:, None]

    @property
    def reach(self) -> float:
        # Nothing keeps D from falling, so that only the domain of α bounds z.
        return self.bounds.z

    def variables(self) -> dict[str, NDArray[Any]]:
        return {**super().variables(), "target": self._target}

    def take_variables(self, state: Mapping[str, NDArray[Any]]) -> None:
        super().take_variables(state)
        self._target = state["target"].copy()

    def handlers(self) -> dict[StepPhase, Handler]:
        return {LOCAL: self._on_local, MERGE: self._on_merge}

    def _on_local(self, message: RoundRequest) -> RoundReply:
        """v ↓, this party's part of the mean change of α ↑."""
        self.w = self.weights_of(message)
        order = self.drawn(message.iteration)
        new = self.ascended(order, self.w, 1.0, self._computing)
        change = (new - self.alpha) * self._share
        shared = self.view.n_shared_rows
        self._target[shared:] = (self.alpha + change)[shared:]
        reply = RoundReply()
        if shared:
            # Where guards held α back, the one who counts the sample brings the total back to it.
            change += np.where(self.view.counted_rows[:, None], self.alpha - self._target, 0.0)
            reply.delta = self._proposals.add(change[:shared], message.delta_pads)
        return reply

    def _on_merge(self, message: RoundRequest) -> RoundReply:
        """α ↓, the change of this party's part of v ↑."""
        self._target = self.opened("delta", message.delta, self._target)
        return self.moved(self._target.copy(), message)


D3CA = Algorithm(
    "d3ca",
    D3caCoordinator,
    D3caParty,
    "dual coordinate ascent on every tile, proposals averaged by sample",
    options=D3caOptions,
    reads=("iic", "certify_every"),
    everyone=True,
    guarantee="nothing; where no sample is shared it is CoCoA",
    trips="2",
    reference="Nathan and Klabjan 2016",
    coordinator_sees="ciphertexts; totals of losses and norms",
    parties_see="α of their samples, w of their features",
)
