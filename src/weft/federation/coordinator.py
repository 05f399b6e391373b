"""The coordinator's side of a run, from the parties' announcements to the sealed model.

It is the same in one process and over a network: it knows a channel, and nothing of what is behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from secrets import token_bytes

import msgspec
import numpy as np

from weft.crypto import Adder
from weft.errors import ConfigError, PartyAway, ProtocolError
from weft.federation.announcements.coordinator import Announced, announce
from weft.federation.messages import (
    COUNT_CLASSES,
    RELEASE,
    START,
    TAKE_MODEL,
    CountRequest,
    ModelRequest,
    ReleaseReply,
    ReleaseRequest,
    StartRequest,
)
from weft.federation.preprocessing_settings import Preprocessing
from weft.federation.rare_samples import leave_out_rare, remarks
from weft.federation.release.model_header import Head
from weft.federation.release.noised_weights import NoiseSize
from weft.federation.told_columns import tell_columns
from weft.guards.terms import Terms
from weft.losses.multinomial import MOST_CLASSES
from weft.matching.coordinator import meet
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Meter
from weft.protocol.shared_fields import Boxes
from weft.solvers.algorithm_choice import (
    algorithm_of,
    check_cut,
    check_inference,
    in_sums,
    resolve,
)
from weft.solvers.base import Checkpointing, Record, Result
from weft.solvers.patient_channel import patient
from weft.solvers.settings import Settings
from weft.sums.feature_scaling import agree_on_scaling
from weft.sums.masked_maxima import units_above
from weft.sums.messages import SIZE
from weft.sums.scalar_sums import add_scalars

#: Seconds between two tries to get the model from a party that does not answer.
_PAUSE = 1.0


@dataclass
class Outcome:
    """How a run ended, as far as its coordinator knows.

    Attributes
    ----------
    settings
        Those of the run, with the solver that was chosen.
    letters
        Per reader of the model and per party: its slice, which only the reader can open.
    run
        Random name of the run, which the letters are written for.
    adder
        The coordinator's half of the cipher.
    exposed
        Parties that showed another as many sums about samples as it lacks columns, by their own
        count; None: some did not count.
    """

    result: Result
    holdings: HoldingMap
    meter: Meter
    settings: Settings
    head: Head
    letters: dict[str, dict[str, bytes]]
    run: bytes
    adder: Adder
    exposed: tuple[str, ...] | None


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
    able = algorithm.weighs_samples or (algorithm.offsets and columns.weight is None)
    if settings.make_loss().joint and (columns.offset or columns.exposure):
        raise ConfigError(
            f"column {columns.offset or columns.exposure!r} would be added to the scores of all "
            "classes alike, which changes no probability of a multinomial model; leave it out"
        )
    if settings.class_weight is not None:
        what, able = "class_weight is set", algorithm.weighs_samples
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


def settle(
    settings: Settings, terms: Terms, *, saves: bool = False, warm: bool = False
) -> tuple[Settings, str]:
    """Settings with all that they leave to Weft chosen, and why the solver was."""
    settings, reason = resolve(settings, saves=saves, warm=warm)
    return algorithm_of(settings.solver).settle(settings, terms), reason


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
    asking = patient(channel, chosen) if algorithm_of(chosen.solver).waits else channel
    shares = algorithm_of(chosen.solver).shares
    announced = announce_for(channel, preprocessing, settings, run, shares=shares)
    check_classes(settings, announced.classes)
    settings, reason = settle(settings, announced.terms, saves=saves, warm=warm)
    holdings = match(channel, preprocessing, settings, announced, run, adder)
    classes, terms = announced.classes, announced.terms
    if preprocessing.sample_columns.named and terms.allow_told_columns and adder.linked:
        tell_columns(channel)
    other = in_sums(settings, holdings, classes, terms, saves=saves, warm=warm)
    if other is not None:
        settings, reason = other
        settings, _ = settle(settings, announced.terms, saves=saves, warm=warm)
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


# ── the model ─────────────────────────────────────────────────────────────────────────────


def release(
    channel: Channel,
    holdings: HoldingMap,
    settings: Settings,
    adder: Adder,
    result: Result,
    announced: Announced,
    run: bytes,
    bias: float | None = None,
) -> Outcome:
    """Carry every party's sealed columns of w to those who get the model."""
    proved = None
    if settings.noise is not None:
        proved = _noise(holdings, settings, result, announced, bias)
    replies = _sealed(channel, settings, result, proved)
    _admit_losses(holdings, result)
    recipients = announced.recipients
    if recipients is not None:
        result.notes.append(
            f"by the roster the model goes to {', '.join(recipients)} and to nobody else: hand it "
            "on to them only"
        )
    if settings.frees_weights:
        result.notes.append(
            "some weights have no penalty, and a small one stood in for it while training; whoever "
            "reads the model takes off what that did, with a proof (what a coordinator certifies "
            "is the fit with the small one)"
        )
    if settings.opens_matrices:
        result.notes.append(_moments_in_words(settings, recipients))
    head = Head.of(settings, result, announced.classes, holdings.parties, recipients)
    letters = _sorted_out(replies)
    _deliver(channel, head, letters, result)
    return Outcome(
        result, holdings, channel.meter, settings, head, letters, run, adder, _exposed(replies)
    )


def _moments_in_words(settings: Settings, recipients: Sequence[str] | None) -> str:
    """What was opened beside the model, and to whom."""
    called = {"hessian": "the Hessian of the mean loss", "gram": "the Gram matrix XᵀX"}
    what = " and ".join(called[name] for name in settings.second_moments)
    if not what:
        what = "sums for standard errors, the Hessian among them,"
    whom = "whoever gets the model" if recipients is None else ", ".join(recipients)
    return (
        f"second moments: {what} went to {whom}, sealed as the model is: they tell means, spreads "
        "and correlations of all columns over all samples; no file of this run holds them"
    )


def _exposed(replies: Mapping[str, ReleaseReply]) -> tuple[str, ...] | None:
    if any(reply.exposed is None for reply in replies.values()):
        return None
    return tuple(party for party, reply in replies.items() if reply.exposed)


def _noise(
    holdings: HoldingMap,
    settings: Settings,
    result: Result,
    announced: Announced,
    bias: float | None,
) -> float:
    """What the certificate proves of a model that is to get noise; refused if it is too little."""
    size = NoiseSize.of(
        settings,
        samples=holdings.n_samples,
        classes=announced.width,
        holders=int(holdings.rows.holders.lengths.max()),
        bias=bias,
    )
    proof = result.certificate
    above = None if proof is None else sum(proof.primal) - sum(proof.dual)
    if above is None or not above <= size.gap or result.gone:
        raise ConfigError(
            "the model gets noise for the gap that was asked for, but is not certified to that; "
            "nothing is released: allow more iterations, or ask for a larger gap and more noise"
        )
    noise = settings.noise
    assert noise is not None
    result.notes.append(
        f"the released model has noise of standard deviation {size.sigma:.3g} in every weight, for "
        f"ε = {noise.epsilon:g} and δ = {noise.delta:g}; its certificate is of the model without it"
    )
    return max(0.0, above)


def _sealed(
    channel: Channel, settings: Settings, result: Result, proved: float | None
) -> dict[str, ReleaseReply]:
    """The slices of all parties that are there; who stays away for too long counts as gone."""
    answered: dict[str, ReleaseReply] = {}
    began = channel.elapsed
    while True:
        message = ReleaseRequest(
            model=result.model_iteration, everything=bool(result.gone), suboptimality=proved
        )
        waiting = [p for p in channel.parties if p not in answered and p not in result.gone]
        if not waiting:
            raise ProtocolError(
                "no party is left to answer for its part of the model; bring them back, and resume "
                "the run"
            )
        replies = channel.ask(RELEASE, dict.fromkeys(waiting, message))
        replies.stop_on_refusal()
        answered.update(replies.answered)
        if not replies.missing:
            return {party: answered[party] for party in channel.parties if party in answered}
        if channel.elapsed - began < settings.patience:
            channel.pause(_PAUSE)
            continue
        if algorithm_of(settings.solver).shares:
            raise PartyAway(
                f"{', '.join(replies.missing)} did not answer for its share of the model, which is "
                "worth nothing without it; bring all parties back, and resume the run"
            )
        result.gone = tuple(p for p in channel.parties if p in {*result.gone, *replies.missing})
        # Others answer for its features now, as far as they hold them.
        answered.clear()


def lost_features(holdings: HoldingMap, gone: Sequence[str]) -> int:
    """Features that only parties hold which are gone."""
    numbers = [holdings.index[party] for party in gone]
    columns = holdings.columns
    return sum(
        int(size)
        for cohort, size in enumerate(columns.sizes.tolist())
        if numbers and np.isin(columns.holders[cohort], numbers).all()
    )


def _admit_losses(holdings: HoldingMap, result: Result) -> None:
    """Features that only parties hold which are gone have no weight in the model."""
    lost = lost_features(holdings, result.gone)
    if lost:
        result.certificate = None
        result.notes.append(
            f"the model lacks {lost} feature(s) that only {', '.join(result.gone)} holds, and is "
            "not certified without them"
        )


def _sorted_out(replies: Mapping[str, ReleaseReply]) -> dict[str, dict[str, bytes]]:
    """Letters by reader, then by writer."""
    letters: dict[str, dict[str, bytes]] = {}
    for party, reply in replies.items():
        for reader, letter in zip(reply.readers.tolist(), reply.boxes.cut(), strict=True):
            letters.setdefault(reader, {})[party] = letter
    return letters


def _deliver(
    channel: Channel, head: Head, letters: Mapping[str, Mapping[str, bytes]], result: Result
) -> None:
    """Parties that get the model join it themselves."""
    readers = [p for p in channel.parties if p in letters and p not in result.gone]
    if not readers:
        return
    told = {reader: _parcel(head, letters[reader], result.gone) for reader in readers}
    replies = channel.ask(TAKE_MODEL, told)
    replies.stop_on_refusal()
    for party, failure in replies.missing.items():
        result.notes.append(f"{party} did not get the model ({failure.reason}); send it to them")


def _parcel(head: Head, letters: Mapping[str, bytes], gone: Sequence[str]) -> ModelRequest:
    return ModelRequest(
        head=head.to_json(),
        writers=np.array(list(letters), dtype=str),
        boxes=Boxes.of(list(letters.values())),
        everything=bool(gone),
    )
