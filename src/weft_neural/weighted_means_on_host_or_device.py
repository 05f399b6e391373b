"""Weighted means of parties' vectors, in whatever memory they lie.

Over a network vectors are arrays. Where all parties share an accelerator with the coordinator they
stay in its memory, and so do their means: the class of `OnDevice` that holds them knows how.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import OnDevice, malformed

Floats32 = NDArray[np.float32]


#: Larger weights are none of a network that learns, and their squares would overflow.
LARGEST_WEIGHT = 1e15


class DeviceVector(OnDevice):
    """A vector in an accelerator's memory, as far as the coordinator must know it."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers it has."""

    @abstractmethod
    def piece(self, start: int, stop: int) -> Self:
        """Some of its numbers, not copied."""

    @abstractmethod
    def joined(self, others: Sequence[Self]) -> Self:
        """A copy of this vector and those after it, as one."""

    @abstractmethod
    def mean(self, others: Sequence[Self], weights: Sequence[float]) -> Self:
        """Σ weight · vector over this vector and the others."""


Vector = Floats32 | DeviceVector


def vector_of(found: Floats32 | OnDevice | None, field: str, size: int) -> Vector:
    """The vector in a field of a message, if it has the size that it must have."""
    if isinstance(found, DeviceVector) and found.size == size:
        return found
    sized = isinstance(found, np.ndarray) and found.shape == (size,)
    if isinstance(found, np.ndarray) and sized and (np.abs(found) < LARGEST_WEIGHT).all():
        return found
    raise malformed(field, f"does not hold the {size} finite weights of a network")


def piece(vector: Vector, start: int, stop: int) -> Vector:
    """Some numbers of a vector, not copied."""
    return vector[start:stop] if isinstance(vector, np.ndarray) else vector.piece(start, stop)


def joined(parts: Sequence[Vector]) -> Vector:
    """One vector of several, copied."""
    first = parts[0]
    if isinstance(first, np.ndarray):
        return np.concatenate([host(part) for part in parts])
    return first.joined([_same(first, part) for part in parts[1:]])


def mean(vectors: Sequence[Vector], weights: Sequence[float]) -> Vector:
    """Σ p_m θ_m / Σ p_m: the minimum of (10)."""
    total = sum(weights)
    shares = [weight / total for weight in weights]
    first = vectors[0]
    if not isinstance(first, np.ndarray):
        return first.mean([_same(first, other) for other in vectors[1:]], shares)
    result = first * np.float32(shares[0])
    for vector, share in zip(vectors[1:], shares[1:], strict=True):
        result += host(vector) * np.float32(share)
    return result


def host(vector: Vector) -> Floats32:
    """The vector as an array."""
    return vector if isinstance(vector, np.ndarray) else vector.to_host()


def _same(first: DeviceVector, other: Vector) -> DeviceVector:
    if not isinstance(other, DeviceVector):
        raise ProtocolError("some weights came from an accelerator and some did not; stop this run")
    return other
