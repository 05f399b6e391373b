"""Algorithms by name, each with what it needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

import msgspec

from weft.algorithms.base import Coordinator, PartyFactory
from weft.algorithms.hyfdca import HyfdcaCoordinator, HyfdcaParty
from weft.algorithms.settings import Settings
from weft.algorithms.span.coordinator import (
    CuttingPlanesCoordinator,
    LbfgsCoordinator,
    NewtonCgCoordinator,
)
from weft.algorithms.span.party import SpanParty
from weft.errors import ConfigError


@dataclass(frozen=True)
class Algorithm:
    """A solver: its two halves, one line on what it does, and what it needs.

    Attributes
    ----------
    losses
        ``any``, ``smooth`` ones only, or only those with ``kinks``.
    everyone
        Whether every party must take part in every iteration. Such solvers also train paths of
        λ, leave out folds and start from a model.
    """

    name: str
    coordinator: type[Coordinator]
    party: PartyFactory
    about: str
    losses: Literal["any", "smooth", "kinks"] = "any"
    everyone: bool = False


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "hyfdca",
            HyfdcaCoordinator,
            HyfdcaParty,
            "primal-dual training on any overlap of rows and columns, any subset of parties",
        ),
        Algorithm(
            "cutting-planes",
            CuttingPlanesCoordinator,
            SpanParty,
            "certified in about a hundred round trips; losses with kinks, everyone takes part",
            losses="kinks",
            everyone=True,
        ),
        Algorithm(
            "lbfgs",
            LbfgsCoordinator,
            SpanParty,
            "quasi-Newton in two round trips an iteration; smooth losses, everyone takes part",
            losses="smooth",
            everyone=True,
        ),
        Algorithm(
            "newton-cg",
            NewtonCgCoordinator,
            SpanParty,
            "Newton's method in a trust region; smooth losses, everyone takes part",
            losses="smooth",
            everyone=True,
        ),
    )
}
#: Lets loss and participation choose.
AUTO = "auto"
SOLVERS = (AUTO, *ALGORITHMS)
#: Settings that only HyFDCA reads; whoever changes one of them wants HyFDCA.
_HYFDCA_ONLY = ("local", "iic", "gamma", "norms", "certify_every")


def algorithm_of(name: str) -> Algorithm:
    """The algorithm of that name."""
    if name not in ALGORITHMS:
        close = get_close_matches(name, SOLVERS, 1)
        hint = f" (the closest is '{close[0]}')" if close else ""
        raise ConfigError(
            f"unknown solver '{name}'{hint}; choose one of {', '.join(sorted(SOLVERS))}"
        )
    return ALGORITHMS[name]


def resolve(settings: Settings, *, saves: bool = False, warm: bool = False) -> tuple[Settings, str]:
    """Settings with a solver that can do what they ask for, and why it was chosen.

    Parameters
    ----------
    saves
        Whether the run shall save checkpoints, which only HyFDCA keeps.
    warm
        Whether the run shall start from a model.

    Returns
    -------
    settings, reason
        The reason is empty where the settings name a solver themselves.
    """
    reason = ""
    if settings.solver == AUTO:
        name, reason = _choice(settings, saves)
        settings = msgspec.structs.replace(settings, solver=name)
    _check(algorithm_of(settings.solver), settings, saves, warm)
    return settings, reason


def _choice(settings: Settings, saves: bool) -> tuple[str, str]:
    """By participation, by what else only HyFDCA can, then by the loss."""
    defaults = {f.name: f.default for f in msgspec.structs.fields(Settings)}
    changed = [n for n in _HYFDCA_ONLY if getattr(settings, n) != defaults[n]]
    why = ""
    if not _complete(settings):
        why = "parties come and go"
    elif settings.coordinator_sees == "papers":
        why = "coordinator_sees = 'papers' is its protocol"
    elif changed:
        why = f"{changed[0]} is set"
    elif saves:
        why = "the run saves checkpoints"
    if why:
        return "hyfdca", f"solver: hyfdca, since {why}"
    smooth = math.isfinite(settings.make_loss().smoothness)
    name, kind = ("lbfgs", "is smooth") if smooth else ("cutting-planes", "has kinks")
    return name, f"solver: {name}, since everyone takes part and loss '{settings.loss}' {kind}"


def _complete(settings: Settings) -> bool:
    """Whether everyone takes part in every iteration."""
    return settings.participation in ("everyone", 1)


def _check(algorithm: Algorithm, settings: Settings, saves: bool, warm: bool) -> None:
    """Refuse early what an algorithm cannot do, and name one that can."""
    name, smooth = algorithm.name, math.isfinite(settings.make_loss().smoothness)
    if algorithm.losses == "smooth" and not smooth:
        raise ConfigError(
            f"solver '{name}' needs a smooth loss, but '{settings.loss}' has a kink; use "
            "'cutting-planes', or let solver = 'auto' choose"
        )
    if algorithm.losses == "kinks" and smooth:
        raise ConfigError(
            f"solver '{name}' is for losses with kinks, but '{settings.loss}' is smooth; use "
            "'lbfgs', or let solver = 'auto' choose"
        )
    if algorithm.everyone:
        if not _complete(settings):
            raise ConfigError(
                f"solver '{name}' needs every party in every iteration, but participation is "
                f"{settings.participation!r}; use 'hyfdca'"
            )
        if settings.coordinator_sees == "papers":
            raise ConfigError(
                f"coordinator_sees = 'papers' is the protocol of 'hyfdca', not of '{name}'; use "
                "that solver, or 'weights'"
            )
        if settings.groups > 1 and smooth:
            raise ConfigError(
                f"groups is {settings.groups}, but solver '{name}' has no cuts to group; leave it "
                "out"
            )
        if saves:
            raise ConfigError(
                f"solver '{name}' keeps no checkpoints, its runs being short; leave them out, or "
                "use solver 'hyfdca'"
            )
        return
    for wanted, what in (
        (len(settings.lambdas) > 1, "several values of lambda"),
        (settings.folds, "folds"),
        (settings.groups > 1, "groups"),
        (warm, "a model to start from"),
    ):
        if wanted:
            raise ConfigError(
                f"solver '{name}' does not take {what}; let everyone take part and use solver "
                "'auto'"
            )
