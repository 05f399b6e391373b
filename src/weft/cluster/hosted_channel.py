"""The channel to parties that hosts play: one letter to each host, all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from weft.cluster.party_host import Answers, Letter
from weft.crypto.party_key_pairs import PublicIdentity
from weft.federation.party import Party
from weft.protocol import (
    Channel,
    Failure,
    LocalChannel,
    Message,
    Phase,
    Recorded,
    Replies,
    Request,
    Sink,
    fields_of,
    pack,
    size_of,
    unpack,
)

_UNKNOWN = Failure("unknown", "no such party")


class Hosts(Protocol):
    """Processes with a `PartyHost` each."""

    def identities(self) -> dict[str, PublicIdentity]:
        """Public keys of all parties."""

    def ask(self, host: int, letter: Letter) -> Any:
        """Send a letter; returns what `wait` takes."""

    def wait(self, asked: Any, seconds: float | None) -> list[Answers] | Failure:
        """The answers to a letter. One that comes too late is never taken for another's."""

    def look(self, host: int, what: Callable[[Party], Any]) -> dict[str, Any]:
        """What the parties of a host have; nothing, if it is gone."""

    def close(self) -> None:
        """End the processes."""


class HostedChannel(LocalChannel):
    """Carries messages to parties in other processes, as bytes.

    Parameters
    ----------
    hosts
        The processes.
    host_of
        Which of them plays each party, in the order of the federation.
    timeout
        Seconds that all parties of a host together may take for one letter.
    """

    def __init__(
        self,
        hosts: Hosts,
        host_of: Mapping[str, int],
        *,
        timeout: float | None = None,
        record: bool | Sink = False,
    ) -> None:
        super().__init__(dict.fromkeys(host_of, _elsewhere), timeout=timeout, record=record)
        self._hosts, self._host_of = hosts, dict(host_of)

    def pause(self, seconds: float) -> None:
        """Wait: a host that was late may answer again."""
        Channel.pause(self, seconds)

    def exchange(self, requests: Sequence[Request[Any, Any]]) -> list[Replies[Any]]:
        letters: dict[int, Letter] = {}
        for number, request in enumerate(requests):
            for party, message in request.messages.items():
                host = self._host_of.get(party)
                if host is not None:
                    letter = letters.setdefault(host, [(r.phase.name, {}) for r in requests])
                    letter[number][1][party] = pack(fields_of(message))
        asked = {host: self._hosts.ask(host, letter) for host, letter in letters.items()}
        came = {host: self._hosts.wait(ticket, self._timeout) for host, ticket in asked.items()}
        results = [self._replies(number, request, came) for number, request in enumerate(requests)]
        self.meter.round_trips += 1
        return results

    def _replies(
        self, number: int, request: Request[Any, Any], came: Mapping[int, list[Answers] | Failure]
    ) -> Replies[Any]:
        """What all parties say to one request, in its order."""
        replies: Replies[Any] = Replies(request.phase.name)
        down = up = 0
        for party, message in request.messages.items():
            down += size_of(message)
            reply, failure = self._reply(number, request.phase, party, came)
            if failure is not None:
                replies.missing[party] = failure
            else:
                replies.answered[party] = reply
                up += size_of(reply)
            if self._sink is not None:
                said = {} if reply is None else fields_of(reply)
                self._sink(Recorded(request.phase.name, party, fields_of(message), said, failure))
        costs = [answers[number] for answers in came.values() if not isinstance(answers, Failure)]
        slowest = max((cost.slowest for cost in costs), default=0.0)
        self.meter.record(request.phase.name, down, up, slowest, sum(cost.total for cost in costs))
        return replies

    def _reply(
        self,
        number: int,
        phase: Phase[Any, Any],
        party: str,
        came: Mapping[int, list[Answers] | Failure],
    ) -> tuple[Any, Failure | None]:
        host = self._host_of.get(party)
        if host is None:
            return None, _UNKNOWN
        answers = came[host]
        if isinstance(answers, Failure):
            return None, answers
        if party in answers[number].missing:
            return None, answers[number].missing[party]
        return phase.read_reply(unpack(answers[number].answered[party])), None


def _elsewhere(phase: Phase[Any, Any], message: Message) -> NoReturn:
    """No party of this channel is in this process: `exchange` asks its host."""
    raise AssertionError("parties of hosts are asked through `exchange`")
