"""FedDCD: dual coordinate descent over parties (Fan, Fang and Friedlander 2022, Algorithm 1).

K·P(w) = Σ_k f_k(w) with f_k(w) = K Σ p_i l(x_iᵀw) + λ/2 ‖w‖² over the samples of party k. The dual
problem is min Σ f_k*(y_k) with Σ y_k = 0, whose gradient at party k is the minimiser w_k of
f_k(w) − ⟨y_k, w⟩. Those who take part move against it, less the mean of theirs, so that the y_k
still add up to zero: y_k ← y_k − η (w_k − w̄). Every f_k is λ-strongly convex, so that the dual
gradient is 1/λ-Lipschitz and η = λ descends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.errors import ConfigError, ProtocolError
from weft.losses import Loss
from weft.protocol import Request
from weft.solvers.algorithm_entry import Algorithm, bounds
from weft.solvers.participation import Cyclic
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.coordinator import RoundCoordinator
from weft.solvers.rounds.coordinator_totals_and_bound import RoundsState, Step
from weft.solvers.rounds.messages import LOCAL, MERGE, Model, RoundReply, RoundRequest, StepPhase
from weft.solvers.rounds.party import Handler, RoundParty
from weft.solvers.run_settings import Settings
from weft.sums.coordinator_totals import IncrementTotals

# ── a party's own problem ──────────────────────────────────────────────────────────────

#: Newton steps at most; from the last solution a few are enough.
_MOST_STEPS = 100
#: A step is accepted when it brings this part of what the slope promises …
_ARMIJO = 1e-4
#: … up to rounding of the objective, relatively.
_ROUNDING = 1e-14
#: Tables are kept dense where more than this part of their cells is not zero.
_DENSE = 0.2


class LocalProblem:
    """min_w  c Σ l(x_iᵀw) + λ/2 ‖w‖² − ⟨y, w⟩, for any y.

    Parameters
    ----------
    cells
        The rows x_i.
    weight
        c.
    """

    def __init__(
        self, cells: sp.csr_array, labels: Floats, loss: Loss, weight: float, lam: float
    ) -> None:
        self._dense = cells.nnz > _DENSE * cells.shape[0] * cells.shape[1]
        self._x = cells.toarray() if self._dense else cells
        self._labels = labels
        self._loss = loss
        self._weight = weight
        self._lam = lam

    def solve(self, tilt: Floats, start: Floats, accuracy: float) -> Floats:
        """The solution for every column of ``tilt``, from ``start``.

        λ-strong convexity bounds the distance to the solution by ‖gradient‖/λ; that is at most
        ``accuracy`` times the larger of ‖w‖ and one, unless rounding stops the search before.
        """
        columns = [self._column(tilt[:, c], start[:, c], c, accuracy) for c in range(tilt.shape[1])]
        return np.stack(columns, axis=1)

    def _column(self, tilt: Floats, start: Floats, column: int, accuracy: float) -> Floats:
        w, labels = start, self._labels[:, column]
        value = self._value(w, tilt, labels)
        for _ in range(_MOST_STEPS):
            z: Floats = self._x @ w
            slopes = self._loss.u(z, labels)
            gradient = self._lam * w - tilt - self._weight * (self._x.T @ slopes)
            size = float(np.linalg.norm(w))
            if float(np.linalg.norm(gradient)) <= accuracy * self._lam * max(size, 1.0):
                break
            direction = self._direction(gradient, self._loss.curvature(z, labels))
            found = self._search(w, direction, float(gradient @ direction), value, tilt, labels)
            if found is None:
                break
            w, value = found
        return w

    def _value(self, w: Floats, tilt: Floats, labels: Floats) -> float:
        losses = float(self._loss.value(self._x @ w, labels).sum())
        return self._weight * losses + float(w @ (0.5 * self._lam * w - tilt))

    def _direction(self, gradient: Floats, curvature: Floats) -> Floats:
        """−H⁻¹ times the gradient, with H = SᵀS + λI and S = √(cD) X, by Cholesky's method.

        Where there are fewer samples than features, H⁻¹ = (I − Sᵀ(SSᵀ + λI)⁻¹S)/λ is cheaper.
        """
        rows, columns = self._x.shape
        scaled: Any = sp.diags_array(np.sqrt(self._weight * curvature)) @ self._x
        if rows >= columns:
            return -self._inverted(scaled.T @ scaled, gradient)
        inner = self._inverted(scaled @ scaled.T, scaled @ gradient)
        direction: Floats = (scaled.T @ inner - gradient) / self._lam
        return direction

    def _inverted(self, gram: Any, right: Floats) -> Floats:
        """(gram + λI)⁻¹ times a vector."""
        matrix: Floats = gram if self._dense else gram.toarray()
        matrix.flat[:: len(matrix) + 1] += self._lam
        solution: Floats = scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix), right)
        return solution

    def _search(
        self,
        w: Floats,
        direction: Floats,
        slope: float,
        value: float,
        tilt: Floats,
        labels: Floats,
    ) -> tuple[Floats, float] | None:
        """The first of the steps 1, 1/2, 1/4, … that falls enough; None where none does."""
        step = 1.0
        for _ in range(40):
            moved = w + step * direction
            new = self._value(moved, tilt, labels)
            if new <= value + _ARMIJO * step * slope + _ROUNDING * abs(value):
                return moved, new
            step /= 2
        return None


# ── options ────────────────────────────────────────────────────────────────────────────


class FeddcdOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """FedDCD: how far dual variables move, and how well local problems are solved.

    Attributes
    ----------
    step
        η over the strong convexity λ of every local function: the paper's step is 1, and the dual
        objective falls with anything below 2.
    accuracy
        Local problems are solved until a bound on the distance to their solution, relative to its
        size or to one, is at most this.
    """

    step: float = 1.0
    accuracy: float = 1e-9

    def __post_init__(self) -> None:
        if not 0 < self.step < 2:
            raise ConfigError(f"step is {self.step:g}; give a multiple of λ above 0 and below 2")
        if not self.accuracy > 0:
            raise ConfigError(f"accuracy is {self.accuracy:g}; give a number above 0, try 1e-9")


# ── the coordinator ────────────────────────────────────────────────────────────────────


class Missed(NamedTuple):
    """A mean that a party has a part in and did not get."""

    iteration: int
    totals: IncrementTotals
    parties: int


class FeddcdCoordinator(RoundCoordinator):
    """The last mean down, each party's share of the change up; then the new mean down.

    Whoever falls silent before it has the new mean gets it before it takes part again: if only the
    others moved, the y_k would no longer add up to zero.
    """

    steps = (Step(LOCAL, gets=("v",), gives=("v",)), Step(MERGE, gets=("v",)))
    everyone = False

    def __init__(self) -> None:
        self._missed: dict[str, Missed] = {}

    def set_up(self, run: RoundsState, unit: float) -> None:
        turns = [run.participation.present(turn) for turn in range(1, 51)]
        if len(run.holdings.parties) > 1 and min(map(len, turns)) < 2:
            raise ConfigError(
                "solver 'feddcd' needs two parties or more in every iteration, since it moves them "
                "towards their mean; let more take part, or use 'hyfdca'"
            )
        if isinstance(run.participation, Cyclic) and run.participation.groups > 1:
            raise ConfigError(
                "solver 'feddcd' needs parties that mix, but cyclic groups never meet; use a "
                "fraction, or 'hyfdca'"
            )
        super().set_up(run, unit)

    def settled(self, run: RoundsState) -> bool:
        return not self._missed

    def tell(self, run: RoundsState, step: Step, messages: Mapping[str, RoundRequest]) -> None:
        """How many take part in the mean."""
        for message in messages.values():
            message.weight = len(messages)

    def ask(
        self,
        run: RoundsState,
        step: Step,
        present: list[str],
        riders: list[Request[Any, Any]],
    ) -> list[str]:
        left = super().ask(run, step, present, riders)
        lost = set(present).difference(left)
        if step is self.steps[1] and lost:
            missed = Missed(run.iteration, run.sums["v"].copy(), len(present))
            self._missed.update(dict.fromkeys(lost, missed))
        return left

    def prepare(self, run: RoundsState, present: list[str]) -> list[str]:
        """Let those who missed a mean catch up first; who still has not must wait."""
        self._catch_up(run, present)
        return run.contributors.of([p for p in present if p not in self._missed])

    def _catch_up(self, run: RoundsState, present: list[str]) -> None:
        """Ask for a missed merge again, under the totals of its iteration."""
        late = [party for party in present if party in self._missed]
        if not late:
            return
        round_ = run.adder.advance()
        messages = {}
        for party in late:
            missed = self._missed[party]
            messages[party] = RoundRequest(
                round=round_,
                iteration=missed.iteration,
                ack=run.ack[party],
                weight=missed.parties,
                v=missed.totals.blocks([party]).get(party),
            )
        replies = run.channel.ask(MERGE, messages)
        replies.stop_on_refusal()
        run.note_missing(replies.missing)
        for party, reply in replies.answered.items():
            run.take_sequence(party, reply.sequence)
            del self._missed[party]


# ── a party ────────────────────────────────────────────────────────────────────────────


class FeddcdParty(RoundParty):
    """y of this party, and w_k = argmin f_k(w) − ⟨y, w⟩ as it was found last."""

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        self.options = settings.read_options(FeddcdOptions)
        self._total = self.join("v", self.longest)
        self._tilt: Floats = np.zeros_like(self.w)
        self._local: Floats = np.zeros_like(self.w)
        #: What counts as w_k in the mean: where guards hold it back, the last mean.
        self._told: Floats = np.zeros_like(self.w)
        #: How many were asked to take part.
        self._asked = 1
        weight = self.view.n_parties * self.sample_weight
        own = self.view.trained_rows
        cells = self.table.compressed()[own]
        self._problem = LocalProblem(cells, self.labels[own], self.loss, weight, settings.lam)

    def variables(self) -> dict[str, NDArray[Any]]:
        return {"w": self.w, "tilt": self._tilt, "local": self._local, "told": self._told}

    def take_variables(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.w, self._tilt = state["w"].copy(), state["tilt"].copy()
        self._local, self._told = state["local"].copy(), state["told"].copy()

    def point(self, totals: Model) -> Floats:
        return self.opened("v", totals.v, self.w)

    def handlers(self) -> dict[StepPhase, Handler]:
        return {LOCAL: self._on_local, MERGE: self._on_merge}

    def _on_local(self, message: RoundRequest) -> RoundReply:
        """The last mean ↓, this party's share of the way to the next ↑."""
        last = self.point(message)
        self._local = self._problem.solve(self._tilt, self._local, self.options.accuracy)
        self.check_size(self._local)
        self._told = np.where(self._enough(), self._local, last)
        self._asked = self._number_of(message)
        shared = self.view.n_shared_columns
        self.w = self._told.copy()
        self.w[:shared] = last[:shared]
        reply = RoundReply()
        if shared:
            change = (self._told - last)[:shared] / self._asked
            reply.v = self._total.add(change, message.v_pads)
        return reply

    def _enough(self) -> NDArray[np.bool_]:
        """Per class, whether w_k is made of so many samples that it shows none."""
        slopes = self.loss.u(self.table.products(None, self._local), self.labels)
        return self.enough(slopes != 0.0)

    def _number_of(self, message: RoundRequest) -> int:
        """How many have a part in the mean."""
        parties = message.weight
        if parties is None or not self.contributors <= parties <= self.view.n_parties:
            raise ProtocolError(f"a request wants a mean over {parties} parties")
        return parties

    def _on_merge(self, message: RoundRequest) -> RoundReply:
        """The mean ↓; y moves towards it."""
        last, self.w = self.w, self.point(message)
        # Who fell silent counts in the total as one who stayed, but has no part in the mean.
        mean = last + (self.w - last) * (self._asked / self._number_of(message))
        eta = self.options.step * self.settings.lam
        self._tilt = self._tilt - eta * (self._told - mean)
        return RoundReply()


# ── the method ─────────────────────────────────────────────────────────────────────────

FEDDCD = Algorithm(
    "feddcd",
    FeddcdCoordinator,
    FeddcdParty,
    "dual coordinate descent over parties, which solve local problems",
    options=FeddcdOptions,
    tuned=bounds(step=(0.1, 1.9), accuracy=(1e-10, 1e-1)),
    reads=("certify_every",),
    cut="rows",
    losses="smooth",
    weighs=True,
    guarantee="the optimum, certified, with sets of two parties or more that mix",
    trips="2",
    reference="Fan, Fang and Friedlander 2022",
    coordinator_sees="ciphertexts; totals of losses and norms",
    parties_see="w of all features, as a mean over all who take part",
)
