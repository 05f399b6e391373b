"""The door between the coordinator and the parties: ask, and learn who answered.

`Channel` is the interface; `LocalChannel` has all parties in one process: the simulation, with the
messages of the deployment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, perf_counter, process_time, sleep, thread_time
from typing import Any, Generic, Literal

from weft.errors import PartyAway, ProtocolError, WeftError
from weft.protocol.declared_message_fields import Fields, Message, fields_of
from weft.protocol.message_bytes import pack, unpack
from weft.protocol.metering import Meter, size_of
from weft.protocol.phase_with_request_and_reply import Phase, Q, R

#: Follows the iterations of a run.
Follow = Callable[[Any], None]
#: Makes what goes through iterations without messages, from what a coordinator keeps.
MoverOf = Callable[[Any], Any]
#: What a party is to a channel: a phase and a message in, a reply out.
Handler = Callable[[Phase[Any, Any], Any], Message]


@dataclass(frozen=True)
class Failure:
    """Why a party gave no usable reply.

    ``refused``: the party answered that it will not or cannot do this (a user's or the
    protocol's mistake; the run should stop). ``failed``: it broke down. ``late``: its reply
    came after the deadline and was not used. ``unknown``: no such party.
    """

    kind: Literal["refused", "failed", "late", "unknown"]
    reason: str


@dataclass
class Replies(Generic[R]):
    """Who answered a phase, with what, and who did not, with why."""

    phase: str
    answered: dict[str, R] = field(default_factory=dict)
    missing: dict[str, Failure] = field(default_factory=dict)

    def insist(self, what: str) -> dict[str, R]:
        """All replies of a phase that cannot go on without everyone."""
        self.stop_on_refusal()
        if self.missing:
            party, failure = next(iter(self.missing.items()))
            raise PartyAway(
                f"{what} needs every party, but {party} did not answer ({failure.reason}); "
                "bring it back and start again"
            )
        return self.answered

    def stop_on_refusal(self) -> None:
        """Raise the first refusal: going on without the party would hide a mistake."""
        for party, failure in self.missing.items():
            if failure.kind == "refused":
                named = failure.reason.startswith((f"party {party} ", f"party {party}:"))
                raise ProtocolError(failure.reason if named else f"party {party}: {failure.reason}")


@dataclass(frozen=True)
class Request(Generic[Q, R]):
    """One phase put to some parties, each with its own message."""

    phase: Phase[Q, R]
    messages: Mapping[str, Q]


class Channel(ABC):
    """Carries requests to parties and brings back replies; counts what it carries.

    A party that fails or is late is reported in the replies, never raised from here. Whoever
    decides by the time must take it from here too: a channel that repeats what was recorded
    tells the recorded time.
    """

    def __init__(self) -> None:
        self.meter = Meter()
        #: Told how far a long step is, before there are iterations; None: nobody is.
        self.follower: Callable[[str], None] | None = None
        #: For iterations on parties of this process, where nobody needs to see messages; None: all
        #: go by messages.
        self.mover_of: MoverOf | None = None
        self._began = monotonic()

    @property
    @abstractmethod
    def parties(self) -> tuple[str, ...]:
        """Names of all parties that belong to the federation."""

    @property
    def elapsed(self) -> float:
        """Seconds since the channel began."""
        return monotonic() - self._began

    def pause(self, seconds: float) -> None:
        """Let some time go by, for instance until a party may be back."""
        sleep(max(0.0, seconds))

    @abstractmethod
    def exchange(self, requests: Sequence[Request[Any, Any]]) -> list[Replies[Any]]:
        """Send several phases in one envelope per party: one round trip for all of them.

        A party works through its phases in the order given; one that fails at a phase is
        missing from the later ones too.
        """

    def ask(self, phase: Phase[Q, R], messages: Mapping[str, Q]) -> Replies[R]:
        """One phase, one round trip."""
        return self.exchange([Request(phase, messages)])[0]

    def with_everyone(self) -> AbstractContextManager[None]:
        """Questions of setting up, for which all parties must be there at the same time."""
        return nullcontext()

    def tell(self, how_far: str) -> None:
        """Say how far a long step is, in a clause; empty: it is over."""
        if self.follower is not None:
            self.follower(how_far)

    def at_rest(
        self, standing: object, history: list[Any], kind: type[Any], follow: Follow | None
    ) -> None:
        """The coordinator stands between two iterations.

        A channel that keeps a journal may save where it stands, or put what it has saved in the
        place of what is there; others do nothing.

        Parameters
        ----------
        standing
            From which all is reached that the coordinator goes on from.
        history
            Its iterations, dataclasses of that ``kind``, which only become more.
        follow
            Told every iteration once more, where something was put in its place.
        """
        return


class Among(Channel):
    """The same channel with some of its parties only."""

    def __init__(self, channel: Channel, parties: Sequence[str]) -> None:
        super().__init__()
        self._channel = channel
        self._parties = tuple(parties)
        self.meter = channel.meter

    @property
    def parties(self) -> tuple[str, ...]:
        return self._parties

    @property
    def elapsed(self) -> float:
        return self._channel.elapsed

    def pause(self, seconds: float) -> None:
        self._channel.pause(seconds)

    def exchange(self, requests: Sequence[Request[Any, Any]]) -> list[Replies[Any]]:
        return self._channel.exchange(requests)

    def tell(self, how_far: str) -> None:
        self._channel.tell(how_far)

    def at_rest(
        self, standing: object, history: list[Any], kind: type[Any], follow: Follow | None
    ) -> None:
        self._channel.at_rest(standing, history, kind, follow)


# ── all parties in one process ─────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Recorded:
    """One message and its reply, as they would have crossed the network.

    ``failure`` says why there was no reply, or, of a late one, that it was not used.
    """

    phase: str
    party: str
    message: Fields
    reply: Fields
    failure: Failure | None = None


#: Takes every message and reply when they have crossed.
Sink = Callable[[Recorded], None]


def sink_of(record: bool | Sink) -> tuple[list[Recorded] | None, Sink | None]:
    """A transcript, if one is to be kept, and where messages and replies go."""
    if not isinstance(record, bool):
        return None, record
    if not record:
        return None, None
    transcript: list[Recorded] = []
    return transcript, transcript.append


#: A reply, the seconds of the processor that it took, and why it cannot be used.
Called = tuple[Message | None, float, Failure | None]


class LocalChannel(Channel):
    """Calls every party's handler in turn.

    Parameters
    ----------
    handlers
        Party name to the function that answers for it.
    timeout
        Seconds a party may take for a phase; a slower reply is thrown away and the party
        reported as late, as a network would do.
    record
        True: keep every message and reply in ``transcript``, which is how tests see what each
        side sees. A function: hand it every message and reply instead.
    packed
        Turn every message and reply into bytes and back, as a network does: nothing but plain
        values crosses, and no array is shared.
    threads
        Parties that compute at once. Each computes what it would alone, and replies are taken in
        the order of the parties: the same bits, however many there are.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        timeout: float | None = None,
        record: bool | Sink = False,
        packed: bool = False,
        threads: int = 1,
    ) -> None:
        super().__init__()
        self._handlers = dict(handlers)
        if packed:
            self._handlers = {name: _through_bytes(call) for name, call in handlers.items()}
        self._timeout = timeout
        self.transcript, self._sink = sink_of(record)
        self._skipped = 0.0
        self._pool = ThreadPoolExecutor(threads, "weft-party") if threads > 1 else None
        # Of a party's own threads too, as those that multiply ids, unless others compute meanwhile.
        self._clock = process_time if self._pool is None else thread_time

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(self._handlers)

    @property
    def elapsed(self) -> float:
        return super().elapsed + self._skipped

    def pause(self, seconds: float) -> None:
        """Pass over some time without waiting: parties in this process are not back the sooner."""
        self._skipped += max(0.0, seconds)

    def exchange(self, requests: Sequence[Request[Any, Any]]) -> list[Replies[Any]]:
        gone: dict[str, Failure] = {}
        results = []
        for request in requests:
            phase = request.phase
            replies: Replies[Any] = Replies(phase.name)
            answered, missing = replies.answered, replies.missing
            down = up = size = 0
            slowest = total = 0.0
            last: Message | None = None
            messages = request.messages
            there = {p: messages[p] for p in messages if p not in gone} if gone else messages
            calls = self._call_all(phase, there)
            for party, message in messages.items():
                if party in gone:
                    missing[party] = gone[party]
                    continue
                # What all are asked alike is one message as a rule.
                if message is not last:
                    last, size = message, size_of(message)
                down += size
                reply, seconds, failure = next(calls)
                if self._sink is not None and party in self._handlers:
                    said = {} if reply is None else fields_of(reply)
                    self._sink(Recorded(phase.name, party, fields_of(message), said, failure))
                if failure is not None or reply is None:
                    missing[party] = failure or _NO_MESSAGE
                    if missing[party].kind != "unknown":
                        gone[party] = missing[party]
                    continue
                total += seconds
                if seconds > slowest:
                    slowest = seconds
                up += size_of(reply)
                answered[party] = reply
            self.meter.record(phase.name, down, up, slowest, total)
            results.append(replies)
        self.meter.round_trips += 1
        return results

    def _call_all(
        self, phase: Phase[Any, Any], messages: Mapping[str, Message]
    ) -> Iterator[Called]:
        """In the order of the messages; on one thread each when it is asked for."""
        ask = partial(self._call, phase)
        if self._pool is None:
            return map(ask, messages, messages.values())
        return self._pool.map(ask, messages, messages.values())

    def _call(self, phase: Phase[Any, Any], party: str, message: Message) -> Called:
        """One party's reply, the seconds of the processor it took, and why it cannot be used."""
        handler = self._handlers.get(party)
        if handler is None:
            return None, 0.0, Failure("unknown", "no such party")
        start, worked = 0.0 if self._timeout is None else perf_counter(), self._clock()
        reply: Message | None = None
        failure: Failure | None = None
        try:
            reply = handler(phase, message)
        except WeftError as error:
            failure = Failure("refused", str(error))
        except Exception as error:
            failure = Failure("failed", f"{type(error).__name__}: {error}")
        seconds = self._clock() - worked
        if failure is None and type(reply) is not phase.reply:
            reply, failure = None, _NO_MESSAGE
        if failure is None and self._timeout is not None and perf_counter() - start > self._timeout:
            failure = Failure("late", f"no reply within {self._timeout:g} s")
        return reply, seconds, failure


_NO_MESSAGE = Failure("failed", "its reply is no message of this phase")


def _through_bytes(handler: Handler) -> Handler:
    def answer(phase: Phase[Any, Any], message: Message) -> Message:
        asked = phase.read_request(unpack(pack(fields_of(message))))
        reply: Message = phase.read_reply(unpack(pack(fields_of(handler(phase, asked)))))
        return reply

    return answer
