"""The queue of runs at a coordinator: whose turn it is, and how many each submitter may have.

Nothing is kept for it. The order follows from the jobs that the engine stores, so that it is the
same after a restart, and the same for whoever asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from weft.report.number_format import count

#: Each has a process at the coordinator, and a session at every site, of which a site keeps eight
#: (`weft.network.secure_session`).
MOST_AT_ONCE = 4


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many runs there may be.

    Attributes
    ----------
    at_once
        Runs under way at the same time.
    each_at_once
        Of these, those of one submitter; None: all of them.
    each_waiting
        Runs of one submitter that wait; more are refused.
    """

    at_once: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] = 1
    each_at_once: Annotated[int, Meta(ge=1)] | None = None
    each_waiting: Annotated[int, Meta(ge=1)] = 20

    def refuses(self, submitter: str) -> str:
        """Why one more run of a submitter is not queued."""
        return (
            f"{submitter} has {count(self.each_waiting, 'run')} in the queue already, which is as "
            "many as the coordinator lets wait for one submitter; submit it again when some are "
            "over, or take one out with weft stop"
        )


@dataclass(frozen=True)
class Submission:
    """One submission of a run: a new one, or one that goes on.

    Parameters
    ----------
    submitted, started
        When, in seconds since 1970; a run that has not begun: 0.
    waits
        Whether it is in the queue.
    kept
        Whether it has ended and left something to go on with.
    """

    job: str
    run: str
    submitter: str
    submitted: float
    started: float = 0.0
    waits: bool = False
    kept: bool = False


def in_order(known: Sequence[Submission]) -> list[Submission]:
    """Those that wait, in the order in which they will begin.

    Runs that go on come first, for the parties keep secrets and bookings for them. Of the others,
    submitters take turns, beginning with the one whose last run began longest ago; a submitter's
    own runs come as they were submitted.

    Parameters
    ----------
    known
        All submissions that are stored, those that are over too.
    """
    waiting = _waiting(known)
    going_on = [one for one in waiting if _goes_on(one, known)]
    queues: dict[str, list[Submission]] = {}
    for one in waiting:
        if one not in going_on:
            queues.setdefault(one.submitter, []).append(one)
    # Turns that were taken, and then those that are to come.
    last: dict[str, tuple[int, float]] = {}
    for one in known:
        last[one.submitter] = max(last.get(one.submitter, (0, 0.0)), (0, one.started))
    ordered: list[Submission] = []
    for one in going_on:
        ordered.append(one)
        last[one.submitter] = (len(ordered), 0.0)
    while queues:
        who = min(queues, key=lambda name: (last[name], queues[name][0].submitted, name))
        ordered.append(queues[who].pop(0))
        last[who] = (len(ordered), 0.0)
        queues = {name: rest for name, rest in queues.items() if rest}
    return ordered


def _waiting(known: Sequence[Submission]) -> list[Submission]:
    """Those in the queue, as they were submitted."""
    return sorted((one for one in known if one.waits), key=lambda one: (one.submitted, one.job))


def _goes_on(one: Submission, known: Sequence[Submission]) -> bool:
    """Whether its run has begun before, and left something when it ended last."""
    same = (one.run, one.submitter)
    begun = [other for other in known if other.started and (other.run, other.submitter) == same]
    return bool(begun) and max(begun, key=lambda other: other.started).kept


def next_to_begin(
    known: Sequence[Submission], under_way: Mapping[str, str], limits: QueueLimits
) -> Submission | None:
    """The one that begins now; None if there is no room, or nobody whose turn it can be.

    Parameters
    ----------
    under_way
        Submitter of every job that is under way.
    """
    if len(under_way) >= limits.at_once:
        return None
    having = Counter(under_way.values())
    most = limits.at_once if limits.each_at_once is None else limits.each_at_once
    # A run that was submitted twice is under way once.
    going = {one.run for one in known if one.job in under_way}
    for one in in_order(known):
        if having[one.submitter] < most and one.run not in going:
            return one
    return None


def too_many(known: Sequence[Submission], limits: QueueLimits) -> list[Submission]:
    """Those that are refused, for their submitters have enough in the queue before them.

    Runs that go on are never refused.
    """
    before: Counter[str] = Counter()
    refused = []
    for one in _waiting(known):
        if _goes_on(one, known):
            continue
        if before[one.submitter] >= limits.each_waiting:
            refused.append(one)
        else:
            before[one.submitter] += 1
    return refused
