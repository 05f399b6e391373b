"""What the coordinator of a fast solver does when a party stays away."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.algorithms.base import Record, Result
from weft.algorithms.clock import Clock
from weft.algorithms.hyfdca import HyfdcaCoordinator
from weft.algorithms.hyfdca.run import Run
from weft.algorithms.span.exchange import Exchange, PartyMissing
from weft.algorithms.span.span import Span
from weft.channels import Among, Message
from weft.matching.axis import Axis, Lists

Flags = NDArray[np.bool_]

#: How often a party is asked to keep the model when a run stops.
_ATTEMPTS = 3


def keep_point(span: Span, missing: PartyMissing, model: int) -> bool:
    """Let those who are there form the best point; returns whether all of them did."""
    exchange = span.exchange
    waiting = _present(exchange, missing)
    for _ in range(_ATTEMPTS):
        messages = _messages(exchange, missing, waiting)
        for message in messages.values():
            message.update({"point": span.point, "model": model})
        replies = exchange.channel.ask("span.keep", messages)
        replies.stop_on_refusal()
        waiting = tuple(replies.missing)
        if not waiting:
            return True
    return False


def hand_over(
    span: Span,
    missing: PartyMissing,
    lam: float,
    unit: float,
    result: Result,
    clock: Clock,
    progress: Callable[[Record], None] | None,
) -> None:
    """Go on with HyFDCA among those who are there, from the last mixture of dual vectors."""
    exchange = span.exchange
    present = _present(exchange, missing)
    settings = msgspec.structs.replace(
        exchange.settings,
        solver="hyfdca",
        lam=lam,
        path=(),
        folds=0,
        local="safe",
        participation={"trace": [list(present)]},
    )
    channel = Among(exchange.channel, present)
    classes = exchange.problems.classes
    run = Run(channel, exchange.roster, settings, exchange.adder, classes)
    run.notes = result.notes
    run.gone = missing.parties
    run.iteration = exchange.iteration
    run.seen = dict.fromkeys(exchange.roster.parties, run.iteration)
    run.best_dual = float(span.dual[:classes].sum())
    _begin(run, span, missing, present, lam)
    HyfdcaCoordinator().go_on(run, unit, result, clock, progress)


def _begin(run: Run, span: Span, missing: PartyMissing, present: Sequence[str], lam: float) -> None:
    """Everybody takes over α; one holder of every cohort puts in its totals."""
    roster = run.roster
    columns = _speakers(roster.columns, roster.columns.holders, roster.index, present)
    rows = _speakers(roster.rows, roster.rows.marked, roster.index, present)
    messages = _messages(span.exchange, missing, present)
    for party, message in messages.items():
        message.update({"rows": rows[party], "columns": columns[party], "lam": lam})
        message.update({"weights": span.mixture[1:], "point": span.mixture / span.lam})
    run.v.invite(messages)
    run.z.invite(messages)
    replies = run.channel.ask("span.hand", messages).insist("handing over")
    run.v.add(replies, run.iteration)
    run.z.add(replies, run.iteration)


def _speakers(
    axis: Axis, holders: Lists, index: dict[str, int], present: Sequence[str]
) -> dict[str, Flags]:
    """Per party, for which of its cohorts it is the first holder that is there."""
    here = {index[party] for party in present}
    first: dict[int, int] = {}
    for cohort in range(len(axis.sizes)):
        for holder in holders[cohort].tolist():
            if holder in here:
                first[cohort] = holder
                break
    return {
        party: np.array(
            [first.get(c) == index[party] for c in axis.cohorts[index[party]].tolist()], bool
        )
        for party in present
    }


def _present(exchange: Exchange, missing: PartyMissing) -> tuple[str, ...]:
    return tuple(p for p in exchange.roster.parties if p not in missing.parties)


def _messages(
    exchange: Exchange, missing: PartyMissing, present: Sequence[str]
) -> dict[str, Message]:
    """A request to those who are there; some have yet to drop vectors, others have done so."""
    messages: dict[str, Message] = exchange.adder.open(present)
    for party, message in messages.items():
        message["iteration"] = exchange.iteration
        if exchange.fold is not None and party not in missing.folded:
            message["fold"], message["keep"] = exchange.fold
    return messages
