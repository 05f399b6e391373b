"""What a run costs: round trips, bytes and seconds, by phase."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

#: Seconds of a round trip that costs are modelled with: none, from the US to Singapore, and over a
#: geostationary satellite.
LATENCIES = (0.0, 0.2575, 0.8)


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
class Reading:
    """Totals of a meter at one moment; two readings subtract to the cost in between."""

    round_trips: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    slowest: float = 0.0

    def __sub__(self, earlier: Reading) -> Reading:
        return Reading(
            self.round_trips - earlier.round_trips,
            self.bytes_down - earlier.bytes_down,
            self.bytes_up - earlier.bytes_up,
            self.slowest - earlier.slowest,
        )

    def __add__(self, other: Reading) -> Reading:
        return Reading(
            self.round_trips + other.round_trips,
            self.bytes_down + other.bytes_down,
            self.bytes_up + other.bytes_up,
            self.slowest + other.slowest,
        )


@dataclass
class Meter:
    """Counts round trips of a channel, and bytes and seconds of every phase."""

    round_trips: int = 0
    phases: dict[str, PhaseCost] = field(default_factory=dict)

    def record(self, phase: str, down: int, up: int, slowest: float, total: float) -> None:
        """Add one call of ``phase``."""
        cost = self.phases.setdefault(phase, PhaseCost())
        cost.calls += 1
        cost.bytes_down += down
        cost.bytes_up += up
        cost.slowest += slowest
        cost.total += total

    def read(self, *, without: str | None = None) -> Reading:
        """Totals so far, on wish without the phases of one room, which travel alone."""
        kept = dict(self.phases)
        trips = self.round_trips
        if without is not None:
            kept = {name: cost for name, cost in kept.items() if name.split(".")[0] != without}
            trips -= sum(c.calls for name, c in self.phases.items() if name not in kept)
        costs = kept.values()
        return Reading(
            trips,
            sum(c.bytes_down for c in costs),
            sum(c.bytes_up for c in costs),
            sum(c.slowest for c in costs),
        )

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Costs by phase, in the order in which they first came, as plain values."""
        return {phase: asdict(cost) for phase, cost in self.phases.items()}
