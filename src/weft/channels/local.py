"""All parties in one process: the simulation, with the messages of the deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from weft.channels.channel import Channel, Failure, Handler, Replies, Request
from weft.channels.message import Message, size_of
from weft.channels.packing import pack, unpack
from weft.errors import WeftError


@dataclass(frozen=True)
class Recorded:
    """One message and its reply, as they would have crossed the network."""

    phase: str
    party: str
    message: Message
    reply: Message


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
        Keep every message and reply in ``transcript``: how tests see what each side sees.
    packed
        Turn every message and reply into bytes and back, as a network does: nothing but plain
        values crosses, and no array is shared.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        timeout: float | None = None,
        record: bool = False,
        packed: bool = False,
    ) -> None:
        super().__init__()
        self._handlers = dict(handlers)
        if packed:
            self._handlers = {name: _through_bytes(call) for name, call in handlers.items()}
        self._timeout = timeout
        self.transcript: list[Recorded] | None = [] if record else None

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(self._handlers)

    def exchange(self, requests: Sequence[Request]) -> list[Replies]:
        gone: dict[str, Failure] = {}
        results = []
        for request in requests:
            replies = Replies(request.phase)
            down = up = 0
            slowest = total = 0.0
            answered, missing, handlers = replies.answered, replies.missing, self._handlers
            for party, message in request.messages.items():
                if party in gone:
                    missing[party] = gone[party]
                    continue
                down += size_of(message)
                start = perf_counter()
                try:
                    reply = handlers[party](request.phase, message)
                except KeyError as error:
                    if party in handlers:
                        missing[party] = gone[party] = _broken(error)
                    else:
                        missing[party] = Failure("unknown", "no such party")
                    continue
                except WeftError as error:
                    missing[party] = gone[party] = Failure("refused", str(error))
                    continue
                except Exception as error:
                    missing[party] = gone[party] = _broken(error)
                    continue
                seconds = perf_counter() - start
                if self._timeout is not None and seconds > self._timeout:
                    late = Failure("late", f"no reply within {self._timeout:g} s")
                    missing[party] = gone[party] = late
                    continue
                total += seconds
                if seconds > slowest:
                    slowest = seconds
                if type(reply) is not dict:
                    missing[party] = gone[party] = Failure("failed", "its reply is no message")
                    continue
                up += size_of(reply)
                answered[party] = reply
                if self.transcript is not None:
                    self.transcript.append(Recorded(request.phase, party, message, reply))
            self.meter.record(request.phase, down, up, slowest, total)
            results.append(replies)
        self.meter.round_trips += 1
        return results


def _through_bytes(handler: Handler) -> Handler:
    def answer(phase: str, message: Message) -> Message:
        return unpack(pack(handler(phase, unpack(pack(message)))))

    return answer


def _broken(error: Exception) -> Failure:
    return Failure("failed", f"{type(error).__name__}: {error}")
