"""A process that plays some of a federation's parties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import weft.all_messages  # noqa: F401 – a party answers phases of every kind
from weft.crypto.keys import PartyKeys
from weft.crypto.party_key_pairs import Identity, PublicIdentity
from weft.crypto.secret_bytes import Secret
from weft.data.tile import Tile
from weft.federation.party import Party
from weft.protocol import (
    Failure,
    LocalChannel,
    Meter,
    Request,
    fields_of,
    pack,
    phase_named,
    unpack,
)

#: What a host is asked: per phase, its name and every party's message as bytes.
Letter = list[tuple[str, dict[str, bytes]]]


class HostedParty(NamedTuple):
    """All that a party is made of, but for its keys."""

    name: str
    tiles: Sequence[Tile]
    made_of: dict[str, Any]


class Answers(NamedTuple):
    """What the parties of a host say to one phase, and what that cost."""

    answered: dict[str, bytes]
    missing: dict[str, Failure]
    slowest: float
    total: float


class PartyHost:
    """Parties that live in one process.

    Parameters
    ----------
    parties
        What they are made of.
    run_secret
        What all parties of this run share, and the coordinator's messages never hold. Identities
        are made here: private keys do not travel.
    """

    def __init__(self, parties: Sequence[HostedParty], run_secret: bytes) -> None:
        self._identities: dict[str, PublicIdentity] = {}
        self._parties: dict[str, Party] = {}
        for name, tiles, made_of in parties:
            keys = PartyKeys(name, Identity.new(), Secret(run_secret))
            self._identities[name] = keys.identity.public
            self._parties[name] = Party(name, tiles, keys=keys, **made_of)
        self._channel = LocalChannel({name: party.on for name, party in self._parties.items()})

    def identities(self) -> dict[str, PublicIdentity]:
        """Public keys of the parties."""
        return self._identities

    def exchange(self, letter: Letter) -> list[Answers]:
        """Let the parties answer, one after the other."""
        costs = self._channel.meter = _Calls()
        requests = [_request(name, messages) for name, messages in letter]
        found = []
        for replies, cost in zip(self._channel.exchange(requests), costs.calls, strict=True):
            answered = {party: pack(fields_of(reply)) for party, reply in replies.answered.items()}
            found.append(Answers(answered, replies.missing, *cost))
        return found

    def look(self, what: Callable[[Party], Any]) -> dict[str, Any]:
        """What the parties have, for whoever owns all of them."""
        return {name: what(party) for name, party in self._parties.items()}


class _Calls(Meter):
    """Seconds of every call: the slowest party's, and those of all."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[float, float]] = []

    def record(self, phase: str, down: int, up: int, slowest: float, total: float) -> None:
        self.calls.append((slowest, total))


def _request(name: str, messages: dict[str, bytes]) -> Request[Any, Any]:
    phase = phase_named(name)
    read = {party: phase.read_request(unpack(packed)) for party, packed in messages.items()}
    return Request(phase, read)
