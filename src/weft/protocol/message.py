"""What travels between the coordinator and a party."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ProtocolError


class OnDevice(ABC):
    """Numbers in the memory of an accelerator, which stay there as long as nothing has to travel.

    A channel in one process hands them on as they are; as bytes, they are the array of
    :meth:`to_host`, and an array is what the receiver finds then.
    """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the array."""

    @abstractmethod
    def to_host(self) -> NDArray[Any]:
        """A copy as an array."""


#: A flat dictionary of arrays, bytes and scalars: trivially serialisable, and its size is
#: what the meter counts. An absent field means "nothing of this kind for you".
Value = NDArray[Any] | OnDevice | bytes | str | int | float | bool
Message = dict[str, Value]


def size_of(message: Mapping[str, Value]) -> int:
    """Bytes of payload in a message: array buffers, byte strings, eight for a number."""
    total = 0
    for value in message.values():
        # Exact types first: this runs for every message of thousands of parties.
        kind = type(value)
        if kind is np.ndarray:
            total += value.nbytes  # type: ignore[union-attr]
        elif kind is bytes or kind is str:
            total += len(value)  # type: ignore[arg-type]
        elif isinstance(value, OnDevice):
            total += value.nbytes
        else:
            total += 8
    return total


def array(message: Mapping[str, Value], field: str) -> NDArray[Any]:
    """The array in ``message[field]``; anything else is a malformed message."""
    value = message.get(field)
    if type(value) is not np.ndarray:
        raise _malformed(field, value, "an array")
    return value


def text(message: Mapping[str, Value], field: str) -> str:
    """The string in ``message[field]``; anything else is a malformed message."""
    value = message.get(field)
    if not isinstance(value, str):
        raise _malformed(field, value, "text")
    return value


def binary(message: Mapping[str, Value], field: str) -> bytes:
    """The byte string in ``message[field]``; anything else is a malformed message."""
    value = message.get(field)
    if type(value) is not bytes:
        raise _malformed(field, value, "bytes")
    return value


def integer(message: Mapping[str, Value], field: str, default: int | None = None) -> int:
    """The whole number in ``message[field]``, or ``default`` where the field is absent."""
    value = message.get(field, default)
    if type(value) is int:
        return value
    if not isinstance(value, int | np.integer):
        raise _malformed(field, value, "an integer")
    return int(value)


def number(message: Mapping[str, Value], field: str) -> float:
    """The number in ``message[field]``; anything else is a malformed message."""
    value = message.get(field)
    if type(value) is float:
        return value
    if not isinstance(value, int | float | np.number):
        raise _malformed(field, value, "a number")
    return float(value)


def _malformed(field: str, value: object, expected: str) -> ProtocolError:
    found = "is missing" if value is None else f"holds {type(value).__name__}"
    return ProtocolError(f"a message is malformed: '{field}' {found}, expected {expected}")


def floats(message: Mapping[str, Value], field: str, *shape: int | None) -> NDArray[np.float64]:
    """An array of finite numbers of that shape; None: any length."""
    found = message.get(field)
    fits = (
        isinstance(found, np.ndarray)
        and found.dtype == np.float64
        and found.ndim == len(shape)
        and all(want in (None, have) for have, want in zip(found.shape, shape, strict=True))
    )
    if not fits or not isinstance(found, np.ndarray) or not np.isfinite(found).all():
        raise ProtocolError(
            f"a message is malformed: '{field}' does not hold the numbers it should"
        )
    return found


def cut_boxes(message: Message) -> list[bytes]:
    """The boxes of a message, one by one."""
    boxes, at, cut = binary(message, "boxes"), 0, []
    for length in array(message, "boxes.lengths").tolist():
        cut.append(boxes[at : at + length])
        at += length
    if at != len(boxes):
        raise ProtocolError("a message is malformed: 'boxes' do not have the lengths told")
    return cut
