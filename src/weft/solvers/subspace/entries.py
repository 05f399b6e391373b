"""The solvers for full participation in the catalogue, with what they need and guarantee."""

from __future__ import annotations

from functools import partial

import msgspec

from weft.guards.terms import Terms
from weft.matching.party_view import PartyView
from weft.solvers.algorithm import Algorithm, bounds
from weft.solvers.hyfdca.entries import HYFDCA, norms_beyond_terms, settle_norms
from weft.solvers.settings import Settings
from weft.solvers.subspace.coordinator import (
    CuttingPlanesCoordinator,
    LbfgsCoordinator,
    NewtonCgCoordinator,
)
from weft.solvers.subspace.newton_cg import MOST_PRODUCTS
from weft.solvers.subspace.party import SubspaceParty
from weft.solvers.subspace.sum_forecast import SubspaceForecast


def _stand_in(settings: Settings) -> str | None:
    return HYFDCA.name if settings.hands_over else None


def _beyond_terms(settings: Settings, terms: Terms, view: PartyView) -> str:
    few = settings.groups * terms.min_batch
    if settings.groups > 1 and (view.exposed & (view.sizes < few)).any():
        return (
            f"groups = {settings.groups}, which cuts some of its samples into parts of fewer than "
            f"min_batch = {terms.min_batch}; use fewer groups"
        )
    if not settings.hands_over:
        return ""
    # Standing in, HyFDCA is always safe; its norms could still be those of single samples.
    safe = msgspec.structs.replace(settings, local="safe", gamma="auto")
    return norms_beyond_terms(safe, terms, view)


_subspace = partial(
    Algorithm,
    party=SubspaceParty,
    everyone=True,
    spans=True,
    saves=False,
    ours=True,
    guarantee="the optimum, certified",
    coordinator_sees=(
        "ciphertexts; totals of losses and norms; inner products of combined dual vectors"
    ),
    parties_see="z and dual vectors of their samples, w of their features",
    settle=settle_norms,
    beyond_terms=_beyond_terms,
    stand_in=_stand_in,
)

SUBSPACE = (
    _subspace(
        "cutting-planes",
        CuttingPlanesCoordinator,
        about="certified in about a hundred round trips; losses with kinks, everyone takes part",
        reads=("groups", "patience", "when_missing"),
        losses="kinks",
        trips="2; 3 with groups or holders without labels",
        reference="Franc and Sonnenburg 2009 (OCAS); Teo et al. 2010 (BMRM); on sums, ours",
        forecast=SubspaceForecast(most=2 + 1, usual=1.7, fitted=(1.7, 0.32, 0.6)),
        tuned=bounds(groups=(1.0, 100.0)),
    ),
    _subspace(
        "lbfgs",
        LbfgsCoordinator,
        about="quasi-Newton in two round trips an iteration; smooth losses, everyone takes part",
        reads=("patience", "when_missing"),
        losses="smooth",
        trips="2; 3 with holders without labels",
        reference="Liu and Nocedal 1989; on sums, with dual bounds, ours",
        forecast=SubspaceForecast(most=1 + 1 + 1, usual=1.0, fitted=(2.1, 0.21, 0.47)),
    ),
    _subspace(
        "newton-cg",
        NewtonCgCoordinator,
        about="Newton's method in a trust region; smooth losses, everyone takes part",
        reads=("patience", "when_missing"),
        losses="smooth",
        trips="2 a Hessian product and 2 a step",
        reference="Lin, Weng and Keerthi 2008; on sums, ours",
        forecast=SubspaceForecast(
            most=1 + MOST_PRODUCTS + 1 + 1, usual=12.0, fitted=(23.0, 0.12, 0.12)
        ),
    ),
)
