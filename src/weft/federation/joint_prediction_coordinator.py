"""The coordinator's side of joint prediction: scores of new samples, added up unread.

It is the same in one process and over a network.
"""

from __future__ import annotations

from secrets import token_bytes

from weft.crypto import Adder
from weft.errors import ConfigError
from weft.federation.messages import (
    JOINT_PARTIAL,
    JOINT_SCORES,
    JOINT_SIZE,
    PartialScoresRequest,
    ScoresRequest,
)
from weft.federation.participation_terms_and_classes.coordinator import announce
from weft.guards.privacy_terms import Matching
from weft.matching.coordinator import meet
from weft.matching.overlap_rule import Overlap
from weft.protocol import Channel
from weft.sums.coordinator_totals import IncrementTotals
from weft.sums.maxima_from_digit_sums import units_above
from weft.sums.shared_slots_by_party import Layout


def sum_scores(
    channel: Channel,
    *,
    model: bytes,
    width: int,
    cipher: str,
    overlap: Overlap,
    matching: Matching = "hmac",
    asker: str | None = None,
    run: bytes | None = None,
) -> bytes | None:
    """Match the new samples and add up the partial scores.

    Parameters
    ----------
    model, width
        Fingerprint of the model, and how many scores it gives a sample.
    overlap
        What counts for a cell that several parties hold, as in training; parties that know
        otherwise by their model refuse.
    asker
        The party that alone gets scores, of its own samples; None: every holder does.
    run
        Sixteen random bytes that name the run; None: fresh ones.

    Returns
    -------
    bytes
        The scores, sealed by the party that asked to itself; None where nobody asked.
    """
    parties = channel.parties
    if asker is not None and asker not in parties:
        raise ConfigError(f"'{asker}' asks for scores, but is no party of this run; let it join")
    adder = Adder(cipher)
    run = token_bytes(16) if run is None else run
    announced = announce(channel, run, sorts=False, hides=cipher != "plain")
    holdings = meet(
        channel,
        adder,
        run=run,
        keys=announced.keys,
        classes=None,
        overlap=overlap,
        confirm_separate_ids=True,
        # Columns have the names of the model's features, whatever other names look like them.
        confirmed=("names",),
        follow_draws=False,
        matching=matching,
        holders=announced.holders,
    )
    (unit,) = units_above(channel, adder, JOINT_SIZE).tolist()
    number = None if asker is None else parties.index(asker)
    round_ = adder.advance()
    messages = {
        party: PartialScoresRequest(round=round_, unit=unit, model=model, asker=number)
        for party in parties
    }
    totals = IncrementTotals("z", Layout(holdings.rows, parties), width, adder)
    totals.invite(messages)
    totals.add(channel.ask(JOINT_PARTIAL, messages).insist("joint prediction"))
    round_ = adder.advance()
    readers = parties if asker is None else (asker,)
    scores = {party: ScoresRequest(round=round_) for party in readers}
    for party, block in totals.blocks(readers).items():
        scores[party].z = block
    replies = channel.ask(JOINT_SCORES, scores).insist("joint prediction")
    return None if asker is None else replies[asker].scores
