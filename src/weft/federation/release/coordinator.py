"""How the model goes out, the coordinator's half: sealed slices to those who get it.

It carries letters that it cannot read, and says what the model lacks where a party is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from weft.crypto import Adder
from weft.errors import ConfigError, PartyAway, ProtocolError
from weft.federation.messages import (
    RELEASE,
    TAKE_MODEL,
    ModelRequest,
    ReleaseReply,
    ReleaseRequest,
)
from weft.federation.participation_terms_and_classes.coordinator import Announced
from weft.federation.release.model_header import Head
from weft.federation.release.noised_weights import NoiseSize
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Meter
from weft.protocol.shared_fields import Boxes
from weft.solvers.algorithm_choice import algorithm_of
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Result

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
        if settings.frees_weights:
            # Readers would refuse the model, each with a sentence about itself.
            raise PartyAway(
                f"{', '.join(replies.missing)} did not answer for its part of the proof, without "
                "which weights that have no penalty are not released; bring all parties back, and "
                "resume the run"
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
