"""FedHybrid, a party's half: its own x_i and λ_i, moved by gradient or by Newton's method."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ProtocolError
from weft.protocol import Message
from weft.protocol.message import integer
from weft.solvers.fedhybrid.coordinator import MOST_HALVINGS
from weft.solvers.fedhybrid.local_function import LocalFunction, sample_weight
from weft.solvers.fedhybrid.options import FedhybridOptions, rule_of
from weft.solvers.fedhybrid.updates import State, gradient_update, newton_update, stand
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.party import Handler, RoundParty, positive
from weft.solvers.settings import Settings
from weft.sums.scalar_sums import pack_scalars

Floats = NDArray[np.float64]


class FedhybridParty(RoundParty):
    """Keeps x_i and λ_i; only x_i − λ_i/μ leaves, in a sum over all parties."""

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        self._draws = context.draws
        self._options = settings.read_options(FedhybridOptions)
        view = self.view
        weight = sample_weight(settings.weigh, view.n_parties, view.n_rows, view.n_samples)
        self.function = LocalFunction(self.table, self.labels, self.loss, settings.lam, weight)
        self.local = State.start(self.w.shape)
        self.newton = False
        self._facts: dict[str, float] = {}

    # ── setting up ────────────────────────────────────────────────────────────────────────

    def phases(self) -> dict[str, Handler]:
        return {**super().phases(), "rounds.survey": self._on_survey}

    def _on_survey(self, message: Message) -> Message:
        """Bounds on the own curvature, and the own type, in sums over all parties."""
        told = message.get("newton")
        self.newton = self._quick() if told is None else bool(told)
        bounds = self.function.curvature
        values = [bounds.lower, bounds.upper, float(self.newton)]
        reply: Message = {"curvatures": pack_scalars(self.cipher, message, "curvatures", *values)}
        if self._options.steps == "theory":
            reply["bounds"] = np.array(values)
        return reply

    def _quick(self) -> bool:
        """Whether a Newton-type update costs this party little enough time."""
        # By the clock, which would not say the same after an interruption.
        return self._draws.take("newton", self._measured) == b"quick"

    def _measured(self) -> bytes:
        start = perf_counter()
        self.function.system(self.local.x, self.settings.lam).solve(self.local.x)
        return b"quick" if perf_counter() - start <= self._options.seconds else b"slow"

    def begin(self, found: Message) -> None:
        self._facts = {
            name: positive(found, name) for name in ("mu", "upper", "beta") if name in found
        }
        self.join("v", self._room())

    def _room(self) -> float:
        """A bound on x_i − λ_i/μ, where λ_i approaches ∇f_i(x₀); the same at all parties."""
        steepest = self.view.n_parties * 2.0 * self.bounds.v + self.settings.lam * self.longest
        return self.longest + steepest / self._facts["mu"]

    # ── iterations ────────────────────────────────────────────────────────────────────────

    def handlers(self) -> dict[str, Handler]:
        return {"local": self._on_local}

    def point(self, message: Message) -> Floats:
        """x₀ = mean(x_i − λ_i/μ)."""
        mu, parties = self._facts["mu"], self.view.n_parties
        return self.opened("v", message, self.local.share(mu)) / parties

    def _on_local(self, message: Message) -> Message:
        """Σ (x_j − λ_j/μ) ↓, the own one ↑."""
        mu = self._facts["mu"]
        self.w = x0 = self.point(message)
        rule = rule_of(self._facts, self._options, self._halvings(message))
        pair = rule.own(self.function.curvature, self.newton)
        here = stand(self.function, self.local, x0, mu)
        update = newton_update if self.newton else gradient_update
        moved = update(self.function, self.local, here, x0, mu, pair)
        self.check_size(moved.x)
        reply: Message = {}
        self.local = self._kept(moved, reply)
        if "measure" in message:
            residual = float(here.residual.sum()) / self.view.n_parties
            reply["residual"] = pack_scalars(self.cipher, message, "residual", residual)
        shared = self.view.n_shared_columns
        if shared:
            reply["v"] = self.sums["v"].increment(self.local.share(mu)[:shared], message)
        return reply

    def _halvings(self, message: Message) -> int:
        """How often steps were halved, which only the safeguard of all does."""
        count = integer(message, "halvings")
        if not 0 <= count <= MOST_HALVINGS:
            raise ProtocolError("a message is malformed: 'halvings' is no such number")
        return count

    def _kept(self, moved: State, reply: Message) -> State:
        """The new state, but for classes in which a few samples have a slope: there the old one
        stays, since a sum would show them."""
        if not self.guarded:
            return moved
        z = self.table.products(None, self.local.x)
        fine = self.enough(self.loss.u(z, self.labels) != 0.0)
        if fine.all():
            return moved
        reply["held"] = int((~fine).sum())
        return State(
            np.where(fine, moved.x, self.local.x),
            np.where(fine, moved.multiplier, self.local.multiplier),
        )

    def variables(self) -> dict[str, NDArray[Any]]:
        newton = np.array(self.newton)
        return {"x": self.local.x, "multiplier": self.local.multiplier, "newton": newton}

    def remembered(self) -> dict[str, NDArray[Any]]:
        # Updates make new arrays, and never change old ones.
        return self.variables()

    def take_variables(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.local = State(state["x"], state["multiplier"])
        self.newton = bool(state["newton"])
