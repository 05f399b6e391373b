"""Matching over the channel: the parties tell tokens, the coordinator gives each a view."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.crypto import Adder
from weft.crypto.key_and_seed_messages import RunKeys, SeedPlan
from weft.errors import DataError, ProtocolError
from weft.fast_small_array_operations import cut
from weft.guards.privacy_terms import OPEN, Matching, Terms
from weft.matching.assign_cohort_seed_makers import add_tags, deliver, plan_seeds
from weft.matching.authenticated_class_list import AgreedClasses
from weft.matching.build_holdings import Holding, LabelConflict, build_holdings
from weft.matching.holding_map import HoldingMap
from weft.matching.id_and_name_forms import MOST_BARE
from weft.matching.messages import (
    CONFLICT,
    KEYS,
    SIMILAR,
    TOKENS,
    UNITS,
    VIEW,
    ConflictRequest,
    KeysRequest,
    SimilarRequest,
    TokensReply,
    TokensRequest,
    UnitsRequest,
    ViewReply,
    ViewRequest,
)
from weft.matching.oprf_relay import tokens_through_holders
from weft.matching.overlap_rule import Overlap
from weft.matching.tamper_proof_sample_count import add_told
from weft.matching.two_spellings import SimilarNames
from weft.matching.unit_mismatches import OtherUnits, check_units
from weft.protocol import Channel
from weft.protocol.shared_fields import Everyone

Scalar = TypeVar("Scalar", bound=np.generic)


def meet(
    channel: Channel,
    adder: Adder,
    *,
    run: bytes,
    keys: Mapping[str, RunKeys],
    classes: AgreedClasses | None,
    overlap: Overlap = "mean",
    bias: float | None = None,
    confirm_separate_ids: bool = False,
    sites: bool = False,
    confirmed: Collection[str] = (),
    follow_draws: bool = True,
    compare_units: bool = False,
    terms: Terms = OPEN,
    sealed: bool = False,
    matching: Matching = "hmac",
    holders: Sequence[str] | None = None,
) -> HoldingMap:
    """Coordinator: collect tokens, build the holdings, tell every party its view, carry boxes.

    Parameters
    ----------
    adder
        Learns the parties' public keys.
    run
        Sixteen random bytes that name the run.
    keys
        What every party announced of its keys.
    classes
        The class values that the parties agreed on, None for regression.
    bias
        Value of the constant column, None for no constant column.
    confirmed
        What looks like a slip and is meant to be so: "names", "ids".
    follow_draws
        Whether parties must be able to compute each other's draws.
    compare_units
        Whether columns in other units stop the run.
    terms
        What the parties agreed on.
    sealed
        Whether training is on shares.
    matching
        Whether tokens come from the run secret alone, or also through key holders.
    holders
        Who holds a key for matching, in their order; None: the first two parties.
    """
    parties = channel.parties
    told = told_holdings(
        channel,
        run=run,
        keys=keys,
        classes=classes,
        matching=matching,
        holders=holders,
        linked=adder.linked,
    )
    try:
        holdings = build_holdings(
            parties,
            told,
            overlap=overlap,
            bias=bias is not None,
            confirm_separate_ids=confirm_separate_ids,
            sites=sites,
            confirmed=confirmed,
            terms=terms,
            sealed=sealed,
        )
    except LabelConflict as conflict:
        raise DataError(_found(channel, conflict), told=conflict.told) from None
    except SimilarNames as names:
        raise DataError(name_similar(channel, names), told=names.told) from None
    plans: list[SeedPlan] = []
    if adder.linked:
        cards = [keys[party].card(party) for party in parties]
        plans = plan_seeds(holdings, cards, places=adder.whole)
    views = {
        party: ViewRequest(
            view=holdings.view(number, follow_draws=follow_draws),
            units=compare_units,
            bias_value=bias,
            seeds=plans[number] if plans else None,
        )
        for number, party in enumerate(parties)
    }
    replies = channel.ask(VIEW, views).insist("seating")
    if compare_units:
        try:
            told_units = {party: replies[party].units for party in parties}
            check_units(told_units, holdings.shared_features)
        except OtherUnits as units:
            raise DataError(name_units(channel, units), told=units.told) from None
    adder.meet(parties, _key(replies), replies[parties[0]].shared_public or b"")
    adder.channel = channel
    boxes = {party: KeysRequest() for party in parties}
    if adder.linked:
        boxes = deliver(parties, plans, replies)
        samples = add_told((replies[party].samples for party in parties), "samples")
        for party, tags in add_tags(holdings, replies).items():
            boxes[party].tags = tags
            boxes[party].samples = samples
    # Asked under every cipher, so that a run takes the same round trips.
    channel.ask(KEYS, boxes).insist("handing out keys")
    return holdings.without_tokens()


def told_holdings(
    channel: Channel,
    *,
    run: bytes,
    keys: Mapping[str, RunKeys],
    classes: AgreedClasses | None,
    matching: Matching = "hmac",
    holders: Sequence[str] | None = None,
    linked: bool = True,
) -> list[Holding]:
    """What every party says it holds, as tokens; parameters are those of `meet`.

    ``linked``: whether the cipher hides anything, so that parties are told who takes part.
    """
    parties = channel.parties
    check_secrets({party: keys[party].mark for party in parties})
    question = TokensRequest(run=run, matching=matching, classes=classes)
    if linked:
        question.company = Everyone(keys=b"".join(keys[party].card(party) for party in parties))
    tokens = _tokens(channel, question, holders)
    return [_holding(party, tokens[party]) for party in parties]


def _tokens(
    channel: Channel, question: TokensRequest, holders: Sequence[str] | None
) -> dict[str, TokensReply]:
    """The parties' tokens: one round trip, or six through key holders."""
    if question.matching == "oprf":
        return tokens_through_holders(channel, question, holders)
    return channel.ask(TOKENS, dict.fromkeys(channel.parties, question)).insist("matching")


def _found(channel: Channel, conflict: LabelConflict) -> str:
    """The parties concerned say which rows of theirs have the labels: only they know."""
    asked = {party: ConflictRequest(places=places) for party, places in conflict.places.items()}
    refused = channel.ask(CONFLICT, asked).missing
    return conflict.sentence({party: failure.reason for party, failure in refused.items()})


def name_similar(channel: Channel, names: SimilarNames) -> str:
    """The parties concerned tell their owners which columns it is; over a network nobody else."""
    asked = {party: SimilarRequest(places=places) for party, places in names.places.items()}
    refused = channel.ask(SIMILAR, asked).missing
    return names.sentence({party: failure.reason for party, failure in refused.items()})


def name_units(channel: Channel, units: OtherUnits) -> str:
    """The same for columns in other units."""
    asked = {party: UnitsRequest(places=places) for party, places in units.places.items()}
    refused = channel.ask(UNITS, asked).missing
    return units.sentence({party: failure.reason for party, failure in refused.items()})


def check_secrets(marks: Mapping[str, str]) -> None:
    """Refuse parties whose run secrets differ: they would see noise in each other's sums.

    ``marks`` are the fingerprints of the secrets, by party.
    """
    first = next(iter(marks))
    for party, mark in marks.items():
        if mark != marks[first]:
            raise ProtocolError(
                f"parties {first} and {party} hold different run secrets; hand out one with "
                "`weft keys new` and let both use it"
            )


def _key(replies: Mapping[str, ViewReply]) -> int:
    """The public number of the run's key, which all parties must name."""
    numbers = {party: reply.key for party, reply in replies.items()}
    first = next(iter(numbers))
    for party, number in numbers.items():
        if number != numbers[first]:
            raise ProtocolError(f"parties {first} and {party} derived different keys; use one run")
    return numbers[first]


def _holding(party: str, reply: TokensReply) -> Holding:
    rows, places = reply.rows, reply.loose_rows
    loose = rows.copy()
    inside = not len(places) or (places.min() >= 0 and places.max() < len(rows))
    if not inside or len(places) != len(reply.loose):
        raise ProtocolError(f"party {party} sent loose forms of other rows than its own")
    loose[places] = reply.loose
    bare = reply.bare
    if len(bare) > min(len(rows), MOST_BARE) or (bare[1:] <= bare[:-1]).any():
        raise ProtocolError(f"party {party} sent ids without their beginning that are not its own")
    return Holding(
        rows=_cut(party, rows, reply.row_counts),
        columns=_cut(party, reply.columns, reply.column_counts),
        labelled=_cut(party, reply.labelled, reply.row_counts),
        labels=_cut(party, reply.labels, reply.row_counts),
        loose=loose,
        bare=bare,
        similar=_of_columns(party, reply),
    )


def _of_columns(party: str, reply: TokensReply) -> NDArray[np.uint64]:
    if len(reply.similar) != len(reply.columns):
        raise ProtocolError(f"party {party} sent loose forms of other columns than its own")
    return reply.similar


def _cut(
    party: str, values: NDArray[Scalar], counts: NDArray[np.int64]
) -> tuple[NDArray[Scalar], ...]:
    """What a party sent of all its tiles, tile by tile."""
    if not len(counts) or (counts < 0).any() or int(counts.sum()) != len(values):
        raise ProtocolError(f"party {party} sent tokens that do not fit its tiles")
    return tuple(cut(values, counts))
