"""What a run costs: bytes, round trips and seconds by phase, and what encryption takes of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from functools import cache
from time import thread_time
from typing import Any, Self

import numpy as np
from msgspec.structs import astuple

from weft.protocol.declared_message_fields import Message, OnDevice, Part, Value, declared

#: Seconds of a round trip that costs are modelled with: none, from the US to Singapore, and over a
#: geostationary satellite.
LATENCIES = (0.0, 0.2575, 0.8)

_ARRAY = np.ndarray
_NUMBERS = (int, float, bool)


class _Figures:
    """Figures of a dataclass that are added and subtracted one by one."""

    def __add__(self, other: Self) -> Self:
        mine: Any = self
        return type(self)(*(getattr(mine, f.name) + getattr(other, f.name) for f in fields(mine)))

    def __sub__(self, other: Self) -> Self:
        mine: Any = self
        return type(self)(*(getattr(mine, f.name) - getattr(other, f.name) for f in fields(mine)))


@dataclass
class PhaseCost:
    """Costs of one phase, added up over its calls.

    ``slowest`` adds the slowest party's seconds of each call: parties work in parallel, so
    that is the time a federation waits. ``total`` adds all parties' seconds.
    """

    calls: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    slowest: float = 0.0
    total: float = 0.0


@dataclass(frozen=True)
class Reading(_Figures):
    """Totals of a meter at one moment; two readings subtract to the cost in between."""

    round_trips: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    slowest: float = 0.0


@dataclass
class Meter:
    """Counts round trips of a channel, and bytes and seconds of every phase."""

    round_trips: int = 0
    phases: dict[str, PhaseCost] = field(default_factory=dict)

    def record(self, phase: str, down: int, up: int, slowest: float, total: float) -> None:
        """Add one call of ``phase``."""
        cost = self.phases.get(phase)
        if cost is None:
            cost = self.phases[phase] = PhaseCost()
        cost.calls += 1
        cost.bytes_down += down
        cost.bytes_up += up
        cost.slowest += slowest
        cost.total += total

    def read(self, *, without: str | None = None) -> Reading:
        """Totals so far, on wish without the phases of one room, which travel alone."""
        costs, trips = [], self.round_trips
        for name, cost in self.phases.items():
            if without is not None and name.split(".", 1)[0] == without:
                trips -= cost.calls
            else:
                costs.append(cost)
        return Reading(
            trips,
            sum(c.bytes_down for c in costs),
            sum(c.bytes_up for c in costs),
            sum(c.slowest for c in costs),
        )

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Costs by phase, in the order in which they first came, as plain values."""
        return {phase: asdict(cost) for phase, cost in self.phases.items()}


# ── bytes of messages ──────────────────────────────────────────────────────────────────


def size_of(message: Message | Part) -> int:
    """Bytes of payload in a message: array buffers, byte strings, eight for a number."""
    total, others = _sized(type(message))
    values = astuple(message)
    # Exact types first: this runs for every message of thousands of parties.
    for place, default in others:
        value = values[place]
        if value is default or value is None:
            continue
        kind = type(value)
        if kind is bytes or kind is str:
            total += len(value)
        elif kind is int or kind is float or kind is bool:
            total += 8
        elif kind is _ARRAY:
            total += value.nbytes
        else:
            total += size_of(value) if isinstance(value, Part) else size_of_value(value)
    return total


def size_of_value(value: Value) -> int:
    """Bytes of payload in one field."""
    if isinstance(value, np.ndarray | OnDevice):
        return value.nbytes
    return len(value) if isinstance(value, bytes | str) else 8


@cache
def _sized(kind: type[Message] | type[Part]) -> tuple[int, tuple[tuple[int, object], ...]]:
    """Bytes of the numbers that every such message has; places and defaults of other fields.

    A default does not travel, and None stands for a field that must be there.
    """
    numbers, others = 0, []
    for place, each in enumerate(declared(kind)):
        if each.required and each.kind in _NUMBERS:
            numbers += 8
        else:
            others.append((place, None if each.required else each.default))
    return numbers, tuple(others)


# ── encryption ─────────────────────────────────────────────────────────────────────────


@dataclass
class EncryptionCost(_Figures):
    """What encryption costs one side, added up.

    Attributes
    ----------
    seconds
        In the cipher, ids of pads and bytes included.
    encrypted, decrypted, added
        Values, as a cipher that works value by value would count them.
    bytes
        Of blocks and masked scalars that this side sent.
    """

    seconds: float = 0.0
    encrypted: int = 0
    decrypted: int = 0
    added: int = 0
    bytes: int = 0

    def timed(self) -> Timed:
        """Count the seconds of a block of work."""
        return Timed(self)


class Timed:
    """Adds the seconds of a block of work to a cost; quicker than a generator is.

    Seconds are of the processor: where a machine is busy with other things, the slowest of many
    parties would be the one that had to wait for it.
    """

    def __init__(self, cost: EncryptionCost) -> None:
        self._cost = cost

    def __enter__(self) -> None:
        self._start = thread_time()

    def __exit__(self, *error: object) -> None:
        self._cost.seconds += thread_time() - self._start


@dataclass(frozen=True)
class Spent:
    """What a run spent on encryption.

    Attributes
    ----------
    slowest
        The party that spent the most seconds.
    parties, coordinator
        All parties together, and the coordinator.
    """

    slowest: EncryptionCost
    parties: EncryptionCost
    coordinator: EncryptionCost

    @property
    def seconds(self) -> float:
        """Of everybody together."""
        return self.parties.seconds + self.coordinator.seconds

    @property
    def bytes(self) -> int:
        """In both directions."""
        return self.parties.bytes + self.coordinator.bytes
