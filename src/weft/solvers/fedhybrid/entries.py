"""FedHybrid in the catalogue."""

from __future__ import annotations

from weft.solvers.declaration import Algorithm, Range
from weft.solvers.fedhybrid.coordinator import FedhybridCoordinator
from weft.solvers.fedhybrid.options import FedhybridOptions
from weft.solvers.fedhybrid.party import FedhybridParty
from weft.solvers.settings import Settings


def _alone(settings: Settings) -> str:
    theory = settings.read_options(FedhybridOptions).steps == "theory"
    return "bounds on the curvature" if theory else ""


def _tuned(settings: Settings, least_iic: float) -> dict[str, Range]:
    options = settings.read_options(FedhybridOptions)
    if options.steps == "auto":
        return {"primal": (1e-2, 1e1), "dual": (1e-2, 1e1)}
    if options.steps == "theory":
        return {}
    found: dict[str, Range] = {"mu": (1e-2, 1e4)}
    # One step for both types of parties can be tuned, a pair cannot.
    return found | {
        name: (1e-5, 25.0) for name in ("a", "b") if not isinstance(getattr(options, name), list)
    }


FEDHYBRID = Algorithm(
    "fedhybrid",
    FedhybridCoordinator,
    FedhybridParty,
    "gradient-type and Newton-type parties in one primal-dual method",
    options=FedhybridOptions,
    reads=("certify_every",),
    cut="rows",
    losses="smooth",
    weighs=True,
    guarantee="the optimum, at a linear rate under steps = 'theory'; parties that come and go are "
    "experimental",
    trips="1",
    reference="Niu and Wei 2021, Algorithm 1",
    coordinator_sees="ciphertexts; totals of losses, norms, residuals and curvatures (steps = "
    "'theory': every party's curvature)",
    parties_see="w, a mean over all parties",
    shown_alone=_alone,
    tuned=_tuned,
)
