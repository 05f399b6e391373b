"""DiSCO: inexact damped Newton steps, solved by distributed preconditioned conjugate gradients.

Zhang and Lin 2015. All parties hold the same w and the same vectors of conjugate gradients; an
exchange sums their parts of a gradient, of a Hessian product or of what preconditions it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from weft.array_types import Floats
from weft.errors import ConfigError, ProtocolError
from weft.losses import Squared
from weft.protocol.declared_message_fields import malformed
from weft.solvers.algorithm_entry import Algorithm, bounds
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.coordinator import RoundCoordinator, Scalars
from weft.solvers.rounds.coordinator_totals_and_bound import RoundsState, Step
from weft.solvers.rounds.messages import LOCAL, Model, RoundReply, RoundRequest, StepPhase
from weft.solvers.rounds.party import Handler, RoundParty
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants
from weft.sums.scalar_sums import pack_scalars

#: What the parties sum in an exchange.
GRADIENT, DIAGONAL, SOLVE, PRODUCT, BACK = range(5)
#: Features up to which a dense Hessian is factored.
MOST_DENSE = 2000
#: Times that a step which does not lower the objective is halved, and how much it must lower it.
_MOST_HALVINGS = 30
_SLACK = 1e-12
#: Above every objective; infinity does not survive a checkpoint.
_FAR = 1e300

Preconditioner = Literal["first", "diagonal", "none"]


class DiscoOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """DiSCO: Newton's method whose linear systems are solved in sums over parties.

    Attributes
    ----------
    precondition
        ``first``: the Hessian of the first party plus μ, as in the paper; this party alone computes
        P⁻¹r, which everybody sees. ``diagonal``: that of the whole Hessian, a sum over parties.
        ``none``.
    mu
        μ of ``first``; by default its mean curvature over the root of its number of samples.
    forcing
        By how much conjugate gradients shrink the residual before a Newton step.
    most
        Steps of conjugate gradients for one Newton step, at most.
    """

    precondition: Preconditioner = "diagonal"
    mu: float | None = None
    forcing: float = 0.05
    most: int = 100

    def __post_init__(self) -> None:
        if self.mu is not None and not self.mu >= 0:
            raise ConfigError(f"mu is {self.mu:g}; give at least 0")
        if not 0 < self.forcing < 1:
            raise ConfigError(f"forcing is {self.forcing:g}; give a number between 0 and 1")
        if self.most < 1:
            raise ConfigError(f"most is {self.most}; give at least 1 step")


class DiscoCoordinator(RoundCoordinator):
    """An iteration is one exchange: a gradient, a diagonal, P⁻¹r, or a product of the Hessian.

    The parties hold the same w and the same vectors of conjugate gradients, made of the same
    totals. What comes next depends on two scalars, and one place decides it for all.
    """

    steps = (Step(LOCAL, gets=("v",), gives=("v",), scalars=(("objective", 1), ("residual", 1))),)
    model_of = ()

    def find(self, run: RoundsState, largest: list[float]) -> Constants:
        chosen = run.settings.read_options(DiscoOptions).precondition
        if chosen == "first" and run.holdings.columns.n_slots > MOST_DENSE:
            raise ConfigError(
                f"precondition = 'first' factors a matrix of all features, of which there are "
                f"{run.holdings.columns.n_slots}; use 'diagonal'"
            )
        run.memory.update(mode=GRADIENT, best=_FAR, products=0, halvings=0)
        return Constants()

    def tell(self, run: RoundsState, step: Step, messages: Mapping[str, RoundRequest]) -> None:
        mode = int(run.memory["mode"])
        for message in messages.values():
            message.mode = mode

    def take(self, run: RoundsState, step: Step, scalars: Scalars) -> None:
        """Choose what comes next from the objective, or from the residual's share of the first."""
        (objective,), (residual,) = scalars["objective"] or [0.0], scalars["residual"] or [0.0]
        run.memory["mode"] = self._next(run, run.memory, objective, residual)

    def _next(
        self, run: RoundsState, memory: dict[str, float], objective: float, residual: float
    ) -> int:
        options = run.settings.read_options(DiscoOptions)
        how = options.precondition
        solve = SOLVE if how == "first" else PRODUCT
        mode = int(memory["mode"])
        if mode in (GRADIENT, BACK):
            worse = objective > memory["best"] + _SLACK * abs(memory["best"])
            if worse and memory["halvings"] < _MOST_HALVINGS:
                memory["halvings"] += 1
                return BACK
            memory.update(best=objective, halvings=0, products=0)
            return DIAGONAL if how == "diagonal" else solve
        if mode in (DIAGONAL, SOLVE):
            return PRODUCT
        # A product of the Hessian: the residual is that before it, so that this step comes free.
        memory["products"] += 1
        done = residual <= options.forcing**2 or memory["products"] > options.most
        return GRADIENT if done else solve


# ── a party ────────────────────────────────────────────────────────────────────────────


#: Vectors of an unfinished Newton step, in the order in which they are kept.
_VECTORS = ("w", "step", "residual", "direction", "search", "diagonal", "asked")


class DiscoParty(RoundParty):
    """w and the vectors of conjugate gradients, the same at every party.

    With g = ∇P(w) and H = ∇²P(w): v ≈ H⁻¹g by conjugate gradients, δ² = vᵀHv, and the damped step
    w − v/(1 + δ), or w − v where P is quadratic. Classes are problems of their own, side by side.
    """

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        self._options = settings.read_options(DiscoOptions)
        # Gradients and their like are bounded as feature sums are, with room for λw and for
        # products with directions that are longer than w.
        self._sum = self.join("v", self.longest * self._curvature())
        shape = self.w.shape
        self._vectors: dict[str, Floats] = {name: np.zeros(shape) for name in _VECTORS}
        # Per class: residual · preconditioned residual, vᵀHv so far, first residual; and the mode.
        self._products: Floats = np.zeros((3, self.classes))
        self._mode: NDArray[np.int64] = np.array([-1])
        self._how = self._options.precondition
        self._factor: list[Any] = []
        self._held = 0

    def _curvature(self) -> float:
        """A bound on every entry of what is summed, in units of the longest w."""
        smooth = self.loss.smoothness
        reach = (self.bounds.point / self.bounds.longest) ** 2
        return 4.0 * (smooth * reach + self.settings.lam) + 1.0

    def handlers(self) -> dict[StepPhase, Handler]:
        return {LOCAL: self._on_local}

    def point(self, totals: Model) -> Floats:
        return self.w.copy()

    def variables(self) -> dict[str, NDArray[Any]]:
        self._vectors["w"] = self.w
        return {**self._vectors, "products": self._products, "mode": self._mode}

    def take_variables(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._vectors = {name: state[name].copy() for name in _VECTORS}
        self.w = self._vectors["w"]
        self._products, self._mode = state["products"].copy(), state["mode"].copy()
        self._factor = []

    # ── one exchange ──────────────────────────────────────────────────────────────────────

    def _on_local(self, message: RoundRequest) -> RoundReply:
        """The total of what was summed last ↓, this party's part of the next ↑."""
        mode, last = message.mode, int(self._mode[0])
        if mode is None:
            raise malformed("mode", "is missing")
        if last >= 0:
            self._take(last, self.opened("v", message.v, self._vectors["asked"]))
        residual = self._residual() if last >= 0 else 1.0
        if mode == GRADIENT and last == PRODUCT:
            self._step()
        elif mode == BACK:
            self._vectors["step"] *= 0.5
            self.w += self._vectors["step"]
        part = self._part(mode)
        self._mode = np.array([mode])
        self._vectors["asked"] = part
        objective = self._objective() if mode in (GRADIENT, BACK) else 0.0
        share = residual / self.view.n_parties
        reply = RoundReply()
        reply.objective = pack_scalars(self.cipher, "objective", objective)
        reply.residual = pack_scalars(self.cipher, "residual", share)
        reply.held, self._held = self._held, 0
        shared = self.view.n_shared_columns
        if shared:
            self.check_size(self.w)
            reply.v = self._sum.increment(part[:shared], message.v_pads)
        return reply

    def _residual(self) -> float:
        """How much of the first residual is left, squared, in the worst class."""
        first = np.maximum(self._products[2], 1e-300)
        squares = np.einsum("ij,ij->j", self._vectors["residual"], self._vectors["residual"])
        return float(np.max(squares / first))

    def _take(self, kind: int, total: Floats) -> None:
        """Go on with what all parties together gave."""
        vectors = self._vectors
        if kind in (GRADIENT, BACK):
            vectors["residual"] = total + self.settings.lam * self.w
            vectors["search"] = np.zeros_like(self.w)
            vectors["direction"] = np.zeros_like(self.w)
            squares = np.einsum("ij,ij->j", vectors["residual"], vectors["residual"])
            self._products = np.stack([np.zeros_like(squares), np.zeros_like(squares), squares])
            if self._how == "none":
                self._turn(vectors["residual"])
        elif kind == DIAGONAL:
            vectors["diagonal"] = total + self.settings.lam
            self._turn(vectors["residual"] / vectors["diagonal"])
        elif kind == SOLVE:
            self._turn(total)
        elif kind == PRODUCT:
            self._advance(total + self.settings.lam * vectors["direction"])
        else:
            raise malformed("mode", "names nothing to sum")

    def _turn(self, solved: Floats) -> None:
        """The next direction of conjugate gradients, from P⁻¹r."""
        vectors = self._vectors
        product = np.einsum("ij,ij->j", vectors["residual"], solved)
        before = self._products[0]
        ratio = np.where(before > 0, product / np.where(before > 0, before, 1.0), 0.0)
        vectors["direction"] = solved + ratio * vectors["direction"]
        self._products[0] = product

    def _advance(self, product: Floats) -> None:
        """A step of conjugate gradients, from Hu."""
        vectors = self._vectors
        curvature = np.einsum("ij,ij->j", vectors["direction"], product)
        steep = curvature > 0
        length = np.where(steep, self._products[0] / np.where(steep, curvature, 1.0), 0.0)
        vectors["search"] = vectors["search"] + length * vectors["direction"]
        vectors["residual"] = vectors["residual"] - length * product
        # Directions are conjugate: vᵀHv adds up.
        self._products[1] += length**2 * curvature
        if self._how == "none":
            self._turn(vectors["residual"])
        elif self._how == "diagonal":
            self._turn(vectors["residual"] / vectors["diagonal"])

    def _step(self) -> None:
        """The damped Newton step; a quadratic, whose third derivative is zero, needs no damping."""
        quadratic = isinstance(self.loss, Squared)
        damping = 1.0 if quadratic else 1.0 + np.sqrt(self._products[1])
        self._vectors["step"] = self._vectors["search"] / damping
        self.w = self.w - self._vectors["step"]
        self._factor = []

    # ── this party's parts ────────────────────────────────────────────────────────────────

    def _part(self, mode: int) -> Floats:
        z = self.table.products(None, self.w)
        if mode in (GRADIENT, BACK):
            return self._summed(-self.loss.u(z, self.labels))
        if mode == PRODUCT:
            moved = self.table.products(None, self._vectors["direction"])
            return self._summed(self.loss.curvature(z, self.labels) * moved)
        if mode == DIAGONAL:
            cells = self._cells
            if self._how != "diagonal":
                raise ProtocolError("a request wants a diagonal, which the settings do not say")
            bent = self._kept(self.loss.curvature(z, self.labels)) * self.sample_weight
            return np.asarray((cells * cells).T @ bent)
        if self._how != "first":
            raise ProtocolError("a request wants P⁻¹r of one party, which the settings do not say")
        return self._solved(z)

    @cached_property
    def _cells(self) -> sp.csr_array:
        return self.table.compressed()

    def _summed(self, coefficients: Floats) -> Floats:
        """Σ c_i x_i, unless so few samples have a part in it that it shows them."""
        out = np.zeros_like(self.w)
        used = self._kept(coefficients)
        self.table.accumulate(None, used * self.sample_weight, out)
        return out

    def _kept(self, coefficients: Floats) -> Floats:
        """Coefficients of samples, zero in classes where a few have one."""
        fine = self.enough(coefficients != 0.0)
        self._held += int((~fine).sum())
        return np.where(fine, coefficients, 0.0)

    def _solved(self, z: Floats) -> Floats:
        """P⁻¹r, at the first party; zero at all others."""
        if self.view.party != 0:
            return np.zeros_like(self.w)
        if not self._factor:
            self._factor = [self._factored(z[:, c], c) for c in range(self.classes)]
        residual = self._vectors["residual"]
        solved = [cho_solve(self._factor[c], residual[:, c]) for c in range(self.classes)]
        return np.stack(solved, axis=1)

    def _factored(self, z: Floats, c: int) -> Any:
        cells = self._cells
        bent = self.loss.curvature(z, self.labels[:, c]) / max(len(z), 1)
        hessian = np.asarray((cells.T @ (cells * bent[:, None])).todense())
        size = len(hessian)
        mu = self._options.mu
        if mu is None:
            mu = float(np.trace(hessian)) / size / math.sqrt(max(len(z), 1))
        hessian[np.diag_indices(size)] += self.settings.lam + mu
        return cho_factor(hessian)

    def _objective(self) -> float:
        """This party's part of P, over all classes."""
        z = self.table.products(None, self.w)
        counted = self.view.counted_rows
        losses = self.loss.value(z[counted], self.labels[counted]).sum() * self.sample_weight
        mine = self.w[self.view.owned]
        return float(losses + 0.5 * self.settings.lam * (mine * mine).sum())


# ── the method ─────────────────────────────────────────────────────────────────────────


def _alone(settings: Settings) -> str:
    first = settings.read_options(DiscoOptions).precondition == "first"
    return "vectors P⁻¹r that tell the Hessian" if first else ""


DISCO = Algorithm(
    "disco",
    DiscoCoordinator,
    DiscoParty,
    "damped Newton steps by distributed preconditioned conjugate gradients",
    options=DiscoOptions,
    tuned=bounds(forcing=(1e-3, 0.9)),
    reads=("certify_every",),
    cut="rows",
    losses="smooth",
    everyone=True,
    weighs=True,
    guarantee="the optimum",
    trips="1 a gradient or Hessian product; 2 a product with precondition = 'first'",
    reference="Zhang and Lin 2015",
    coordinator_sees="ciphertexts; totals of losses, norms and residuals",
    parties_see="w, gradients and Hessian products of everybody together; with precondition = "
    "'first' also P⁻¹r of the first party",
    shown_alone=_alone,
)
