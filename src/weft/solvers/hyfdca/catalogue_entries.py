"""HyFDCA in the catalogue, with what it needs and guarantees."""

from __future__ import annotations

from typing import Literal

import msgspec

from weft.errors import ConfigError
from weft.guards.privacy_terms import Terms
from weft.matching.party_view import PartyView
from weft.solvers.algorithm_entry import Algorithm, Range
from weft.solvers.hyfdca.coordinator import HyfdcaCoordinator
from weft.solvers.hyfdca.party import HyfdcaParty
from weft.solvers.hyfdca.sum_count_forecast import forecast_hyfdca
from weft.solvers.run_settings import Settings


def _check(settings: Settings) -> None:
    # Per party the share is of N / parties, of which a party can hold a multiple; a cohort cannot.
    if settings.local == "safe" and settings.iic > 1:
        raise ConfigError(
            f"iic is {settings.iic:g}; give a positive share of the samples, at most 1"
        )


def settle_norms(settings: Settings, terms: Terms) -> Settings:
    """Norms of samples where the terms allow them, else bounds per cohort."""
    if settings.norms != "auto":
        return settings
    chosen: Literal["sample", "cohort"] = "cohort"
    if terms.allow_sample_norms or settings.local != "safe":
        chosen = "sample"
    return msgspec.structs.replace(settings, norms=chosen)


def norms_beyond_terms(settings: Settings, terms: Terms, view: PartyView) -> str:
    """Norms of single samples, where the terms allow none."""
    bounds = settings.norms == "cohort" and settings.local == "safe"
    if settings.local == "practical" or bounds or terms.allow_sample_norms:
        return ""
    remedy = "set norms = 'cohort'" if settings.local == "safe" else "use local = 'safe'"
    return f"to share the norms of single samples; {remedy}, or agree on allow_sample_norms = true"


def _follows_draws(settings: Settings) -> bool:
    # The safe method draws per cohort: no party needs to know how much another one draws.
    return settings.local != "safe"


def _tuned(settings: Settings, least_iic: float) -> dict[str, Range]:
    return {"iic": (least_iic, 1.0)}


HYFDCA = Algorithm(
    "hyfdca",
    HyfdcaCoordinator,
    HyfdcaParty,
    "primal-dual training on any overlap of rows and columns, any subset of parties",
    reads=("local", "iic", "gamma", "norms", "certify_every"),
    ours=True,
    papers=True,
    guarantee="the optimum, certified",
    trips="2 (rows: 1); 3 to 5 for practical and theory",
    reference="Overman, Blum and Klabjan 2022, Algorithm 1; safe steps are ours",
    coordinator_sees=("ciphertexts; totals of losses and norms; which samples are drawn"),
    parties_see="z and α of their samples, w of their features",
    check=_check,
    settle=settle_norms,
    beyond_terms=norms_beyond_terms,
    follows_draws=_follows_draws,
    forecast=forecast_hyfdca,
    tuned=_tuned,
)
