"""Matching over the channel: the parties tell tokens, the coordinator seats them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.channels import Channel, Message
from weft.channels.message import Value, array
from weft.matching.roster import Holding, Overlap, Roster, build_roster


def meet(
    channel: Channel,
    *,
    classes: NDArray[np.generic] | None,
    overlap: Overlap = "mean",
    bias: float | None = None,
    confirm_separate_ids: bool = False,
    follow_draws: bool = True,
) -> Roster:
    """Coordinator: collect tokens, build the roster, tell every party its seat.

    Parameters
    ----------
    classes
        The class values the federation agreed on, None for regression.
    bias
        Value of the constant column, None for no constant column.
    follow_draws
        Whether parties must be able to compute each other's draws.
    """
    question: Message = {"classes": classes} if classes is not None else {}
    replies = channel.ask("match.tokens", dict.fromkeys(channel.parties, question))
    answered = replies.insist("matching")
    parties = channel.parties
    roster = build_roster(
        parties,
        [_holding(answered[p]) for p in parties],
        overlap=overlap,
        bias=bias is not None,
        confirm_separate_ids=confirm_separate_ids,
    )
    seats = {}
    for number, party in enumerate(parties):
        seats[party] = roster.seat(number, follow_draws=follow_draws).to_message()
        if bias is not None:
            seats[party]["bias_value"] = bias
    channel.ask("match.seat", seats).insist("seating")
    return roster


def _holding(message: dict[str, Value]) -> Holding:
    def cut(field: str, counts: str) -> tuple[NDArray[np.generic], ...]:
        bounds = np.cumsum(array(message, counts))[:-1]
        return tuple(np.split(array(message, field), bounds))

    return Holding(
        rows=cut("rows", "row_counts"),  # type: ignore[arg-type]
        columns=cut("columns", "column_counts"),  # type: ignore[arg-type]
        labelled=cut("labelled", "row_counts"),  # type: ignore[arg-type]
        labels=cut("labels", "row_counts"),  # type: ignore[arg-type]
    )
