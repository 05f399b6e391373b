"""What a channel over a network knows of its run, and how that is saved between two iterations."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from weft.network.absent_parties import Liveness
from weft.network.coordinator_snapshots import CoordinatorSnapshots, chapters_joined
from weft.network.exchange_outcomes_and_journal_records import (
    ChannelStanding,
    Chapter,
    ExchangeOutcome,
    Ground,
    RunStarted,
    Saved,
    write_record,
)
from weft.network.record_and_replay_absences import Presence
from weft.network.transport_interface import Transport
from weft.protocol import Channel, Failure
from weft.protocol.channel import Follow, Sink
from weft.protocol.metering import PhaseCost
from weft.storage.journal import Journal


class ResumableChannel(Channel):
    """The journal of a run, what came of it, and snapshots of the coordinator in it.

    Parameters are those of :class:`weft.network.network_channel.NetworkChannel`; ``ping`` is how
    long a party may take for one, ``sink`` takes what is recorded.
    """

    def __init__(
        self,
        transport: Transport,
        run: str,
        journal: Journal,
        ping: float,
        sink: Sink | None,
        secret: bytes | None,
    ) -> None:
        super().__init__()
        self._transport, self._run, self._journal = transport, run, journal
        self._sink = sink
        self.presence = Presence()
        self._liveness = Liveness(transport, run, ping)
        self._snapshots = CoordinatorSnapshots(journal, secret or b"")
        self._saves = secret is not None and sink is None
        self._rested = self._repeating = False
        #: How much of history and presence is in chapters.
        self._chaptered = 0, 0
        self._past = self._snapshots.past()
        self._next = self._read_on()
        #: An incomplete exchange, written to the journal only if the run continues after it.
        self._unwritten: ExchangeOutcome | None = None
        self._number = 0
        #: How many replies of each party have come, and the number of the last.
        self._answered = dict.fromkeys(transport.parties, 0)
        self._last = dict.fromkeys(transport.parties, 0)
        #: Exchanges that a party may have worked on although no reply came.
        self._unsure: dict[str, list[int]] = {party: [] for party in transport.parties}
        self._now = 0.0

    @property
    def parties(self) -> tuple[str, ...]:
        return self._transport.parties

    @property
    def away(self) -> dict[str, Failure]:
        """Parties that are not asked at the moment, and why."""
        return self._liveness.away()

    @property
    def replaying(self) -> bool:
        """Whether the next exchange is repeated from the journal."""
        return self._next is not None or self._repeating

    @property
    def exchanges(self) -> int:
        """How many there were."""
        return self._number

    @property
    def exchanges_before(self) -> int:
        """How many exchanges the journal knows of."""
        return self._snapshots.last_exchange

    def _write_down(self) -> None:
        """Journal the last exchange, since the run continues after it."""
        if self._unwritten is not None:
            self._journal.append(write_record(self._unwritten))
            self._unwritten = None

    def _read_on(self) -> RunStarted | ExchangeOutcome | Ground | None:
        return next(self._past, None)

    # ── snapshots ─────────────────────────────────────────────────────────────────────────

    def at_rest(
        self, standing: object, history: list[Any], kind: type[Any], follow: Follow | None
    ) -> None:
        if not self._saves:
            if isinstance(self._next, Ground):
                self._next = self._read_on()
        elif not self._rested:
            self._begin_resting(standing, history, kind, follow)
        elif not self.replaying and self._snapshots.due(self._number):
            self._write_down()
            told, seen = len(history), self._settled_moments
            if self._snapshots.save(self._number, lambda state: self._saved(state, history)):
                self._chaptered = told, seen

    def _begin_resting(
        self, standing: object, history: list[Any], kind: type[Any], follow: Follow | None
    ) -> None:
        """The set-up is over: go on from the newest snapshot, if there is one."""
        if self._next is not None and not isinstance(self._next, Ground):
            # A journal from before there were snapshots is repeated as a whole.
            self._saves = False
            return
        self._rested = True
        self._write_down()
        outside = {"channel": self, "meter": self.meter, "history": history}
        if follow is not None:
            outside["follow"] = follow
        self._snapshots.lay_ground(standing, outside)
        if isinstance(self._next, Ground):
            found = self._snapshots.restore()
            self._next = self._read_on()
            if found is not None:
                saved, chapters = found
                history[:], self.presence.moments[:] = chapters_joined(chapters, kind)
                self._stand(saved.standing)
                self._chaptered = len(history), self._settled_moments
                self._repeating = True
                if follow is not None:
                    for record in history:
                        follow(record)
                self._repeating = False

    def _stand(self, stood: ChannelStanding) -> None:
        """Go on from where a snapshot was taken."""
        self._number, self._now = stood.number, stood.now
        self._answered, self._last = dict(stood.answered), dict(stood.last)
        self._unsure = {party: list(numbers) for party, numbers in stood.unsure.items()}
        self.meter.round_trips = stood.round_trips
        self.meter.phases.clear()
        for phase, cost in stood.phases.items():
            self.meter.phases[phase] = PhaseCost(*cost)
        for party in self.parties:
            if party in stood.away:
                kind, reason = stood.away[party]
                self._liveness.mark_away(party, Failure(kind, reason))  # type: ignore[arg-type]
            else:
                self._liveness.mark_back(party)

    @property
    def _settled_moments(self) -> int:
        """Exchanges before the first that a party may turn out to have worked on."""
        unsure = (number - 1 for numbers in self._unsure.values() for number in numbers)
        return min(unsure, default=len(self.presence.moments))

    def _saved(self, state: bytes, history: list[Any]) -> tuple[Chapter, Saved]:
        """The records of a snapshot."""
        told, seen = self._chaptered
        rows = [list(astuple(record)) for record in history[told:]]
        chapter = Chapter(told, rows, seen, self.presence.moments[seen:])
        standing = ChannelStanding(
            self._number,
            self._answered,
            self._last,
            self._unsure,
            self._now,
            self.meter.round_trips,
            {name: astuple(cost) for name, cost in self.meter.phases.items()},
            {party: (found.kind, found.reason) for party, found in self._liveness.away().items()},
        )
        return chapter, Saved(standing, state)
