"""Algorithms by name, each with what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from weft.algorithms.base import Coordinator, PartyFactory
from weft.algorithms.hyfdca import HyfdcaCoordinator, HyfdcaParty
from weft.algorithms.span.coordinator import (
    CuttingPlanesCoordinator,
    LbfgsCoordinator,
    NewtonCgCoordinator,
)
from weft.algorithms.span.party import SpanParty
from weft.errors import ConfigError


@dataclass(frozen=True)
class Algorithm:
    """A solver: its two halves, and one line on what it does."""

    name: str
    coordinator: type[Coordinator]
    party: PartyFactory
    about: str


ALGORITHMS = {
    "hyfdca": Algorithm(
        "hyfdca",
        HyfdcaCoordinator,
        HyfdcaParty,
        "primal-dual training on any overlap of rows and columns, any subset of parties",
    ),
    "cutting-planes": Algorithm(
        "cutting-planes",
        CuttingPlanesCoordinator,
        SpanParty,
        "certified in about a hundred round trips; losses with kinks, everyone takes part",
    ),
    "lbfgs": Algorithm(
        "lbfgs",
        LbfgsCoordinator,
        SpanParty,
        "quasi-Newton in two round trips an iteration; smooth losses, everyone takes part",
    ),
    "newton-cg": Algorithm(
        "newton-cg",
        NewtonCgCoordinator,
        SpanParty,
        "Newton's method in a trust region; smooth losses, everyone takes part",
    ),
}


def algorithm_of(name: str) -> Algorithm:
    """The algorithm of that name."""
    if name not in ALGORITHMS:
        close = get_close_matches(name, ALGORITHMS, 1)
        hint = f" (the closest is '{close[0]}')" if close else ""
        raise ConfigError(
            f"unknown solver '{name}'{hint}; choose one of {', '.join(sorted(ALGORITHMS))}"
        )
    return ALGORITHMS[name]
