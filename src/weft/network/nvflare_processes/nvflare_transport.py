"""Frames between the coordinator's job and a party, and the coordinator's transport.

An envelope travels as bytes in one frame, on a channel of our own. The engine's auxiliary messages
take four times as long for the same bytes (they are streamed, with acknowledgements), and sending
a different one to each party is broken in 2.9.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Condition, Lock, Thread
from typing import Any
from uuid import uuid4

from nvflare.fuel.f3.cellnet.core_cell import TargetMessage
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.message import Message

from weft.network import clock
from weft.network.transport_interface import Stopped
from weft.protocol import Failure

log = logging.getLogger("weft.network")

#: The channel and its two topics: an envelope, and what has become of an envelope.
CHANNEL, ASK, SEEN = "weft", "ask", "seen"
#: Header with an envelope's id, by which the coordinator can ask whether it arrived.
ENVELOPE_ID = "weft.envelope"
#: Answers to that question: it has not arrived, is being worked on, or was answered, with so many
#: bytes, which follow as a number.
NO, WORKING, ANSWERED = b"no", b"working", b"answered "
#: Largest envelope that fits into one frame of the engine, with its headers.
MOST_BYTES = 2**31 - 2**22


class Unconnected(Exception):
    """This process has lost its server, so it cannot reach any party."""


def message_to(
    party: str, topic: str, envelope: str, content: bytes | bytearray
) -> dict[str, TargetMessage]:
    """One party's message, as the engine's cells take it."""
    message = Message({ENVELOPE_ID: envelope}, content)
    return {party: TargetMessage(target=party, channel=CHANNEL, topic=topic, message=message)}


def reply_with(content: bytes | bytearray) -> Message:
    return Message({MessageHeaderKey.RETURN_CODE: ReturnCode.OK}, content)


def refusal() -> Message:
    """The answer to a sender who may not ask, or asks for something unknown."""
    return Message({MessageHeaderKey.RETURN_CODE: ReturnCode.INVALID_REQUEST}, None)


def is_from_coordinator(request: Message) -> bool:
    """Whether a job of the server sent this: the server checks origins of what it forwards."""
    return str(request.get_header(MessageHeaderKey.ORIGIN, "")).startswith("server.")


def content_of(message: Message) -> bytes:
    return b"" if message.payload is None else bytes(message.payload)


def envelope_id_of(message: Message) -> str:
    return str(message.get_header(ENVELOPE_ID, ""))


def read_reply(message: Message | None, seconds: float) -> bytes | Failure:
    """A party's reply, or why there is none.

    Parameters
    ----------
    seconds
        How long was waited.

    Raises
    ------
    Unconnected
        The message never left this process.
    """
    code: Any = None
    if message is not None:
        code = message.get_header(MessageHeaderKey.RETURN_CODE, ReturnCode.OK)
    if message is None or code == ReturnCode.TIMEOUT:
        return Failure("late", f"gave no answer within {seconds:g} s")
    if code == ReturnCode.OK:
        return content_of(message)
    if code == ReturnCode.TARGET_UNREACHABLE:
        raise Unconnected
    if code == ReturnCode.COMM_ERROR:
        return Failure("failed", "is not connected")
    if code == ReturnCode.PROCESS_EXCEPTION:
        return Failure("failed", "broke down; its own log says more")
    if code == ReturnCode.INVALID_REQUEST:
        return Failure("failed", "is connected, but not ready yet")
    return Failure("failed", f"could not be asked ({code})")


#: Seconds between two looks at whether the run was stopped, and between two questions whether an
#: unanswered envelope arrived.
_LOOK, _PROBE = 0.25, 1.0
#: Seconds that such a question may take.
_PROBE_TIMEOUT = 3.0
#: Seconds per byte that an envelope may travel before it counts as lost.
_SLOWEST = 1 / 5e6
#: And an answer before it is asked for again: more, for that is only worth it where it is lost.
_SLOWEST_ANSWER = 1 / 1e5
#: Digits of the size of an answer, at most.
_SIZE_DIGITS = len(str(MOST_BYTES))


@dataclass
class _Sent:
    """An envelope on its way: its id, when it left, and what its party says of it.

    Attributes
    ----------
    unseen
        How often the party said that it has not arrived.
    answered
        When it first said that it was answered.
    times
        How often its party was sent it before.
    """

    number: str
    at: float
    unseen: int = 0
    answered: float | None = None
    times: int = 0


@dataclass
class _Batch:
    """Envelopes that were sent together, and their replies."""

    envelopes: Mapping[str, bytes | bytearray]
    timeout: float
    began: float
    sent: dict[str, _Sent] = field(default_factory=dict)
    replies: dict[str, bytes | Failure] = field(default_factory=dict)
    lost: bool = False
    change: Condition = field(default_factory=Condition)

    def settle(self, party: str, reply: bytes | Failure) -> None:
        """Keep what came first: a reply, or a reason why none will come."""
        with self.change:
            self.replies.setdefault(party, reply)
            self.change.notify_all()

    def lose(self) -> None:
        with self.change:
            self.lost = True
            self.change.notify_all()

    @property
    def waiting(self) -> list[str]:
        return [party for party in self.envelopes if party not in self.replies]


class NvflareTransport:
    """Carries envelopes from the coordinator's job process to the parties' processes.

    A party that is not connected costs a few milliseconds. One that dies over an envelope is
    noticed by asking every second what has become of the envelope. One that hangs costs the whole
    timeout. An answer that was lost on its way is asked for again: the engine drops what a site
    says before its login, and what was under way when a connection broke.

    Parameters
    ----------
    cell
        The engine's endpoint in this process.
    parties
        Names of all parties of the run.
    stopped
        Tells whether the run was stopped.
    """

    def __init__(self, cell: Any, parties: tuple[str, ...], stopped: Callable[[], bool]) -> None:
        # Not through the cell itself, which would stream what goes on a channel like ours.
        self._core = cell.core_cell
        self._parties = parties
        self._stopped = stopped
        self._batches: list[_Batch] = []
        self._lock = Lock()

    @property
    def parties(self) -> tuple[str, ...]:
        return self._parties

    @property
    def unanswered(self) -> tuple[str, ...]:
        with self._lock:
            return tuple({party: None for batch in self._batches for party in batch.waiting})

    def send(
        self, envelopes: Mapping[str, bytes | bytearray], timeout: float
    ) -> dict[str, bytes | Failure]:
        """Replies as bytes, or why there is none."""
        batch = _Batch(envelopes, timeout, clock.now())
        for party, envelope in envelopes.items():
            if party not in self._parties:
                batch.settle(party, Failure("unknown", "is no party of this run"))
            elif len(envelope) > MOST_BYTES:
                batch.settle(party, Failure("failed", "would get more than 2 GB in one envelope"))
            else:
                # A thread for each: the engine's own call for all ends when the last one does.
                self._start(batch, party)
        with self._lock:
            self._batches.append(batch)
        try:
            self._wait(batch)
        finally:
            with self._lock:
                self._batches.remove(batch)
        return {party: batch.replies[party] for party in envelopes}

    def _start(self, batch: _Batch, party: str, times: int = 0) -> None:
        sent = batch.sent[party] = _Sent(uuid4().hex, clock.now(), times=times)
        Thread(target=self._carry, args=(batch, party, sent.number), daemon=True).start()

    def _carry(self, batch: _Batch, party: str, number: str) -> None:
        left = max(_LOOK, batch.began + batch.timeout - clock.now())
        try:
            reply = self._request(party, ASK, number, batch.envelopes[party], left)
            batch.settle(party, reply)
        except Unconnected:
            batch.lose()
        except Exception as error:
            # A fault of the engine must not leave the caller waiting for ever.
            batch.settle(party, Failure("failed", f"could not be asked ({type(error).__name__})"))

    def _request(
        self, party: str, topic: str, number: str, content: bytes | bytearray, timeout: float
    ) -> bytes | Failure:
        found = self._core.broadcast_multi_requests(
            message_to(party, topic, number, content), timeout
        )
        return read_reply(found.get(party), timeout)

    def _wait(self, batch: _Batch) -> None:
        # The engine's own timeout ends a little later; its late thread then settles nothing.
        until = batch.began + batch.timeout
        prober: Thread | None = None
        while True:
            with batch.change:
                if not batch.waiting:
                    return
                if not batch.lost:
                    clock.wait(batch.change, _LOOK)
            if batch.lost:
                raise Stopped("the coordinator's job has lost its server, and ends")
            if self._stopped():
                raise Stopped("the run was stopped")
            now = clock.now()
            if now > until:
                for party in batch.waiting:
                    late = Failure("late", f"gave no answer within {batch.timeout:g} s")
                    batch.settle(party, late)
                return
            if prober is None and now - batch.began > _PROBE:
                prober = Thread(target=self._probe, args=(batch, until), daemon=True)
                prober.start()

    def _probe(self, batch: _Batch, until: float) -> None:
        """Ask after unanswered envelopes until all are answered or their time is over."""
        while clock.now() < until and not batch.lost:
            for party in batch.waiting:
                self._ask_after(batch, party)
            if not batch.waiting:
                return
            clock.sleep(_PROBE)

    def _ask_after(self, batch: _Batch, party: str) -> None:
        sent = batch.sent[party]
        try:
            answer = self._request(party, SEEN, sent.number, b"", _PROBE_TIMEOUT)
        except Unconnected:
            batch.lose()
            return
        except Exception:  # The next question may get through.
            return
        if isinstance(answer, Failure):
            if answer.kind == "failed":
                batch.settle(party, answer)
        elif answer == NO:
            travelling = clock.now() - sent.at < len(batch.envelopes[party]) * _SLOWEST
            # Twice, because a question can overtake an envelope.
            sent.unseen += not travelling
            if sent.unseen > 1:
                batch.settle(party, Failure("failed", "was restarted and lost the envelope"))
        elif answer.startswith(ANSWERED) and _is_lost(sent, answer):
            # Answers are the same however often they are asked for.
            log.info("%s is asked again, for its answer was lost on its way", party)
            self._start(batch, party, sent.times + 1)


def _is_lost(sent: _Sent, answer: bytes) -> bool:
    """Whether the answer to an envelope, of the size that the party says, cannot come any more.

    A party may say anything, and that for ever: what is no size says nothing, and each time it is
    sent an envelope again after twice as long.
    """
    size = answer[len(ANSWERED) :]
    if not size.isdigit() or len(size) > _SIZE_DIGITS:
        return False
    now = clock.now()
    if sent.answered is None:
        sent.answered = now
    return now - sent.answered >= _PROBE * 2.0**sent.times + int(size) * _SLOWEST_ANSWER
