"""ADMM, with what it needs and guarantees."""

from __future__ import annotations

from weft.solvers.admm.coordinator import AdmmCoordinator
from weft.solvers.admm.options import AdmmOptions
from weft.solvers.admm.party import AdmmParty
from weft.solvers.declaration import Algorithm, bounds

SPLITTING = (
    Algorithm(
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
    ),
)
