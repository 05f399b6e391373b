"""Questions that stay open until all whom they are put to have come by and answered.

The solvers for full participation ask everyone in every phase. Where parties come and go, each is
asked when it is next there, and only once; a phase ends when the last one has answered. So sums,
masks, guards and the model are those of a run in which nobody was ever away, to the bit. The price
is time: every turn counts as a round trip, whoever comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft.errors import ConfigError
from weft.protocol import Among, Channel, Replies, Request
from weft.solvers.participation import Participation, participation_of
from weft.solvers.run_settings import Settings


def patient(channel: Channel, settings: Settings) -> Channel:
    """A channel that waits for whoever is not there, if anybody may be away."""
    rule = participation_of(settings.participation, channel.parties, settings.seed)
    return channel if rule.complete else PatientChannel(channel, rule)


class PatientChannel(Among):
    """A channel to parties that are there in some turns only.

    Parameters
    ----------
    participation
        Who is there in which turn.

    Raises
    ------
    ConfigError
        If a party never is: its answer would be waited for in vain.
    """

    def __init__(self, channel: Channel, participation: Participation) -> None:
        super().__init__(channel, channel.parties)
        self._participation = participation
        self._turn = 0
        self._sets_up = False
        never = [party for party in channel.parties if party not in participation.ever_present]
        if never:
            raise ConfigError(
                f"participation never names {', '.join(never)}, without whose answers this run's "
                "solver cannot go on; name every party, or use solver = 'hyfdca'"
            )

    @contextmanager
    def with_everyone(self) -> Iterator[None]:
        """Nobody comes and goes before a run is set up, with the channel as it is."""
        self._sets_up = True
        try:
            yield
        finally:
            self._sets_up = False

    def exchange(self, requests: Sequence[Request[Any, Any]]) -> list[Replies[Any]]:
        if self._sets_up:
            return super().exchange(requests)
        found: list[Replies[Any]] = [Replies(request.phase.name) for request in requests]
        waiting = {party for request in requests for party in request.messages}
        while waiting:
            self._turn += 1
            here = waiting.intersection(self._participation.present(self._turn))
            if not here:
                # Nobody came whose answer is missing: a turn like any other, for who waits.
                self.meter.round_trips += 1
                continue
            waiting -= here
            asked = [_among(request, here) for request in requests]
            for all_, some in zip(found, super().exchange(asked), strict=True):
                all_.answered.update(some.answered)
                all_.missing.update(some.missing)
        return [_in_order(r, all_) for r, all_ in zip(requests, found, strict=True)]


def _among(request: Request[Any, Any], here: set[str]) -> Request[Any, Any]:
    """The same question to those who are here."""
    return Request(request.phase, {p: m for p, m in request.messages.items() if p in here})


def _in_order(request: Request[Any, Any], replies: Replies[Any]) -> Replies[Any]:
    """Replies in the order of the question: numbers are added up in it, and must not depend on
    who came first."""
    answered, missing = replies.answered, replies.missing
    return Replies(
        replies.phase,
        {p: answered[p] for p in request.messages if p in answered},
        {p: missing[p] for p in request.messages if p in missing},
    )
