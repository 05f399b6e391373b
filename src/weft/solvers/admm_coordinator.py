"""Block-splitting ADMM, the coordinator's half: two totals an iteration, and the penalty."""

from __future__ import annotations

import math

from weft.protocol import Message
from weft.solvers.admm_options import AdmmOptions
from weft.solvers.rounds.coordinator import RoundCoordinator, Scalars
from weft.solvers.rounds.run_state import Phase, RoundsState

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

    phases = (Phase("local", gets=("v", "z"), gives=("v", "z"), scalars=(("residual", 2),)),)
    windows = ()
    model_of = ("v", "z")

    def tell(self, run: RoundsState, phase: Phase, present: list[str]) -> dict[str, Message]:
        rho = self._rho(run)
        return {party: {"rho": rho} for party in present}

    def take(self, run: RoundsState, phase: Phase, scalars: Scalars) -> None:
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
