"""Parties that are away: each costs its timeout once, and is then pinged beside the run."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Condition, Thread

from weft.errors import ProtocolError
from weft.network import clock
from weft.network.envelope_bytes import Failed, Ping, Pong, decode_reply, encode
from weft.network.transport_interface import Stopped, Transport
from weft.network.versions import OtherVersion
from weft.protocol import Failure

log = logging.getLogger("weft.network")

#: Seconds between two pings to an absent party: first and longest.
_FIRST, _LONGEST = 0.5, 5.0
#: The longest for a party that answers but is not ready.
_BUSY = 2.0


@dataclass
class _Away:
    failure: Failure
    wait: float
    due: float


class Liveness:
    """The parties that are away, and a thread that pings them until they are back.

    Parameters
    ----------
    transport
        Carries the pings.
    run
        Name of the run.
    timeout
        Seconds that a party has to answer a ping.
    """

    def __init__(self, transport: Transport, run: str, timeout: float) -> None:
        self._transport = transport
        self._ping = encode(Ping(run))
        self._timeout = timeout
        self._away: dict[str, _Away] = {}
        self._changed = Condition()
        self._thread: Thread | None = None
        self._closed = False

    def away(self) -> dict[str, Failure]:
        """Parties that must not be asked now, and why."""
        with self._changed:
            return {party: found.failure for party, found in self._away.items()}

    def mark_away(self, party: str, failure: Failure) -> None:
        """A party did not answer."""
        with self._changed:
            self._away[party] = _Away(failure, _FIRST, clock.now() + _FIRST)
            self._changed.notify()

    def mark_back(self, party: str) -> None:
        """A party has answered."""
        with self._changed:
            self._away.pop(party, None)

    def watch(self) -> None:
        """Ping absent parties from now on, until all are back."""
        with self._changed:
            if self._away and self._thread is None and not self._closed:
                self._thread = Thread(target=self._look, name="weft pings", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop pinging."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            clock.join(thread, self._timeout)

    def _look(self) -> None:
        try:
            while due := self._due():
                answers = self._transport.send(dict.fromkeys(due, self._ping), self._timeout)
                for party in due:
                    self._take(party, answers.get(party, Failure("unknown", "is not known")))
        except Stopped:
            # The next exchange of the run raises it too.
            pass
        except Exception:
            log.exception("absent parties are not pinged any more")
            with self._changed:
                self._closed = True

    def _due(self) -> Iterable[str]:
        """Parties to ping now; waits for the first, and returns none once all are back."""
        with self._changed:
            while self._away and not self._closed:
                now = clock.now()
                due = [party for party, away in self._away.items() if away.due <= now]
                if due:
                    return due
                next_due = min(away.due for away in self._away.values())
                clock.wait(self._changed, next_due - now)
            self._thread = None
            return ()

    def _take(self, party: str, answer: bytes | Failure) -> None:
        reason = _why_not(answer)
        with self._changed:
            away = self._away.get(party)
            if away is None:
                return
            if reason is None:
                del self._away[party]
                log.info("%s is back", party)
                return
            there = isinstance(answer, bytes)
            if there:
                away.failure = Failure("late", reason)
            away.wait = min(2 * away.wait, _BUSY if there else _LONGEST)
            away.due = clock.now() + away.wait


def _why_not(answer: bytes | Failure) -> str | None:
    """Why a party is not back; None: it is."""
    if isinstance(answer, Failure):
        return answer.reason
    try:
        reply = decode_reply(answer)
    except OtherVersion:
        # It was updated meanwhile, and will not get ready: the next envelope says so.
        return None
    except ProtocolError as error:
        return str(error)
    if isinstance(reply, Pong):
        return None if reply.ready else reply.doing
    return reply.reason if isinstance(reply, Failed) else "did not understand a ping"
