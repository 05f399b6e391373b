"""All algorithms: the list, and which of them a run uses."""

from __future__ import annotations

from collections.abc import Callable, Sized
from difflib import get_close_matches

import msgspec

from weft.errors import ConfigError
from weft.guards.privacy_terms import Terms
from weft.inference.standard_error_requirements import refuse_few_samples, refuse_few_sites
from weft.matching.holding_map import HoldingMap
from weft.solvers.admm import ADMM
from weft.solvers.algorithm_entry import Algorithm
from weft.solvers.cocoa import COCOA, COCOA_PLUS, SDCA
from weft.solvers.d3ca import D3CA
from weft.solvers.disco import DISCO
from weft.solvers.fedavg_fedprox_hyfem import FEDAVG, FEDPROX, HYFEM
from weft.solvers.feddcd import FEDDCD
from weft.solvers.fedhybrid.method import FEDHYBRID
from weft.solvers.hyfdca.catalogue_entries import HYFDCA
from weft.solvers.run_settings import AUTO, DEFAULTS, Settings
from weft.solvers.secret_sharing.catalogue_entry import SEALED, why_not_sealed, why_not_these_tables
from weft.solvers.subspace.catalogue_entries import SUBSPACE
from weft.solvers.subspace.settings import GO_ON
from weft.solvers.vertical_sgd import FEDBCD, FEDSGD

#: By name, in the order in which they are listed and recommended.
ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        *(HYFDCA, *SUBSPACE, SEALED, FEDHYBRID, FEDAVG, FEDPROX, HYFEM, FEDSGD, FEDBCD, DISCO),
        *(COCOA, COCOA_PLUS, SDCA, D3CA, FEDDCD, ADMM),
    )
}

# ── which of them will run ────────────────────────────────────────────────────────────────────────


#: What ``mode = "auto"`` says when it trains on shares, with the price.
SEALED_CHOSEN = (
    "mode: sealed, since the loss is smooth: nobody sees a score, a slope "
    "or a weight on the way; the price is five round trips a gradient, a word for every cell at "
    "every party, and a coordinator that must neither lie nor collude with a party"
)

#: What it adds where folds choose λ.
SCORED_BY_LOSS = "folds choose λ by the loss of what they leave out, since nobody knows accuracies"


def sums_instead(why: str) -> str:
    """What ``mode = "auto"`` says when it does not, with the price."""
    return (
        f"mode: sums, since {why}; the price is that label holders see scores, holders of samples "
        "their slopes and so labels, and holders of columns weights"
    )


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


def recommended(fits: Callable[[Algorithm], bool]) -> Algorithm:
    """The first algorithm that Weft recommends and that fits."""
    return next(a for a in ALGORITHMS.values() if a.ours and fits(a))


def for_any_parties() -> Algorithm:
    """The recommended algorithm for parties that come and go."""
    return recommended(lambda algorithm: not algorithm.everyone)


def resolve(settings: Settings, *, saves: bool = False, warm: bool = False) -> tuple[Settings, str]:
    """Settings with a solver that can do what they ask for, and why it was chosen.

    Parameters
    ----------
    saves
        Whether the run shall save checkpoints.
    warm
        Whether the run shall start from a model.

    Returns
    -------
    settings, reason
        The reason is empty where the settings name a solver themselves.
    """
    settings, reason = _in_mode(settings, saves, warm)
    if settings.solver == AUTO:
        name, why = _choice(settings, saves)
        settings = msgspec.structs.replace(settings, solver=name)
        reason = f"{reason}. {why}" if reason else why
    _check(algorithm_of(settings.solver), settings, saves, warm)
    return settings, reason


def settled(settings: Settings, *, saves: bool = False, warm: bool = False) -> tuple[Settings, str]:
    """As `resolve`, but a setting that the solver does not read is refused rather than ignored.

    Settings at their default are not refused: they may not have been given at all.
    """
    chosen, reason = resolve(settings, saves=saves, warm=warm)
    for name, readers in _readers().items():
        value = getattr(chosen, name)
        if value != DEFAULTS[name] and chosen.solver not in readers:
            known = " and ".join([", ".join(readers[:-1]), readers[-1]] if readers[1:] else readers)
            raise ConfigError(
                f"{name} = {value!r} is for solver {known}, but this run's is '{chosen.solver}', "
                "which does not know it; leave it out, or change the solver"
            )
    return chosen, reason


def _in_mode(settings: Settings, saves: bool, warm: bool) -> tuple[Settings, str]:
    """Settings with the solver of their mode, and why ``auto`` chose it."""
    if settings.mode == "sealed":
        if settings.solver not in (AUTO, SEALED.name):
            raise ConfigError(
                f"mode = 'sealed' has a solver of its own, but solver is '{settings.solver}'; "
                "leave it out"
            )
        return _sealed(settings), ""
    if settings.mode == "sums" or settings.solver != AUTO:
        return settings, ""
    reason = why_not_sealed(settings)
    if saves:
        reason = reason or "it keeps no checkpoints"
    if warm:
        reason = reason or "it starts from no model"
    if reason:
        return settings, sums_instead(f"sealed training does not do this: {reason}")
    chosen = f"{SEALED_CHOSEN}; {SCORED_BY_LOSS}" if settings.folds else SEALED_CHOSEN
    return _sealed(settings), chosen


def _sealed(settings: Settings) -> Settings:
    """Settings of sealed training; standard errors are made of the Hessian there."""
    moments = settings.second_moments
    if settings.inference != "none" and "hessian" not in moments:
        moments = (*moments, "hessian")
    return msgspec.structs.replace(settings, solver=SEALED.name, second_moments=moments)


def in_sums(
    settings: Settings,
    holdings: HoldingMap,
    classes: Sized | None,
    terms: Terms,
    *,
    saves: bool = False,
    warm: bool = False,
) -> tuple[Settings, str] | None:
    """The same in sums where ``auto`` chose sealed training and the tables are not for it.

    Parameters
    ----------
    classes
        Those of the labels; None: they are responses.

    Returns
    -------
    settings, reason
        With a solver for sums, and why; None: nothing is to be changed.
    """
    if settings.mode != "auto" or settings.solver != SEALED.name:
        return None
    targets = 1 if classes is None or len(classes) == 2 else len(classes)
    why = why_not_these_tables(holdings, targets, terms)
    if not why:
        return None
    moments = () if settings.inference != "none" else settings.second_moments
    asked = msgspec.structs.replace(settings, solver=AUTO, mode="sums", second_moments=moments)
    chosen, reason = resolve(asked, saves=saves, warm=warm)
    return chosen, f"{sums_instead(why)}. {reason}"


def keep_going(settings: Settings) -> Settings:
    """Let the other parties go on while one is away, for it may come back.

    Algorithms that do not read ``when_missing`` go on anyway, or have nothing that could.
    """
    chosen, _ = resolve(settings)
    if "when_missing" not in algorithm_of(chosen.solver).reads or not settings.may_hand_over:
        return settings
    return msgspec.structs.replace(settings, when_missing=GO_ON)


def algorithms_of(settings: Settings) -> tuple[Algorithm, ...]:
    """The algorithm of a run, and the one that stands in for it when a party stays away."""
    algorithm = algorithm_of(settings.solver)
    other = algorithm.stand_in(settings)
    return (algorithm,) if other is None else (algorithm, algorithm_of(other))


def _readers() -> dict[str, tuple[str, ...]]:
    """Settings that not every solver reads, and those that do."""
    return {
        name: tuple(a.name for a in ALGORITHMS.values() if name in a.reads)
        for name in sorted({name for a in ALGORITHMS.values() for name in a.reads})
    }


def _choice(settings: Settings, saves: bool) -> tuple[str, str]:
    """By participation, by what else only one can, then by the loss."""
    flexible = for_any_parties()
    changed = [n for n in flexible.reads if getattr(settings, n) != DEFAULTS[n]]
    why = ""
    if settings.coordinator_sees == "papers":
        why = "coordinator_sees = 'papers' is its protocol"
    elif changed:
        why = f"{changed[0]} is set"
    elif saves:
        why = "the run saves checkpoints"
    if why:
        return flexible.name, f"solver: {flexible.name}, since {why}"
    smooth = settings.make_loss().smooth
    losses, kind = ("smooth", "is smooth") if smooth else ("kinks", "has kinks")
    name = recommended(lambda algorithm: algorithm.losses == losses).name
    when = "" if settings.all_take_part else "; its questions wait until every party has come by"
    return name, f"solver: {name}, since loss '{settings.loss}' {kind}{when}"


def _check(algorithm: Algorithm, settings: Settings, saves: bool, warm: bool) -> None:
    """Refuse early what an algorithm cannot do, and name one that can."""
    settings.read_options(algorithm.options)
    algorithm.check(settings)
    _check_loss(algorithm, settings)
    name = algorithm.name
    if settings.second_moments and not algorithm.shares:
        raise ConfigError(
            "second_moments are made on shares, in sealed training alone, but this run's solver "
            f"is '{name}'; set mode = 'sealed' in [privacy], or leave second_moments out"
        )
    if settings.inference != "none" and not algorithm.infers:
        able = ", ".join(a.name for a in ALGORITHMS.values() if a.infers)
        raise ConfigError(
            f"solver '{name}' makes no sums for standard errors; use one of {able} with everyone "
            "in every iteration, or leave inference out"
        )
    if not settings.penalize_intercept and not algorithm.free_intercept:
        able = " and ".join(a.name for a in ALGORITHMS.values() if a.free_intercept)
        raise ConfigError(
            f"solver '{name}' penalises the intercept like any other weight; set "
            f"penalize_intercept = true, or use a smooth loss with one of {able}"
        )
    if algorithm.everyone and not algorithm.waits and not settings.all_take_part:
        raise ConfigError(
            f"solver '{name}' needs every party in every iteration, but participation is "
            f"{settings.participation!r}; let solver = 'auto' choose, or use "
            f"'{for_any_parties().name}'"
        )
    if settings.coordinator_sees == "papers" and not algorithm.papers:
        able = recommended(lambda other: other.papers).name
        raise ConfigError(
            f"coordinator_sees = 'papers' is the protocol of '{able}', not of '{name}'; use that "
            "solver, or 'weights'"
        )
    if settings.weigh == "parties" and not algorithm.weighs:
        able = ", ".join(other.name for other in ALGORITHMS.values() if other.weighs)
        raise ConfigError(
            f"solver '{name}' lets all samples weigh the same, but weigh is 'parties'; use one of "
            f"{able}, or leave it out"
        )
    if settings.groups > 1 and "groups" not in algorithm.reads:
        raise ConfigError(
            f"groups is {settings.groups}, but solver '{name}' has no cuts to group; leave it out"
        )
    if saves and not algorithm.saves:
        able = recommended(lambda other: other.saves).name
        raise ConfigError(
            f"solver '{name}' keeps no checkpoints, its runs being short; leave them out, or use "
            f"solver '{able}'"
        )
    if algorithm.spans:
        return
    for wanted, what in (
        (len(settings.lambdas) > 1 and not algorithm.paths, "several values of lambda"),
        (settings.folds and not algorithm.folds, "folds"),
        (warm, "a model to start from"),
    ):
        if wanted:
            raise ConfigError(f"solver '{name}' does not take {what}; use solver 'auto'")


def _check_loss(algorithm: Algorithm, settings: Settings) -> None:
    loss = settings.make_loss()
    name, smooth = algorithm.name, loss.smooth
    if loss.joint and not algorithm.joint_losses:
        able = " or ".join(a.name for a in ALGORITHMS.values() if a.joint_losses)
        raise ConfigError(
            f"solver '{name}' trains every class by itself, but loss '{settings.loss}' is of all "
            f"classes at once; use {able}, or family 'binomial'"
        )
    if not loss.bounded and not algorithm.any_curvature:
        able = " or ".join(a.name for a in ALGORITHMS.values() if a.any_curvature)
        raise ConfigError(
            f"solver '{name}' needs a loss whose slope or curvature is bounded, unlike "
            f"'{settings.loss}'; use {able}"
        )
    trained = smooth or (algorithm.losses == "rounded" and loss.rounds)
    if algorithm.losses in ("smooth", "rounded") and not trained:
        able = recommended(lambda other: other.losses == "kinks").name
        raise ConfigError(
            f"solver '{name}' needs a smooth loss, but '{settings.loss}' has a kink; use "
            f"'{able}', or let solver = 'auto' choose"
        )
    if algorithm.losses == "kinks" and smooth:
        able = recommended(lambda other: other.losses == "smooth").name
        raise ConfigError(
            f"solver '{name}' is for losses with kinks, but '{settings.loss}' is smooth; use "
            f"'{able}', or let solver = 'auto' choose"
        )


def check_inference(settings: Settings, holdings: HoldingMap, classes: int, *, sites: bool) -> None:
    """Refuse standard errors that the tables, as they are cut, have no place for.

    ``classes``: how many problems are trained, one for a response and for two classes. ``sites``:
    whether parties have a column of their own, for the intercept of their site.
    """
    if settings.inference == "none":
        return
    joint = settings.make_loss().joint
    if classes > 1 and not joint:
        raise ConfigError(
            f"inference is for a response or two classes, but there are {classes}, each trained "
            "against the rest, which is no likelihood of all; use family 'multinomial', name two "
            "(positive = [...] in [data]), or leave inference out"
        )
    if not algorithm_of(settings.solver).shares and not _alike(holdings, sites=sites):
        raise ConfigError(
            "inference in sums needs all columns of the model at every party, but some parties "
            "hold some of them only; set mode = 'sealed' in [privacy], or leave inference out"
        )
    contrasts = classes - 1 if joint else 1
    refuse_few_samples(holdings.n_samples, holdings.columns.n_slots * contrasts)
    refuse_few_sites(settings.inference, len(holdings.parties))


def _alike(holdings: HoldingMap, *, sites: bool) -> bool:
    """Whether all parties hold all columns, but for one of their own where there are ``sites``."""
    if not sites:
        return holdings.horizontal
    columns = holdings.columns
    holders, starts = columns.holders.lengths, columns.start[:-1]
    own = (holders == 1) & (columns.sizes == 1)
    shared = (holders == len(holdings.parties)) | (starts == holdings.bias_slot)
    return bool((shared | own).all())


def check_cut(settings: Settings, holdings: HoldingMap) -> None:
    """Refuse a table that is cut in a way that the algorithm cannot train on."""
    algorithm = algorithm_of(settings.solver)
    if settings.weigh == "parties" and holdings.rows.n_shared:
        raise ConfigError(
            "weigh = 'parties' needs every sample at one party, but some are at several; use "
            "'samples'"
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
        f"'{recommended(lambda other: other.cut == 'any').name}', or let solver = 'auto' choose"
    )
