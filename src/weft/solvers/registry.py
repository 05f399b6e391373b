"""Algorithms by name, and whether one of them can do what a run asks for."""

from __future__ import annotations

import math
from difflib import get_close_matches

import msgspec

from weft.errors import ConfigError
from weft.matching.holding_map import HoldingMap
from weft.solvers.catalogue import ALGORITHMS
from weft.solvers.declaration import Algorithm
from weft.solvers.settings import Settings

#: Lets loss and participation choose.
AUTO = "auto"
#: Whoever changes one of these, and names no solver, wants HyFDCA.
_HYFDCA_ONLY = ALGORITHMS["hyfdca"].reads


def algorithm_of(name: str) -> Algorithm:
    """The algorithm of that name."""
    if name == AUTO:
        raise ConfigError("'auto' is no algorithm: it lets loss and participation choose one")
    if name not in ALGORITHMS:
        known = sorted((AUTO, *ALGORITHMS))
        close = get_close_matches(name, known, 1)
        hint = f" (the closest is '{close[0]}')" if close else ""
        raise ConfigError(f"unknown solver '{name}'{hint}; choose one of {', '.join(known)}")
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
    settings.read_options(algorithm.options)
    _check_loss(algorithm, settings)
    name = algorithm.name
    if algorithm.everyone and not _complete(settings):
        other = "'hyfdca'" if algorithm.cut != "rows" else "'hyfdca', or 'fedavg'"
        raise ConfigError(
            f"solver '{name}' needs every party in every iteration, but participation is "
            f"{settings.participation!r}; use {other}"
        )
    if settings.coordinator_sees == "papers" and name != "hyfdca":
        raise ConfigError(
            f"coordinator_sees = 'papers' is the protocol of 'hyfdca', not of '{name}'; use that "
            "solver, or 'weights'"
        )
    if settings.weigh == "parties" and not algorithm.weighs:
        able = ", ".join(other.name for other in ALGORITHMS.values() if other.weighs)
        raise ConfigError(
            f"solver '{name}' lets all samples weigh the same, but weigh is 'parties'; use one of "
            f"{able}, or leave it out"
        )
    if settings.groups > 1 and name != "cutting-planes":
        raise ConfigError(
            f"groups is {settings.groups}, but solver '{name}' has no cuts to group; leave it out"
        )
    if saves and not algorithm.saves:
        raise ConfigError(
            f"solver '{name}' keeps no checkpoints, its runs being short; leave them out, or use "
            "solver 'hyfdca'"
        )
    if algorithm.spans:
        return
    for wanted, what in (
        (len(settings.lambdas) > 1, "several values of lambda"),
        (settings.folds, "folds"),
        (warm, "a model to start from"),
    ):
        if wanted:
            raise ConfigError(
                f"solver '{name}' does not take {what}; let everyone take part and use solver "
                "'auto'"
            )


def _check_loss(algorithm: Algorithm, settings: Settings) -> None:
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


def check_cut(settings: Settings, holdings: HoldingMap) -> None:
    """Refuse a table that is cut in a way that the algorithm cannot train on."""
    algorithm = algorithm_of(settings.solver)
    if settings.weigh == "parties" and holdings.rows.n_shared:
        raise ConfigError(
            f"weigh = 'parties' needs every sample at one party, but {holdings.rows.n_shared} are "
            "at several; use 'samples'"
        )
    rows = holdings.horizontal and holdings.rows.n_shared == 0
    columns = holdings.vertical and holdings.columns.n_shared == 0
    fits = {
        "any": True,
        "rows": rows,
        "columns": columns,
        "whole": len(holdings.parties) == 1,
    }[algorithm.cut]
    if fits:
        return
    needs = {
        "rows": "every party to have all features, and every sample at one party",
        "columns": "every party to have all samples, and every feature at one party",
        "whole": "the whole table at one party",
    }[algorithm.cut]
    raise ConfigError(
        f"solver '{algorithm.name}' needs {needs}, but these tables are cut in another way; use "
        "'hyfdca', or let solver = 'auto' choose"
    )
