"""The coordinator's channel over a network; it survives a kill of the coordinator or a party."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft import __version__
from weft.errors import ProtocolError
from weft.network import clock
from weft.network.channel_with_journal_and_snapshots import ResumableChannel
from weft.network.current_wait import CLOSING, GREETING, Waits
from weft.network.envelope_bytes import End, Ended, Failed, Hello, Welcome, Work, checksum, encode
from weft.network.exchange_outcomes_and_journal_records import (
    Answered,
    ExchangeOutcome,
    NoAnswer,
    RunStarted,
    ask,
    failure_of,
    not_there,
    outcome_of,
    parts_of,
    reply_of,
    write_record,
)
from weft.network.record_and_replay_absences import Absence, Missed
from weft.network.transport_interface import Transport
from weft.network.versions import OtherVersion, check_version
from weft.protocol import (
    Failure,
    Fields,
    Message,
    Phase,
    Replies,
    Request,
    fields_of,
    pack,
    size_of,
    unpack,
)
from weft.protocol.channel import Recorded, Sink, sink_of
from weft.report.json_safe_and_rounded_values import rounded
from weft.storage.journal import Journal

#: What phases that work on whole tables begin with: they get the long timeout.
SETUP_PHASES = ("match.", "scale.", "sealed.begin", "sealed.tables", "sealed.first")
#: Seconds to wait for a party's first hello, and between two.
_FIRST_HELLO, _PAUSE = 2.0, 0.5


@dataclass(frozen=True)
class Timeouts:
    """Seconds that a party may take: for phases of the set-up, for other work, for a ping."""

    setup: float = 600.0
    work: float = 60.0
    ping: float = 2.0
    setup_phases: tuple[str, ...] = SETUP_PHASES

    def of(self, phases: Iterable[str]) -> float:
        """For an envelope with these phases."""
        long = any(phase.startswith(self.setup_phases) for phase in phases)
        return self.setup if long else self.work


class NetworkChannel(ResumableChannel):
    """Asks parties over a transport, and writes each outcome to the journal before using it.

    Given the journal of an interrupted run, it first repeats that without sending anything. Where
    the journal ends it asks again, under the same number, what may have been asked before; parties
    that did the work give the same reply.

    Parameters
    ----------
    transport
        Carries envelopes.
    run
        Name of the run: letters, digits, ``.``, ``_`` and ``-``.
    journal
        Of this run, and of no other.
    timeouts
        How long parties may take.
    record
        As in :class:`weft.protocol.LocalChannel`; what is repeated from the journal is recorded
        again, in the same bytes.
    waits
        Told what the run waits for.
    secret
        The run's random name, which snapshots of the coordinator are bound to; None: it takes none,
        as in a run that is recorded, and a resumed run repeats all of its journal.

    Attributes
    ----------
    presence
        Which parties missed which exchange.
    versions
        Every party's version of Weft, once it has said hello.
    """

    def __init__(
        self,
        transport: Transport,
        run: str,
        journal: Journal,
        timeouts: Timeouts | None = None,
        *,
        record: bool | Sink = False,
        waits: Waits | None = None,
        secret: bytes | None = None,
    ) -> None:
        transcript, sink = sink_of(record)
        self._timeouts = timeouts or Timeouts()
        super().__init__(transport, run, journal, self._timeouts.ping, sink, secret)
        self._waits = Waits() if waits is None else waits
        self.transcript = transcript
        self.versions: dict[str, str] = {}
        #: The first exchange that is not in the journal.
        self._edge = 0
        #: Run time at a moment of the real clock, and that moment; None until needed.
        self._set: tuple[float, float] | None = (0.0, clock.now()) if self._next is None else None

    @property
    def elapsed(self) -> float:
        """Seconds from the beginning to the end of the last exchange, and pauses since.

        It stands still in between, so that it is the same when the run is repeated. The time
        between an interruption and going on does not count.
        """
        return self._now

    def pause(self, seconds: float) -> None:
        if not self.replaying:
            self._set_clock()
            with self._waits.pausing():
                clock.sleep(seconds)
        self._now += max(0.0, seconds)

    def _set_clock(self) -> float:
        """Seconds since the beginning by the real clock."""
        if self._set is None:
            self._set = self._now, clock.now()
        at, since = self._set
        return at + clock.now() - since

    # ── beginning and end ─────────────────────────────────────────────────────────────────

    def hello(self, plan: Fields, limit: float = 60.0) -> dict[str, Fields]:
        """Wait until every party takes part; their announcements.

        Parameters
        ----------
        plan
            What the run is about, for every party alike.
        limit
            Seconds to wait for absent parties.

        Raises
        ------
        ProtocolError
            A party refuses or is missing.
        """
        packed = pack(plan)
        if isinstance(self._next, RunStarted):
            if self._next.plan != packed:
                raise ProtocolError(
                    f"run {self._run} was begun with another plan; resume it with the "
                    "configuration that it began with, or start a new run"
                )
            greeted, self._next = self._next, self._read_on()
        else:
            found = self._greet(packed, limit)
            greeted = RunStarted(
                packed,
                {party: welcome.announcement for party, welcome in found.items()},
                {party: welcome.weft for party, welcome in found.items()},
            )
            self._journal.append(write_record(greeted))
            self._set = 0.0, clock.now()
        self.versions = greeted.versions
        return {party: unpack(said) for party, said in greeted.announcements.items()}

    def _greet(self, plan: bytes, limit: float) -> dict[str, Welcome]:
        found: dict[str, Welcome] = {}
        waits = self._waits.asking(
            GREETING, self.parties, limit, lambda: [p for p in self.parties if p not in found]
        )
        with waits:
            return self._greet_all(encode(Hello.of(self._run, plan)), limit, found)

    def _greet_all(
        self, envelope: bytes, limit: float, found: dict[str, Welcome]
    ) -> dict[str, Welcome]:
        """Fill ``found`` with the welcome of every party."""
        until, timeout = clock.now() + limit, _FIRST_HELLO
        while True:
            left = max(0.0, until - clock.now())
            waiting = {party: envelope for party in self.parties if party not in found}
            missing: dict[str, Failure] = {}
            for party, reply in ask(
                self._transport, waiting, min(timeout, max(left, _PAUSE))
            ).items():
                failure = _unfit(reply) if isinstance(reply, Welcome) else failure_of(reply)
                if isinstance(reply, Welcome):
                    found[party] = reply
                if failure is not None:
                    missing[party] = failure
            refused = {p: f for p, f in missing.items() if f.kind == "refused"}
            if not missing:
                return {party: found[party] for party in self.parties}
            if refused or left <= _PAUSE:
                # Not those who refused: they may be in another run of that name.
                self._tell_end(found, over=False)
                # The last try is short, but all of them together are not.
                late = Failure("late", f"gave no answer within {limit:g} s")
                waited = {p: late if f.kind == "late" else f for p, f in missing.items()}
                raise not_there(refused or waited)
            clock.sleep(_PAUSE)
            # Slow parties get more time; late ones are asked again soon.
            timeout *= 2.0

    def end(self, *, over: bool = True) -> dict[str, Failure]:
        """Tell all parties that the run is over or abandoned; who could not be told, and why."""
        # From here on nothing can be asked again.
        self._write_down()
        away = self._liveness.away()
        self._liveness.close()
        there = [party for party in self.parties if party not in away]
        unreached = self._tell_end(there, over=over)
        return {**unreached, **self._tell_end(away, over=over, timeout=self._timeouts.ping)}

    def close(self) -> None:
        """Leave the run as it is, so that it can be resumed."""
        self._liveness.close()

    def _tell_end(
        self, parties: Iterable[str], *, over: bool, timeout: float | None = None
    ) -> dict[str, Failure]:
        envelopes = {p: encode(End(self._run, over, self._last[p])) for p in parties}
        unreached = {}
        limit = timeout or self._timeouts.work
        with self._waits.asking(CLOSING, envelopes, limit, lambda: self._transport.unanswered):
            replies = ask(self._transport, envelopes, limit)
        for party, reply in replies.items():
            if isinstance(reply, Ended):
                self._settle(party, reply.worked)
            else:
                unreached[party] = failure_of(reply)
        return unreached

    # ── exchanges ─────────────────────────────────────────────────────────────────────────

    def exchange(self, requests: Sequence[Request[Any, Any]]) -> list[Replies[Any]]:
        number, envelopes, sizes = self._number + 1, {}, {}
        for party, parts in parts_of(requests).items():
            answered, last = self._answered.get(party, 0), self._last.get(party, 0)
            envelopes[party] = encode(Work(self._run, number, answered, last, parts))
            sizes[party] = len(parts)
        if self.replaying:
            outcome = self._repeat(number, envelopes)
        else:
            timeout = self._timeouts.of(request.phase.name for request in requests)
            about = requests[0].phase.name if requests else ""
            outcome = self._carry_out(number, envelopes, sizes, timeout, about)
        self._number = number
        self._learn(outcome)
        return self._report(requests, outcome)

    def _repeat(self, number: int, envelopes: Mapping[str, bytes]) -> ExchangeOutcome:
        """The outcome in the journal."""
        outcome = self._next
        if not isinstance(outcome, ExchangeOutcome) or outcome.number != number:
            raise ProtocolError(
                f"the journal of run {self._run} does not go on with exchange {number}; it is "
                "damaged or of another run: start a new run"
            )
        if outcome.asked != _checksums(envelopes):
            raise ProtocolError(
                f"exchange {number} of run {self._run} does not ask what it asked before; resume "
                "the run with the configuration and the version of Weft that it began with"
            )
        self._next = self._read_on()
        for party, lacking in outcome.lacking.items():
            if lacking.unsure or not lacking.sent:
                self._liveness.mark_away(party, Failure(lacking.kind, lacking.reason))
        for party in outcome.got:
            self._liveness.mark_back(party)
        return outcome

    def _carry_out(
        self,
        number: int,
        envelopes: Mapping[str, bytes],
        sizes: Mapping[str, int],
        timeout: float,
        about: str,
    ) -> ExchangeOutcome:
        self._write_down()
        self._set_clock()
        self._edge = self._edge or number
        self._liveness.watch()
        away = self._liveness.away()
        got: dict[str, Answered] = {}
        lacking: dict[str, NoAnswer] = {}
        there: dict[str, bytes] = {}
        for party, envelope in envelopes.items():
            if party not in self._last:
                lacking[party] = NoAnswer("unknown", "no such party", sent=False)
            elif party in away:
                # Where the journal ended, it may have been asked before the interruption.
                maybe = number == self._edge
                failure = away[party]
                lacking[party] = NoAnswer(failure.kind, failure.reason, sent=maybe, unsure=maybe)
            else:
                there[party] = envelope
        with self._waits.asking(about, there, timeout, lambda: self._transport.unanswered):
            replies = ask(self._transport, there, timeout)
        for party, reply in replies.items():
            read = outcome_of(reply, number, sizes[party])
            if isinstance(read, Answered):
                got[party] = read
            else:
                lacking[party] = read
                if isinstance(reply, Failure | Failed) and reply.kind != "refused":
                    # Also a party that answers that it cannot, as with a full disk: it is not
                    # asked at every exchange, and the progress report says why.
                    self._liveness.mark_away(party, Failure(reply.kind, reply.reason))
        self._waits.answered(about, {party: found.reason for party, found in lacking.items()})
        self._liveness.watch()
        # Times go to the submitter with the record of presence, as rough as those of phases.
        elapsed = self._now + rounded(max(0.0, self._set_clock() - self._now))
        outcome = ExchangeOutcome(number, _checksums(envelopes), elapsed, got, lacking)
        if lacking:
            # If the run stops here, the cause is mended before it is resumed, and this exchange
            # is asked again.
            self._unwritten = outcome
        else:
            self._journal.append(write_record(outcome))
        return outcome

    # ── what an outcome means ─────────────────────────────────────────────────────────────

    def _learn(self, outcome: ExchangeOutcome) -> None:
        """Update who answered, and who turned out to be there."""
        for party, got in outcome.got.items():
            self._answered[party] += 1
            self._last[party] = outcome.number
            self._settle(party, got.worked)
        missing: dict[str, Missed] = {}
        for party, lacking in outcome.lacking.items():
            how: Absence = "absent" if lacking.sent else "away"
            missing[party] = Missed(how, lacking.kind, lacking.reason)
            if lacking.unsure:
                self._unsure[party].append(outcome.number)
        self.presence.add(outcome.elapsed, missing)
        self._now = outcome.elapsed

    def _settle(self, party: str, worked: Sequence[int]) -> None:
        """A party has said which unanswered exchanges it did work on."""
        for number in self._unsure[party]:
            if number in worked:
                self.presence.was_late(party, number)
        self._unsure[party].clear()

    def _report(
        self, requests: Sequence[Request[Any, Any]], outcome: ExchangeOutcome
    ) -> list[Replies[Any]]:
        """Replies per phase, as every channel gives and counts them."""
        place = dict.fromkeys(outcome.asked, 0)
        results = []
        for request in requests:
            phase = request.phase
            replies: Replies[Any] = Replies(phase.name)
            seconds, down = [0.0], 0
            for party, message in request.messages.items():
                got, lacking = outcome.got.get(party), outcome.lacking.get(party)
                if lacking is None or lacking.sent:
                    down += size_of(message)
                if got is None:
                    assert lacking is not None
                    failure = Failure(lacking.kind, lacking.reason)
                    replies.missing[party] = failure
                    if lacking.sent:
                        self._note(phase, party, message, None, failure)
                    continue
                at = place[party]
                place[party] += 1
                reply = reply_of(phase, party, got.replies[at])
                replies.answered[party] = reply
                seconds.append(got.seconds[at])
                self._note(phase, party, message, reply)
            up = sum(size_of(reply) for reply in replies.answered.values())
            self.meter.record(phase.name, down, up, max(seconds), sum(seconds))
            results.append(replies)
        self.meter.round_trips += 1
        return results

    def _note(
        self,
        phase: Phase[Any, Any],
        party: str,
        message: Message,
        reply: Message | None,
        failure: Failure | None = None,
    ) -> None:
        if self._sink is not None:
            said = {} if reply is None else fields_of(reply)
            self._sink(Recorded(phase.name, party, fields_of(message), said, failure))


def _unfit(welcome: Welcome) -> Failure | None:
    """Why a party that would take part cannot: its version."""
    try:
        check_version(__version__, "the coordinator", welcome.weft)
    except OtherVersion as error:
        return Failure("refused", str(error))
    return None


def _checksums(envelopes: Mapping[str, bytes]) -> dict[str, int]:
    return {party: checksum(envelope) for party, envelope in envelopes.items()}
