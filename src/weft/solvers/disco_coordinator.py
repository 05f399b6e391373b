"""DiSCO, the coordinator's half: which vector is summed next, by public totals alone."""

from __future__ import annotations

from typing import Literal

import msgspec

from weft.errors import ConfigError
from weft.protocol import Message
from weft.solvers.rounds.coordinator import RoundCoordinator, Scalars
from weft.solvers.rounds.run_state import Phase, RoundsState

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

    phases = (
        Phase("local", gets=("v",), gives=("v",), scalars=(("objective", 1), ("residual", 1))),
    )
    model_of = ()

    def find(self, run: RoundsState, largest: list[float]) -> dict[str, float]:
        chosen = run.settings.read_options(DiscoOptions).precondition
        if chosen == "first" and run.holdings.columns.n_slots > MOST_DENSE:
            raise ConfigError(
                f"precondition = 'first' factors a matrix of all features, of which there are "
                f"{run.holdings.columns.n_slots}; use 'diagonal'"
            )
        run.memory.update(mode=GRADIENT, best=_FAR, products=0, halvings=0)
        return {}

    def tell(self, run: RoundsState, phase: Phase, present: list[str]) -> dict[str, Message]:
        return {party: {"mode": int(run.memory["mode"])} for party in present}

    def take(self, run: RoundsState, phase: Phase, scalars: Scalars) -> None:
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
