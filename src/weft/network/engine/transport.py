"""The coordinator's post: letters to parties through the engine, each with its own fate."""

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

#: Seconds between two looks at whether the run was stopped, and between two questions after a
#: letter that is not answered.
_LOOK, _PROBE = 0.25, 1.0
#: Seconds that a question after a letter may take.
_PROBE_TIMEOUT = 3.0
#: A letter may be on its way for so many seconds a byte before it counts as lost.
_SLOWEST = 1 / 5e6


@dataclass
class _Round:
    """Letters that went out together."""

    letters: Mapping[str, bytes]
    timeout: float
    numbers: dict[str, str]
    replies: dict[str, bytes | Failure] = field(default_factory=dict)
    lost: bool = False
    change: Condition = field(default_factory=Condition)

    def settle(self, party: str, reply: bytes | Failure) -> None:
        """Take what came first: a reply, or the news that none will come."""
        with self.change:
            self.replies.setdefault(party, reply)
            self.change.notify_all()

    def lose(self) -> None:
        with self.change:
            self.lost = True
            self.change.notify_all()

    @property
    def waiting(self) -> list[str]:
        return [party for party in self.letters if party not in self.replies]


class NvflarePost:
    """Carries letters from the coordinator's job process to the parties' processes.

    A party that is not connected costs a few milliseconds. One that dies over a letter is found
    out by asking after the letter every second. One that sleeps costs the whole timeout.

    Parameters
    ----------
    cell
        The engine's end of the wire in this process.
    parties
        Names of all parties of the run.
    stopped
        Tells whether somebody has stopped the run.
    """

    def __init__(self, cell: Any, parties: tuple[str, ...], stopped: Callable[[], bool]) -> None:
        # Not through the cell itself, which would stream what goes on a channel like ours.
        self._core = cell.core_cell
        self._parties = parties
        self._stopped = stopped

    @property
    def parties(self) -> tuple[str, ...]:
        return self._parties

    def send(self, letters: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        """Replies as bytes, or why there is none."""
        numbers = {party: uuid4().hex for party in letters}
        fate = _Round(letters, timeout, numbers)
        for party, letter in letters.items():
            if party not in self._parties:
                fate.settle(party, Failure("unknown", "is no party of this run"))
            elif len(letter) > MOST_BYTES:
                fate.settle(party, Failure("failed", "would get a letter beyond 2 GB"))
            else:
                # A thread for each: the engine's own call for all ends when the last one does.
                Thread(target=self._carry, args=(fate, party), daemon=True).start()
        self._wait(fate)
        return {party: fate.replies[party] for party in letters}

    def _carry(self, fate: _Round, party: str) -> None:
        number, letter = fate.numbers[party], fate.letters[party]
        try:
            fate.settle(party, self._request(party, ASK, number, letter, fate.timeout))
        except Unconnected:
            fate.lose()
        except Exception as error:
            # The engine's own troubles; whoever waits must not wait for ever.
            fate.settle(party, Failure("failed", f"could not be asked ({type(error).__name__})"))

    def _request(
        self, party: str, topic: str, number: str, content: bytes, timeout: float
    ) -> bytes | Failure:
        found = self._core.broadcast_multi_requests(
            message_to(party, topic, number, content), timeout
        )
        return read_reply(found.get(party), timeout)

    def _wait(self, fate: _Round) -> None:
        began = time.monotonic()
        # The engine's own timeout ends a little later; its late thread then settles nothing.
        until = began + fate.timeout
        prober: Thread | None = None
        while True:
            with fate.change:
                if not fate.waiting:
                    return
                if not fate.lost:
                    fate.change.wait(_LOOK)
            if fate.lost:
                raise Stopped("the coordinator's job has lost its server, and ends")
            if self._stopped():
                raise Stopped("the run was stopped")
            now = time.monotonic()
            if now > until:
                for party in fate.waiting:
                    late = Failure("late", f"gave no answer within {fate.timeout:g} s")
                    fate.settle(party, late)
                return
            if prober is None and now - began > _PROBE:
                prober = Thread(target=self._probe, args=(fate, began, until), daemon=True)
                prober.start()

    def _probe(self, fate: _Round, began: float, until: float) -> None:
        """Ask after the letters that are not answered, until all are or their time is over."""
        unseen: dict[str, int] = {}
        while time.monotonic() < until and not fate.lost:
            for party in fate.waiting:
                self._ask_after(fate, party, began, unseen)
            if not fate.waiting:
                return
            time.sleep(_PROBE)

    def _ask_after(self, fate: _Round, party: str, began: float, unseen: dict[str, int]) -> None:
        try:
            answer = self._request(party, SEEN, fate.numbers[party], b"", _PROBE_TIMEOUT)
        except Unconnected:
            fate.lose()
            return
        except Exception:  # as for a letter; the next question may get through
            return
        if isinstance(answer, Failure):
            if answer.kind == "failed":
                fate.settle(party, answer)
            return
        travelling = time.monotonic() - began < len(fate.letters[party]) * _SLOWEST
        if answer == NO and not travelling:
            # Twice, because a question can overtake a letter.
            unseen[party] = unseen.get(party, 0) + 1
            if unseen[party] > 1:
                fate.settle(party, Failure("failed", "was started again and lost the letter"))
