"""The party of one run at a site: what it must be able to do, and who makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from weft.crypto.randomness_kept_for_restart import Memory
from weft.network.site_snapshots import Snapshots
from weft.protocol import Fields, Message, Phase


class RunParty(Protocol):
    """A party of one run, as :class:`weft.federation.party.Party` is.

    It keeps what it draws at random, and may have a context ``replaying()`` in which everything
    must come from there; its ``exposure``, if it has one, says what the run has shown. One that
    signs for what it saw has ``settle``, which tells it before every envelope how the last one
    ended: hashes of the replies as they were sent, or None where the coordinator did not get them.
    The same messages must bring a new party to the same state. One that can be saved in the course
    of a run has ``snapshots`` (:class:`weft.network.site_snapshots.Snapshots`), None before that.
    """

    def on(self, phase: Phase[Any, Any], message: Any) -> Message: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class PartyRequest:
    """A run that needs a party; what the party draws at random is kept in ``memory``."""

    run: str
    plan: Fields
    memory: Memory


@dataclass(frozen=True)
class OpenedParty:
    """A party, and its announcement to the coordinator."""

    member: RunParty
    announcement: Fields = field(default_factory=dict)


#: Makes the party of a run; a WeftError is a refusal. Called again after every restart.
OpenParty = Callable[[PartyRequest], OpenedParty]


def snapshots_of(opened: OpenedParty) -> Snapshots | None:
    """What saves a party; None: this kind of party cannot, or not yet."""
    found: Snapshots | None = getattr(opened.member, "snapshots", None)
    return found
