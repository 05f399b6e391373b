"""The coordinator's side of a run, from the parties' announcements to the sealed model.

It is the same in one process and over a network: it knows a channel, and nothing of what is behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Sized
from secrets import token_bytes

import msgspec

from weft.crypto import Adder
from weft.errors import ConfigError
from weft.federation.leave_out_rare_classes_and_columns import leave_out_rare, remarks
from weft.federation.messages import (
    COUNT_CLASSES,
    START,
    CountRequest,
    StartRequest,
)
from weft.federation.participation_terms_and_classes.coordinator import Announced, announce
from weft.federation.preprocessing_settings import Preprocessing
from weft.federation.release.coordinator import Outcome, release
from weft.federation.solver_by_holdings import settle, settle_by_holdings
from weft.federation.weight_and_offset_letters.coordinator import relay_weights_and_offsets
from weft.losses.multinomial import MOST_CLASSES
from weft.matching.coordinator import meet
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel
from weft.solvers.algorithm_choice import (
    algorithm_of,
    check_cut,
    check_inference,
    resolve,
)
from weft.solvers.patient_channel import patient
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Checkpointing, Record
from weft.sums.maxima_from_digit_sums import units_above
from weft.sums.scalar_sums import add_scalars
from weft.sums.scaling_coordinator import agree_on_scaling
from weft.sums.table_scaling_and_certificate_messages import SIZE


def announce_for(
    channel: Channel, preprocessing: Preprocessing, settings: Settings, run: bytes, *, shares: bool
) -> Announced:
    """Announcements of a run with these settings, on shares or not, which may say the classes."""
    sorts = settings.make_loss().task != "regression"
    known = preprocessing.classes if sorts else None
    hides = settings.cipher != "plain"
    return announce(
        channel,
        run,
        sorts=sorts,
        hides=hides,
        shares=shares,
        classes=known,
        confirmed=preprocessing.confirmed,
    )


def check_samples(preprocessing: Preprocessing, settings: Settings) -> None:
    """Refuse offsets and weights where the solver lets all samples be alike."""
    algorithm, columns = algorithm_of(settings.solver), preprocessing.sample_columns
    named = columns.named
    what = f"column {named[0]!r} says something about samples" if named else ""
    # Where a kink is rounded off, guards look for it at a margin of one.
    weighs = algorithm.weighs_samples and (
        algorithm.losses != "rounded" or settings.make_loss().smooth
    )
    able = weighs or (algorithm.offsets and columns.weight is None)
    if settings.make_loss().joint and (columns.offset or columns.exposure):
        raise ConfigError(
            f"column {columns.offset or columns.exposure!r} would be added to the scores of all "
            "classes alike, which changes no probability of a multinomial model; leave it out"
        )
    if settings.class_weight is not None:
        what, able = "class_weight is set", weighs
    if what and not (able and settings.may_weigh):
        raise ConfigError(
            f"{what}, but solver '{settings.solver}' lets all samples weigh the same, without an "
            "offset; use lbfgs or newton-cg with a smooth loss, weigh = 'samples' and when_missing "
            "= 'stop', or leave it out"
        )


def check_classes(settings: Settings, classes: Sized | None) -> None:
    """Refuse a loss of all classes at once where two scores would say what one does."""
    if classes is None or not settings.make_loss().joint:
        return
    if len(classes) == 2:
        raise ConfigError(
            "family 'multinomial' (loss 'softmax') is for three classes or more, but there are "
            "two; use family 'binomial', which is the same model"
        )
    if len(classes) > MOST_CLASSES:
        raise ConfigError(
            f"family 'multinomial' (loss 'softmax') is for {MOST_CLASSES} classes at most, but "
            f"there are {len(classes)}; use family 'binomial', which trains each by itself"
        )


def check_reference(preprocessing: Preprocessing, parties: Sequence[str]) -> None:
    """Refuse a reference that takes no part: all sites would have an intercept beside it."""
    site = preprocessing.reference_site
    if site is None:
        return
    if site not in parties:
        raise ConfigError(
            f"reference_site is '{site}', but the parties are {', '.join(parties)}; name one of "
            "them"
        )
    if not preprocessing.intercept:
        raise ConfigError(
            "reference_site gives sites intercepts beside that of the model, which has none; set "
            "intercept = true, or leave it out"
        )


def balanced_classes(
    channel: Channel, settings: Settings, announced: Announced, adder: Adder
) -> Settings:
    """Settings with the weights of balanced classes, from how many samples each has."""
    classes = announced.classes
    if settings.class_weight != "balanced":
        return settings
    if classes is None:
        raise ConfigError("class_weight is for classes, but this problem has responses; drop it")
    told = CountRequest(round=adder.advance())
    answered = channel.ask(COUNT_CLASSES, dict.fromkeys(channel.parties, told)).insist("counting")
    counts = add_scalars(answered, "counts", len(classes), answered)
    assert counts is not None
    names = [str(name) for name in classes]
    weights = {
        name: sum(counts) / (len(counts) * count)
        for name, count in zip(names, counts, strict=True)
        if count
    }
    return msgspec.structs.replace(settings, class_weight=weights)


def assemble(
    channel: Channel,
    preprocessing: Preprocessing,
    settings: Settings,
    announced: Announced,
    run: bytes,
    adder: Adder,
) -> HoldingMap:
    """Match the parties' samples and features, leave out what is rare, agree on scaling."""
    holdings = match(channel, preprocessing, settings, announced, run, adder)
    return prepare(channel, preprocessing, settings, holdings, adder)


def match(
    channel: Channel,
    preprocessing: Preprocessing,
    settings: Settings,
    announced: Announced,
    run: bytes,
    adder: Adder,
) -> HoldingMap:
    """Match the parties' samples and features."""
    algorithm = algorithm_of(settings.solver)
    return meet(
        channel,
        adder,
        classes=announced.agreed,
        overlap=preprocessing.overlap,
        bias=preprocessing.intercept_scaling if preprocessing.intercept else None,
        confirm_separate_ids=preprocessing.confirm_separate_ids,
        sites=preprocessing.reference_site is not None,
        confirmed=preprocessing.confirmed,
        follow_draws=algorithm.follows_draws(settings),
        compare_units="units" not in preprocessing.confirmed,
        terms=announced.terms,
        sealed=algorithm.shares,
        matching=preprocessing.matching,
        holders=announced.holders,
        run=run,
        keys=announced.keys,
    )


def prepare(
    channel: Channel,
    preprocessing: Preprocessing,
    settings: Settings,
    holdings: HoldingMap,
    adder: Adder,
) -> HoldingMap:
    """Leave out what is rare, and agree on scaling."""
    holdings = leave_out_rare(channel, holdings, adder)
    agree_on_scaling(
        channel,
        holdings,
        preprocessing.scaling,
        preprocessing.unit_rows,
        adder,
        settings.trained_factors,
    )
    return holdings


def coordinate(
    channel: Channel,
    preprocessing: Preprocessing,
    settings: Settings,
    *,
    run: bytes | None = None,
    progress: Callable[[Record], None] | None = None,
    checkpointing: Checkpointing | None = None,
    start_lam: float | None = None,
    adder: Adder | None = None,
) -> Outcome:
    """Run an algorithm from the announcements to the sealed model.

    Parameters
    ----------
    run
        Sixteen random bytes that name the run; None: fresh ones. A run that is repeated from what
        it was told before must have the same.
    start_lam
        λ of the model that the parties start from; None: they start from nothing.
    adder
        The coordinator's half of the cipher, new, for a caller who reads its costs during the run;
        None: one is made.
    """
    adder = adder or Adder(settings.cipher)
    run = token_bytes(16) if run is None else run
    warm, saves = start_lam is not None, checkpointing is not None
    # What no algorithm can do is refused before anybody is asked for anything.
    chosen, _ = resolve(settings, saves=saves, warm=warm)
    check_samples(preprocessing, chosen)
    check_reference(preprocessing, channel.parties)
    if algorithm_of(chosen.solver).waits:
        # A party that never comes by is named now; who waits for whom is known with the solver.
        patient(channel, chosen)
    shares = algorithm_of(chosen.solver).shares
    announced = announce_for(channel, preprocessing, settings, run, shares=shares)
    check_classes(settings, announced.classes)
    asked = settings
    settings, reason = settle(asked, announced.terms, saves=saves, warm=warm)
    holdings = match(channel, preprocessing, settings, announced, run, adder)
    classes, terms = announced.classes, announced.terms
    if preprocessing.sample_columns.named and terms.allow_told_columns and adder.linked:
        relay_weights_and_offsets(channel)
    settings, reason = settle_by_holdings(
        asked,
        (settings, reason),
        holdings,
        classes,
        terms,
        preprocessing,
        solvers=announced.solvers,
        saves=saves,
        warm=warm,
    )
    holdings = prepare(channel, preprocessing, settings, holdings, adder)
    check_cut(settings, holdings)
    sites = preprocessing.reference_site is not None
    check_inference(settings, holdings, announced.width, sites=sites)
    settings = balanced_classes(channel, settings, announced, adder)
    named = preprocessing.sample_columns.named
    unit, label, *more = units_above(channel, adder, SIZE, 4 if named else 2).tolist()
    offset, weight = more if named else (0.0, 1.0)
    told = StartRequest(
        settings=settings.to_json(),
        unit=unit,
        label=label,
        offset=offset,
        weight=weight,
        smallest_lam=min(settings.smallest_lam, math.inf if start_lam is None else start_lam),
    )
    channel.ask(START, dict.fromkeys(channel.parties, told)).insist("starting")
    asking = patient(channel, settings) if algorithm_of(settings.solver).waits else channel
    result = algorithm_of(settings.solver).coordinator().run(
        asking,
        holdings,
        settings,
        adder,
        unit=unit,
        label=label,
        offset=offset,
        weight=weight * settings.largest_class_weight,
        classes=announced.width,
        progress=progress,
        checkpointing=checkpointing,
        warm=warm,
    )  # fmt: skip
    result.notes[:0] = [*([reason] if reason else []), *remarks(holdings)]
    bias = preprocessing.intercept_scaling if preprocessing.intercept else None
    return release(channel, holdings, settings, adder, result, announced, run, bias)
