"""Vertical FedSGD and FedBCD, with what they need and guarantee."""

from __future__ import annotations

from weft.solvers.declaration import Algorithm, bounds
from weft.solvers.fedsgd.coordinator import FedsgdCoordinator
from weft.solvers.fedsgd.options import FedbcdOptions, FedsgdOptions
from weft.solvers.fedsgd.party import FedbcdParty, FedsgdParty

#: Shortest and longest step that is tried.
_RATE = (1e-5, 25.0)
_TRIPS = "1; 2 with holders without labels"
_SEES = "ciphertexts; totals of losses and norms; which samples are drawn"
_PARTIES = "z of the samples drawn at label holders, slopes of the loss at the others"

COLUMNS = (
    Algorithm(
        "fedsgd",
        FedsgdCoordinator,
        FedsgdParty,
        "stochastic gradient descent on columns, one step between two exchanges",
        options=FedsgdOptions,
        tuned=bounds(rate=_RATE),
        reads=("certify_every",),
        cut="columns",
        everyone=True,
        sample_sums=1,
        guarantee="the optimum for smooth losses with all samples in a batch; else near it",
        trips=_TRIPS,
        reference="Liu et al. 2022 (FedBCD), the case of one local step",
        coordinator_sees=_SEES,
        parties_see=_PARTIES,
    ),
    Algorithm(
        "fedbcd",
        FedsgdCoordinator,
        FedbcdParty,
        "block coordinate descent on columns: several steps between two exchanges",
        options=FedbcdOptions,
        tuned=bounds(rate=_RATE, local_steps=(1.0, 50.0)),
        reads=("certify_every",),
        cut="columns",
        everyone=True,
        sample_sums=1,
        guarantee="the optimum for smooth losses with all samples in a batch and small steps",
        trips=_TRIPS,
        reference="Liu et al. 2022 (FedBCD-p; with mu > 0, FedPBCD-p)",
        coordinator_sees=_SEES,
        parties_see=_PARTIES,
    ),
)
