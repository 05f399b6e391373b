"""Frames between the coordinator's job and a party, and the coordinator's transport.

An envelope travels as bytes in one frame, on a channel of our own. The engine's auxiliary messages
take four times as long for the same bytes (they are streamed, with acknowledgements), and sending
a different one to each party is broken in 2.9.0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any
from uuid import uuid4

from nvflare.fuel.f3.cellnet.core_cell import TargetMessage
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.message import Message

from weft.network.transport_interface import Stopped
from weft.protocol import Failure

#: The channel and its two topics: an envelope, and whether an envelope has arrived.
CHANNEL, ASK, SEEN = "weft", "ask", "seen"
#: Header with an envelope's id, by which the coordinator can ask whether it arrived.
ENVELOPE_ID = "weft.envelope"
#: Answers to that question.
YES, NO = b"yes", b"no"
#: Largest envelope that fits into one frame of the engine, with its headers.
MOST_BYTES = 2**31 - 2**22


class Unconnected(Exception):
    """This process has lost its server, so it cannot reach any party."""


def message_to(party: str, topic: str, envelope: str, content: bytes) -> dict[str, TargetMessage]:
    """One party's message, as the engine's cells take it."""
    message = Message({ENVELOPE_ID: envelope}, content)
    return {party: TargetMessage(target=party, channel=CHANNEL, topic=topic, message=message)}


def reply_with(content: bytes) -> Message:
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


@dataclass
class _Batch:
    """Envelopes that were sent together, and their replies."""

    envelopes: Mapping[str, bytes]
    timeout: float
    numbers: dict[str, str]
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
    noticed by asking every second whether the envelope arrived. One that hangs costs the whole
    timeout.

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

    @property
    def parties(self) -> tuple[str, ...]:
        return self._parties

    def send(self, envelopes: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        """Replies as bytes, or why there is none."""
        numbers = {party: uuid4().hex for party in envelopes}
        batch = _Batch(envelopes, timeout, numbers)
        for party, envelope in envelopes.items():
            if party not in self._parties:
                batch.settle(party, Failure("unknown", "is no party of this run"))
            elif len(envelope) > MOST_BYTES:
                batch.settle(party, Failure("failed", "would get more than 2 GB in one envelope"))
            else:
                # A thread for each: the engine's own call for all ends when the last one does.
                Thread(target=self._carry, args=(batch, party), daemon=True).start()
        self._wait(batch)
        return {party: batch.replies[party] for party in envelopes}

    def _carry(self, batch: _Batch, party: str) -> None:
        number, envelope = batch.numbers[party], batch.envelopes[party]
        try:
            batch.settle(party, self._request(party, ASK, number, envelope, batch.timeout))
        except Unconnected:
            batch.lose()
        except Exception as error:
            # A fault of the engine must not leave the caller waiting for ever.
            batch.settle(party, Failure("failed", f"could not be asked ({type(error).__name__})"))

    def _request(
        self, party: str, topic: str, number: str, content: bytes, timeout: float
    ) -> bytes | Failure:
        found = self._core.broadcast_multi_requests(
            message_to(party, topic, number, content), timeout
        )
        return read_reply(found.get(party), timeout)

    def _wait(self, batch: _Batch) -> None:
        began = time.monotonic()
        # The engine's own timeout ends a little later; its late thread then settles nothing.
        until = began + batch.timeout
        prober: Thread | None = None
        while True:
            with batch.change:
                if not batch.waiting:
                    return
                if not batch.lost:
                    batch.change.wait(_LOOK)
            if batch.lost:
                raise Stopped("the coordinator's job has lost its server, and ends")
            if self._stopped():
                raise Stopped("the run was stopped")
            now = time.monotonic()
            if now > until:
                for party in batch.waiting:
                    late = Failure("late", f"gave no answer within {batch.timeout:g} s")
                    batch.settle(party, late)
                return
            if prober is None and now - began > _PROBE:
                prober = Thread(target=self._probe, args=(batch, began, until), daemon=True)
                prober.start()

    def _probe(self, batch: _Batch, began: float, until: float) -> None:
        """Ask after unanswered envelopes until all are answered or their time is over."""
        unseen: dict[str, int] = {}
        while time.monotonic() < until and not batch.lost:
            for party in batch.waiting:
                self._ask_after(batch, party, began, unseen)
            if not batch.waiting:
                return
            time.sleep(_PROBE)

    def _ask_after(self, batch: _Batch, party: str, began: float, unseen: dict[str, int]) -> None:
        try:
            answer = self._request(party, SEEN, batch.numbers[party], b"", _PROBE_TIMEOUT)
        except Unconnected:
            batch.lose()
            return
        except Exception:  # The next question may get through.
            return
        if isinstance(answer, Failure):
            if answer.kind == "failed":
                batch.settle(party, answer)
            return
        travelling = time.monotonic() - began < len(batch.envelopes[party]) * _SLOWEST
        if answer == NO and not travelling:
            # Twice, because a question can overtake an envelope.
            unseen[party] = unseen.get(party, 0) + 1
            if unseen[party] > 1:
                batch.settle(party, Failure("failed", "was restarted and lost the envelope"))
