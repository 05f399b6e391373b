"""DiSCO in the catalogue."""

from __future__ import annotations

from weft.solvers.declaration import Algorithm, bounds
from weft.solvers.disco.coordinator import DiscoCoordinator, DiscoOptions
from weft.solvers.disco.party import DiscoParty
from weft.solvers.settings import Settings


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
