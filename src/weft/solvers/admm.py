"""Block-splitting ADMM, a party's half.

The problem is λ/2 ‖w‖² + 1/N Σ l(z_i) with z = Xw. Party k has copies (w_k, z_k) that lie on the
graph z_k = X_k w_k of its own cells; copies of a feature shall agree with w, and copies of a sample
add up to z. With scaled dual variables, marked by ˜, an iteration is (Parikh and Boyd 2014, 4.2)

    w′ = prox(w − w̃),   z′ = prox(z − z̃),   (w_k′, z_k′) = Π_k(w − w̃_k, z_k + z̃),
    w = (w′ + Σ_k w_k′)/(h_m + 1),   d = (z′ − Σ_k z_k′)/(h_i + 1),   z_k = z_k′ + d,   z = z′ − d,
    w̃ += w′ − w,   w̃_k += w_k′ − w,   z̃ += d,

where h counts the holders of a feature or a sample. Everything but the two sums is local: all
holders of a feature compute the same w′, and z′ is known to one label holder of each sample, who
adds it to the sum. The first line comes before a request is answered, the others when its totals
come back with the next request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.losses import Loss
from weft.protocol import Message
from weft.solvers.graph_projection import Graph
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.party import Handler, RoundParty, positive
from weft.solvers.settings import Settings
from weft.sums.contribution import Contribution
from weft.sums.scalar_sums import pack_scalars

Floats = NDArray[np.float64]

#: Variables by feature and by sample; primed ones are halves, which wait for their totals.
_BY_FEATURE = ("w", "w_half", "w_own_half", "w_dual", "w_own_dual")
_BY_SAMPLE = ("z_own", "z_own_half", "z_dual")
_COUNTED = ("z", "z_half")


def prox(loss: Loss, s: Floats, y: Floats, c: float) -> Floats:
    """argmin_z l(z) + c/2 (z − s)².

    By Moreau it is s + α/c with the α that maximises −l*(−α) − sα − α²/2c, which is a dual step
    from 0.
    """
    return s + loss.dual_step(np.zeros_like(s), s, y, 1.0 / c) / c


class AdmmParty(RoundParty):
    """One block of ADMM: all cells of this party."""

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        view = self.view
        rows, columns = view.n_shared_rows, view.n_shared_columns
        self._copies = self.join("v", self.longest)
        # Every holder opens the totals, whether it has labels or not.
        self._rest = Contribution("z", rows, self.classes, self.reach, self.cipher, everyone=True)
        self.sums["z"] = self._rest
        self._shared = rows, columns
        self._feature_holders = view.column_sharers[view.column_cohort][:, None].astype(float)
        self._sample_holders = view.sharers[view.row_cohort][:, None].astype(float)
        self._counted = np.flatnonzero(view.counted_rows)
        self._graph = Graph(self.table)
        self._rho = 0.0
        by_feature, by_sample = (view.n_columns, self.classes), (view.n_rows, self.classes)
        self._state = {
            **{name: np.zeros(by_feature) for name in _BY_FEATURE},
            **{name: np.zeros(by_sample) for name in _BY_SAMPLE},
            **{name: np.zeros((len(self._counted), self.classes)) for name in _COUNTED},
        }
        self._alpha: Floats = np.zeros(by_sample)

    def handlers(self) -> dict[str, Handler]:
        return {"local": self._on_local}

    def variables(self) -> dict[str, NDArray[Any]]:
        return {**self._state, "rho": np.array(self._rho)}

    def take_variables(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._rho = float(state["rho"])
        self._state = {name: state[name].copy() for name in self._state}
        self.w = self._state["w"]

    # ── the point ─────────────────────────────────────────────────────────────────────────

    def point(self, message: Message) -> Floats:
        """w of the totals. At the optimum −l'(z) = ρN z̃: so α is kept, to go with it."""
        scale = self._rho * self.view.n_samples
        self._alpha = scale * (self._state["z_dual"] + self._step(message))
        return self._consensus(message)

    def dual(self, z: Floats) -> Floats:
        return self._alpha

    def _consensus(self, message: Message) -> Floats:
        total = self.opened("v", message, self._state["w_own_half"])
        return (self._state["w_half"] + total) / (self._feature_holders + 1.0)

    def _step(self, message: Message) -> Floats:
        """d of every sample."""
        return self.opened("z", message, self._own_rest()) / (self._sample_holders + 1.0)

    def _own_rest(self) -> Floats:
        """This party's part of z′ − Σ_k z_k′."""
        rest: Floats = -self._state["z_own_half"]
        rest[self._counted] += self._state["z_half"]
        return rest

    # ── an iteration ──────────────────────────────────────────────────────────────────────

    def _on_local(self, message: Message) -> Message:
        """Totals ↓, then new copies ↑."""
        apart, moved = self._finish(message)
        self._rescale(positive(message, "rho"))
        reply: Message = {"residual": pack_scalars(self.cipher, message, "residual", apart, moved)}
        self._begin(reply)
        rows, columns = self._shared
        if columns:
            reply["v"] = self._copies.increment(self._state["w_own_half"][:columns], message)
        if rows:
            reply["z"] = self._rest.increment(self._own_rest()[:rows], message)
        return reply

    def _finish(self, message: Message) -> tuple[float, float]:
        """Average and exchange; returns this party's part of both residuals, squared."""
        old = self._state
        w, d = self._consensus(message), self._step(message)
        away, mine = old["w_own_half"] - w, d[self._counted]
        new = {
            "w": w,
            "z_own": old["z_own_half"] + d,
            "z": old["z_half"] - mine,
            "w_dual": old["w_dual"] + old["w_half"] - w,
            "w_own_dual": old["w_own_dual"] + away,
            "z_dual": old["z_dual"] + d,
        }
        owned = self.view.owned
        apart = _square(away) + _square((old["w_half"] - w)[owned]) + _square(d) + _square(mine)
        moved = _square(w - old["w"]) + _square((w - old["w"])[owned])
        moved += _square(new["z_own"] - old["z_own"]) + _square(new["z"] - old["z"])
        self._state = {**old, **new}
        self.w = w
        return apart, moved

    def _rescale(self, rho: float) -> None:
        """Scaled dual variables are dual variables over ρ."""
        if rho != self._rho:
            factor = self._rho / rho
            for name in ("w_dual", "w_own_dual", "z_dual"):
                self._state[name] = factor * self._state[name]
            self._rho = rho

    def _begin(self, reply: Message) -> None:
        """The proximal steps, and the projection unless so few samples have a part in it that
        the total of copies would show them."""
        state, rho = self._state, self._rho
        state["w_half"] = rho * (state["w"] - state["w_dual"]) / (self.settings.lam + rho)
        s = state["z"] - state["z_dual"][self._counted]
        y = self.labels[self._counted]
        state["z_half"] = self._rest.on_grid(prox(self.loss, s, y, rho * self.view.n_samples))
        target = state["z_own"] + state["z_dual"]
        fine = self.enough(target != 0.0)
        if not fine.all():
            reply["held"] = int((~fine).sum())
        w, z = self._graph.project(state["w"] - state["w_own_dual"], target, state["w_own_half"])
        w, z = np.where(fine, w, state["w_own_half"]), np.where(fine, z, state["z_own_half"])
        self.check_size(w)
        # On the grid, a total is the sum of the copies, and dual variables of copies cancel.
        state["w_own_half"], state["z_own_half"] = self._copies.on_grid(w), self._rest.on_grid(z)


def _square(values: Floats) -> float:
    return float(np.einsum("ij,ij->", values, values))
