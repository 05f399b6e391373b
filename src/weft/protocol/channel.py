"""The door between the coordinator and the parties: ask, and learn who answered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, Generic, Literal

from weft.errors import PartyAway, ProtocolError
from weft.protocol.message import Message
from weft.protocol.metering import Meter
from weft.protocol.phase import Phase, Q, R

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
