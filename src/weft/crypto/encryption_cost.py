"""What encryption costs: seconds, values and bytes, counted where the work is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from time import perf_counter


@dataclass
class Cost:
    """Costs of one side, added up.

    Attributes
    ----------
    seconds
        In the cipher, labels and bytes included.
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

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the seconds of a block of work."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds += perf_counter() - start

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Cost)))

    def __sub__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(Cost)))


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

    slowest: Cost
    parties: Cost
    coordinator: Cost

    @property
    def seconds(self) -> float:
        """Of everybody together."""
        return self.parties.seconds + self.coordinator.seconds

    @property
    def bytes(self) -> int:
        """In both directions."""
        return self.parties.bytes + self.coordinator.bytes
