"""What travels between the coordinator and a party."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: A flat dictionary of arrays, bytes and scalars: trivially serialisable, and its size is
#: what the meter counts. An absent field means "nothing of this kind for you".
Value = NDArray[Any] | bytes | str | int | float | bool
Message = dict[str, Value]


def size_of(message: Mapping[str, Value]) -> int:
    """Bytes of payload in a message: array buffers, byte strings, eight for a number."""
    total = 0
    for value in message.values():
        if isinstance(value, np.ndarray):
            total += value.nbytes
        elif isinstance(value, bytes | str):
            total += len(value)
        else:
            total += 8
    return total


def array(message: Mapping[str, Value], field: str) -> NDArray[Any]:
    """The array in ``message[field]``; anything else is a malformed message."""
    value = message[field]
    if not isinstance(value, np.ndarray):
        raise TypeError(f"field '{field}' holds {type(value).__name__}, expected an array")
    return value


def text(message: Mapping[str, Value], field: str) -> str:
    """The string in ``message[field]``; anything else is a malformed message."""
    value = message[field]
    if not isinstance(value, str):
        raise TypeError(f"field '{field}' holds {type(value).__name__}, expected text")
    return value


def integer(message: Mapping[str, Value], field: str, default: int = 0) -> int:
    """The whole number in ``message[field]``, or ``default`` where the field is absent."""
    value = message.get(field, default)
    if not isinstance(value, int | np.integer):
        raise TypeError(f"field '{field}' holds {type(value).__name__}, expected an integer")
    return int(value)


def number(message: Mapping[str, Value], field: str) -> float:
    """The number in ``message[field]``; anything else is a malformed message."""
    value = message[field]
    if not isinstance(value, int | float | np.number):
        raise TypeError(f"field '{field}' holds {type(value).__name__}, expected a number")
    return float(value)
