"""Block-splitting ADMM (Parikh and Boyd 2014): every party projects onto its own tile.

The problem is λ/2 ‖w‖² + 1/N Σ l(z_i) with z = Xw. Party k has copies (w_k, z_k) that lie on the
graph z_k = X_k w_k of its own cells; copies of a feature shall agree with w, and copies of a sample
add up to z. With scaled dual variables, marked by ˜, an iteration is (section 4.2 there)

    w′ = prox(w − w̃),   z′ = prox(z − z̃),   (w_k′, z_k′) = Π_k(w − w̃_k, z_k + z̃),
    w = (w′ + Σ_k w_k′)/(h_m + 1),   d = (z′ − Σ_k z_k′)/(h_i + 1),   z_k = z_k′ + d,   z = z′ − d,
    w̃ += w′ − w,   w̃_k += w_k′ − w,   z̃ += d,

where h counts the holders of a feature or a sample. Everything but the two sums is local: all
holders of a feature compute the same w′, and z′ is known to one label holder of each sample, who
adds it to the sum. The first line comes before a request is answered, the others when its totals
come back with the next request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from weft.array_types import Floats
from weft.errors import ConfigError
from weft.losses import Loss
from weft.solvers.algorithm_entry import Algorithm, bounds
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.coordinator import RoundCoordinator, Scalars
from weft.solvers.rounds.coordinator_totals_and_bound import RoundsState, Step
from weft.solvers.rounds.messages import LOCAL, Model, RoundReply, RoundRequest, StepPhase
from weft.solvers.rounds.party import Handler, RoundParty, positive
from weft.solvers.run_settings import Settings
from weft.sums.party_contribution import Contribution
from weft.sums.party_table_products import LocalTable
from weft.sums.scalar_sums import pack_scalars

# ── projections onto a party's own tile ────────────────────────────────────────────────

#: The largest matrix that is factorised.
LARGEST = 3000
#: Tables with a larger share of cells that are not zero are multiplied as dense ones.
_DENSE = 0.1
_CLOSE = 1e-12
_MOST_STEPS = 1000


class Graph:
    """The points (w, z) with z = X_k w, X_k being all cells of a party.

    The point nearest to (a, b) has w = (I + XᵀX)⁻¹ (a + Xᵀb) = a + Xᵀ (I + XXᵀ)⁻¹ (b − Xa). The
    smaller of the two matrices is factorised once; where both are large, conjugate gradients take
    their place.

    Parameters
    ----------
    largest
        How many rows a matrix may have that is factorised.
    """

    def __init__(self, table: LocalTable, largest: int = LARGEST) -> None:
        self._table = table
        self._tall = table.n_columns <= table.n_rows
        self._direct = min(table.n_columns, table.n_rows) <= largest

    def project(self, a: Floats, b: Floats, start: Floats) -> tuple[Floats, Floats]:
        """The nearest point; ``start`` is a guess at its w."""
        if not self._direct:
            w = self._descend(a + self._transposed(b), start)
        elif self._tall:
            w = self._solve(a + self._transposed(b))
        else:
            w = a + self._transposed(self._solve(b - self._table.products(None, a)))
        return w, self._table.products(None, w)

    def _transposed(self, b: Floats) -> Floats:
        """Xᵀb."""
        out = np.zeros((self._table.n_columns, b.shape[1]))
        self._table.accumulate(None, b, out)
        return out

    @cached_property
    def _factor(self) -> tuple[Floats, bool]:
        cells = self._table.compressed()
        if not self._tall:
            cells = cells.T.tocsr()
        if cells.nnz > _DENSE * cells.shape[0] * cells.shape[1]:
            dense: Floats = cells.toarray()
            gram = dense.T @ dense
        else:
            gram = (cells.T @ cells).toarray()
        gram[np.diag_indices_from(gram)] += 1.0
        matrix, lower = cho_factor(gram, lower=True, overwrite_a=True)
        return matrix, bool(lower)

    def _solve(self, right: Floats) -> Floats:
        solved: Floats = cho_solve(self._factor, right)
        return solved

    def _descend(self, right: Floats, start: Floats) -> Floats:
        """(I + XᵀX)⁻¹ by conjugate gradients, all classes side by side."""
        w = start.copy()
        left = right - self._times(w)
        direction = left.copy()
        square = np.einsum("ij,ij->j", left, left)
        enough = _CLOSE**2 * np.einsum("ij,ij->j", right, right)
        for _ in range(_MOST_STEPS):
            if (square <= enough).all():
                break
            image = self._times(direction)
            curve = np.einsum("ij,ij->j", direction, image)
            step = np.divide(square, curve, out=np.zeros_like(square), where=square > enough)
            w += step * direction
            left -= step * image
            before, square = square, np.einsum("ij,ij->j", left, left)
            direction = left + direction * (square / np.maximum(before, 1e-300))
        return w

    def _times(self, w: Floats) -> Floats:
        """(I + XᵀX) w."""
        return w + self._transposed(self._table.products(None, w))


# ── options ────────────────────────────────────────────────────────────────────────────


class AdmmOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Block-splitting ADMM.

    Attributes
    ----------
    rho
        The penalty ρ. ``auto`` begins at √(λ/N) and balances the two residuals, for the first 500
        iterations, so that ρ is constant in the end.
    """

    rho: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if self.rho != "auto" and not self.rho > 0:
            raise ConfigError(f"rho is {self.rho:g}; give a number above 0, or 'auto'")


# ── the coordinator ────────────────────────────────────────────────────────────────────


#: Iterations at which ρ may change: each by so much later than the one before. Residuals go up and
#: down, so that looks in quick succession would amplify that. Where ρ changes a finite number of
#: times, ADMM converges as with a constant ρ.
_FIRST, _LATER, _LAST = 10, 1.5, 500
#: By how much ρ changes at most, and what is not worth a change.
_MOST, _LEAST = 3.0, 1.2


class AdmmCoordinator(RoundCoordinator):
    """Totals of local copies of w by feature, and of c − Σ_k z_k by sample, in one round trip.

    ρ grows where copies stay apart and shrinks where the consensus moves far: how far copies are
    from the consensus is compared with how far that moves, over the iterations since the last look.
    Neither changes when the problem is multiplied by a constant.
    """

    steps = (Step(LOCAL, gets=("v", "z"), gives=("v", "z"), scalars=(("residual", 2),)),)
    windows = ()
    model_of = ("v", "z")

    def tell(self, run: RoundsState, step: Step, messages: Mapping[str, RoundRequest]) -> None:
        rho = self._rho(run)
        for message in messages.values():
            message.rho = rho

    def take(self, run: RoundsState, step: Step, scalars: Scalars) -> None:
        """Of the iteration before: ‖copies − consensus‖² and ‖change of the consensus‖²."""
        found, memory = scalars["residual"], run.memory
        if found is None or run.settings.read_options(AdmmOptions).rho != "auto":
            return
        apart = memory.get("apart", 0.0) + found[0]
        moved = memory.get("moved", 0.0) + found[1]
        look = memory.get("look", float(_FIRST))
        if look <= _LAST and run.iteration >= look:
            memory["rho"] = self._rho(run) * _factor(apart, moved)
            look, apart, moved = math.ceil(_LATER * look), 0.0, 0.0
        memory.update(apart=apart, moved=moved, look=look)

    def _rho(self, run: RoundsState) -> float:
        given = run.settings.read_options(AdmmOptions).rho
        if given != "auto":
            return given
        return run.memory.get("rho", math.sqrt(run.settings.lam / run.holdings.rows.n_slots))


def _factor(apart: float, moved: float) -> float:
    """By how much ρ shall change, from sums of squares."""
    if not (apart > 0.0 and moved > 0.0):
        return 1.0
    factor = min(max(math.sqrt(apart / moved), 1.0 / _MOST), _MOST)
    return factor if max(factor, 1.0 / factor) > _LEAST else 1.0


# ── a party ────────────────────────────────────────────────────────────────────────────


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

    def handlers(self) -> dict[StepPhase, Handler]:
        return {LOCAL: self._on_local}

    def variables(self) -> dict[str, NDArray[Any]]:
        return {**self._state, "rho": np.array(self._rho)}

    def take_variables(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._rho = float(state["rho"])
        self._state = {name: state[name].copy() for name in self._state}
        self.w = self._state["w"]

    # ── the point ─────────────────────────────────────────────────────────────────────────

    def point(self, totals: Model) -> Floats:
        """w of the totals. At the optimum −l'(z) = ρN z̃: so α is kept, to go with it."""
        scale = self._rho * self.view.n_samples
        self._alpha = scale * (self._state["z_dual"] + self._step(totals))
        return self._consensus(totals)

    def dual(self, z: Floats) -> Floats:
        return self._alpha

    def _consensus(self, totals: Model) -> Floats:
        total = self.opened("v", totals.v, self._state["w_own_half"])
        return (self._state["w_half"] + total) / (self._feature_holders + 1.0)

    def _step(self, totals: Model) -> Floats:
        """d of every sample."""
        return self.opened("z", totals.z, self._own_rest()) / (self._sample_holders + 1.0)

    def _own_rest(self) -> Floats:
        """This party's part of z′ − Σ_k z_k′."""
        rest: Floats = -self._state["z_own_half"]
        rest[self._counted] += self._state["z_half"]
        return rest

    # ── an iteration ──────────────────────────────────────────────────────────────────────

    def _on_local(self, message: RoundRequest) -> RoundReply:
        """Totals ↓, then new copies ↑."""
        apart, moved = self._finish(message)
        self._rescale(positive(message.rho, "rho"))
        reply = RoundReply()
        reply.residual = pack_scalars(self.cipher, "residual", apart, moved)
        reply.held = self._begin()
        rows, columns = self._shared
        if columns:
            copies = self._state["w_own_half"][:columns]
            reply.v = self._copies.increment(copies, message.v_pads)
        if rows:
            reply.z = self._rest.increment(self._own_rest()[:rows], message.z_pads)
        return reply

    def _finish(self, totals: Model) -> tuple[float, float]:
        """Average and exchange; returns this party's part of both residuals, squared."""
        old = self._state
        w, d = self._consensus(totals), self._step(totals)
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

    def _begin(self) -> int:
        """The proximal steps, and the projection unless so few samples have a part in it that
        the total of copies would show them; returns in how many classes that is so."""
        state, rho = self._state, self._rho
        state["w_half"] = rho * (state["w"] - state["w_dual"]) / (self.settings.lam + rho)
        s = state["z"] - state["z_dual"][self._counted]
        y = self.labels[self._counted]
        state["z_half"] = self._rest.on_grid(prox(self.loss, s, y, rho * self.view.n_samples))
        target = state["z_own"] + state["z_dual"]
        fine = self.enough(target != 0.0)
        w, z = self._graph.project(state["w"] - state["w_own_dual"], target, state["w_own_half"])
        w, z = np.where(fine, w, state["w_own_half"]), np.where(fine, z, state["z_own_half"])
        self.check_size(w)
        # On the grid, a total is the sum of the copies, and dual variables of copies cancel.
        state["w_own_half"], state["z_own_half"] = self._copies.on_grid(w), self._rest.on_grid(z)
        return int((~fine).sum())


def _square(values: Floats) -> float:
    return float(np.einsum("ij,ij->", values, values))


# ── the method ─────────────────────────────────────────────────────────────────────────


ADMM = Algorithm(
    "admm",
    AdmmCoordinator,
    AdmmParty,
    "block-splitting ADMM: every party projects onto its own tile; any loss",
    options=AdmmOptions,
    tuned=bounds(rho=(1e-6, 1e2)),
    reads=("certify_every",),
    everyone=True,
    sample_sums=1,
    guarantee="the optimum, certified",
    trips="1",
    reference="Parikh and Boyd 2014 (Block splitting for distributed optimization)",
    coordinator_sees="ciphertexts; totals of losses, norms and residuals",
    parties_see=(
        "w of their features with totals of all holders' copies, and of their samples how far "
        "copies of z are from adding up, from which dual variables follow"
    ),
)
