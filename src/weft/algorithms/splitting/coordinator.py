"""Block-splitting ADMM, the coordinator's half: two totals an iteration, and the penalty."""

from __future__ import annotations

import math

from weft.algorithms.rounds.coordinator import RoundCoordinator, Scalars
from weft.algorithms.rounds.run import Phase, Rounds
from weft.algorithms.splitting.options import AdmmOptions
from weft.channels import Message

#: Iterations between looks at the residuals, and the last iteration of such a look: where ρ
#: changes a finite number of times, ADMM converges as with a constant ρ.
_EVERY = 5
_LAST = 500
#: How far apart residuals may be, and the factor by which ρ changes then.
_RATIO = 2.0
_FACTOR = 1.5


class AdmmCoordinator(RoundCoordinator):
    """Totals of local copies of w by feature, and of c − Σ_k z_k by sample, in one round trip.

    The residuals are compared without ρ, that is, how far the copies are from each other with how
    far they moved: neither changes when the problem is multiplied by a constant.
    """

    phases = (Phase("local", gets=("v", "z"), gives=("v", "z"), scalars=(("residual", 2),)),)
    windows = ()
    model_of = ("v", "z")

    def tell(self, run: Rounds, phase: Phase, present: list[str]) -> dict[str, Message]:
        rho = self._rho(run)
        return {party: {"rho": rho} for party in present}

    def take(self, run: Rounds, phase: Phase, scalars: Scalars) -> None:
        """Of the iteration before: ‖copies − consensus‖² and ‖change of the consensus‖²."""
        found = scalars["residual"]
        automatic = run.settings.read_options(AdmmOptions).rho == "auto"
        if found is None or not automatic or run.iteration % _EVERY or run.iteration > _LAST:
            return
        apart, moved = (math.sqrt(max(total, 0.0)) for total in found)
        if apart > _RATIO * moved:
            run.memory["rho"] = self._rho(run) * _FACTOR
        elif moved > _RATIO * apart:
            run.memory["rho"] = self._rho(run) / _FACTOR

    def _rho(self, run: Rounds) -> float:
        given = run.settings.read_options(AdmmOptions).rho
        if given != "auto":
            return given
        return run.memory.get("rho", math.sqrt(run.settings.lam / run.roster.rows.n_slots))
