"""The coordinator's transport through the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any
from uuid import uuid4

from weft.network.engine.frames import (
    ASK,
    MOST_BYTES,
    NO,
    SEEN,
    Unconnected,
    message_to,
    read_reply,
)
from weft.network.transport import Stopped
from weft.protocol import Failure

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
