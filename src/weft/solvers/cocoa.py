"""CoCoA and CoCoA+ on rows, and with one party SDCA.

Each party runs SDCA on its own samples, from the common w, as if the others stayed. CoCoA then
takes the mean of what all propose: a K-th of every party's change. CoCoA+ takes the sum, which is
safe because each party has counted its own change K times over (σ' = K).
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np

from weft.solvers.algorithm_entry import Algorithm
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.coordinator import RoundCoordinator
from weft.solvers.rounds.coordinator_totals_and_bound import Step
from weft.solvers.rounds.dual_party import DualParty
from weft.solvers.rounds.messages import LOCAL, RoundReply, RoundRequest, StepPhase
from weft.solvers.rounds.party import Handler
from weft.solvers.run_settings import Settings


class CocoaCoordinator(RoundCoordinator):
    """v down, changes of every party's part of it up."""

    steps = (Step(LOCAL, gets=("v",), gives=("v",)),)


class CocoaParty(DualParty):
    """Jaggi et al. 2014, Algorithm 1 with LocalSDCA: σ' = 1, then a mean."""

    adds: ClassVar[bool] = False

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        self._alone = np.ones(self.view.n_rows)

    def handlers(self) -> dict[StepPhase, Handler]:
        return {LOCAL: self._on_local}

    def _on_local(self, message: RoundRequest) -> RoundReply:
        """v ↓, the change of this party's part of it ↑."""
        self.w = self.weights_of(message)
        parties = self.view.n_parties
        order = self.drawn(message.iteration)
        new = self.ascended(order, self.w, parties if self.adds else 1, self._alone)
        if not self.adds and parties > 1:
            new = self.alpha + (new - self.alpha) / parties
        return self.moved(new, message)


class CocoaPlusParty(CocoaParty):
    """Ma et al. 2015, Algorithm 1 with γ = 1 and σ' = K."""

    adds = True


_method = partial(
    Algorithm,
    coordinator=CocoaCoordinator,
    reads=("iic", "certify_every"),
    everyone=True,
    guarantee="the optimum, certified",
    trips="1",
    coordinator_sees="ciphertexts; totals of losses and norms",
    parties_see="w of all features",
)

COCOA = _method(
    "cocoa",
    party=CocoaParty,
    about="dual coordinate ascent on every party's rows, changes averaged",
    cut="rows",
    weighs=True,
    reference="Jaggi et al. 2014",
)

COCOA_PLUS = _method(
    "cocoa+",
    party=CocoaPlusParty,
    about="dual coordinate ascent on every party's rows, changes added",
    cut="rows",
    weighs=True,
    reference="Ma et al. 2015, with γ = 1 and σ' = parties",
)

SDCA = _method(
    "sdca",
    party=CocoaParty,
    about="dual coordinate ascent on the whole table, which one party has",
    cut="whole",
    reference="Shalev-Shwartz and Zhang 2013",
)
