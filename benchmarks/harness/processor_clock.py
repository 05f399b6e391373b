"""A channel that counts seconds of the processor for every party, and bytes by how they travel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import process_time
from typing import Any

from weft.protocol import Channel, Message
from weft.protocol.channel import Replies, Request
from weft.protocol.declared_message_fields import declared
from weft.protocol.field_visibility import Form
from weft.protocol.metering import size_of_value

Seconds = dict[str, list[float]]
Bytes = dict[tuple[str, Form], int]


def _no_seconds() -> Seconds:
    return defaultdict(list)


@dataclass
class Spent:
    """What was spent since the clock was made.

    Attributes
    ----------
    parties
        Seconds of every call, by party and phase.
    coordinator
        The same, by the phase that they were spent for: before it was asked.
    down, up
        Bytes of requests and of replies, by phase and the form in which they travel.
    """

    parties: dict[str, Seconds] = field(default_factory=lambda: defaultdict(_no_seconds))
    coordinator: Seconds = field(default_factory=lambda: _no_seconds())
    down: Bytes = field(default_factory=lambda: defaultdict(int))
    up: Bytes = field(default_factory=lambda: defaultdict(int))

    def slowest(self, *phases: str) -> float:
        """Seconds of the party that spent the most in phases whose name begins so."""
        return max(_within(spent, phases, sum) for spent in self.parties.values())

    def coordinating(self, *phases: str) -> float:
        """The coordinator's."""
        return _within(self.coordinator, phases, sum)

    def total(self, *phases: str) -> float:
        """Everybody's."""
        return self.coordinating(*phases) + sum(
            _within(spent, phases, sum) for spent in self.parties.values()
        )

    def slowest_pace(self, *phases: str) -> float:
        """As `slowest`, with the median of each phase's calls in the place of every call."""
        return max(_within(spent, phases, _steady) for spent in self.parties.values())

    def coordinating_pace(self, *phases: str) -> float:
        """As `coordinating`, with medians."""
        return _within(self.coordinator, phases, _steady)

    @property
    def bytes(self) -> int:
        """Both ways."""
        return sum(self.down.values()) + sum(self.up.values())


def _within(spent: Seconds, phases: tuple[str, ...], by: Callable[[list[float]], float]) -> float:
    return sum(by(calls) for name, calls in spent.items() if name.startswith(phases))


def _steady(calls: list[float]) -> float:
    return median(calls) * len(calls)


class ProcessorClock(Channel):
    """Asks one party after the other, each under its own clock.

    All parties and the coordinator share one thread, so that seconds of the processor between two
    questions are the coordinator's.
    """

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self.spent = Spent()
        self._asked = process_time()

    @property
    def parties(self) -> tuple[str, ...]:
        return self._channel.parties

    def exchange(self, requests: Sequence[Request[Any, Any]]) -> list[Replies[Any]]:
        self.spent.coordinator[requests[0].phase.name].append(process_time() - self._asked)
        found: list[Replies[Any]] = [Replies(request.phase.name) for request in requests]
        names = dict.fromkeys(party for request in requests for party in request.messages)
        for party in names:
            asked = [k for k, request in enumerate(requests) if party in request.messages]
            for k in asked:
                _count(self.spent.down, requests[k].phase.name, requests[k].messages[party])
            phase = requests[asked[0]].phase.name
            began = process_time()
            replies = self._channel.exchange(
                [Request(requests[k].phase, {party: requests[k].messages[party]}) for k in asked]
            )
            self.spent.parties[party][phase].append(process_time() - began)
            for k, reply in zip(asked, replies, strict=True):
                found[k].answered.update(reply.answered)
                found[k].missing.update(reply.missing)
                for message in reply.answered.values():
                    _count(self.spent.up, requests[k].phase.name, message)
        self.meter.round_trips += 1
        self._asked = process_time()
        return found


def _count(totals: Bytes, phase: str, message: Message) -> None:
    for each in declared(type(message)):
        value = getattr(message, each.attribute)
        if each.meaning is not None and value is not None:
            totals[phase, each.meaning.form] += size_of_value(value)
