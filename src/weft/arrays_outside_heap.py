"""Large arrays that last, on pages of their own.

The C library hands memory out from one heap. Where arrays that stay for a run are made among the
messages of a round trip, they take the room that these leave, the next messages do not fit what
remains, and the heap grows by more than what is kept. Pages of their own lie elsewhere, cost
nothing until they are written to, and go back to the system with the array.
"""

from __future__ import annotations

import mmap
from hashlib import blake2b
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

#: Bytes from which an array has pages of its own; of a smaller one the last page would be a part.
LARGE = 1 << 20
#: Bytes from which the C library takes pages outside of its heap by itself, and can move them.
HUGE = 32 << 20
#: Shared pages, which are what `mmap` makes by itself, would be those of child processes as well.
_OPTIONS: dict[str, Any] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)
#: Arrays that are shared, by a hash of what is in them.
_SHARED: WeakValueDictionary[bytes, NDArray[Any]] = WeakValueDictionary()


def lasting_zeros(shape: tuple[int, ...], kind: DTypeLike = np.float64) -> NDArray[Any]:
    """As `numpy.zeros`."""
    dtype, count = np.dtype(kind), int(np.prod(shape))
    if count * dtype.itemsize < LARGE:
        return np.zeros(shape, dtype)
    pages = mmap.mmap(-1, count * dtype.itemsize, **_OPTIONS)
    return np.frombuffer(pages, dtype, count).reshape(shape)


def lasting(values: NDArray[Any], kind: DTypeLike) -> NDArray[Any]:
    """A copy, of this type."""
    kept = lasting_zeros(values.shape, kind)
    kept[...] = values
    return kept


def shared(values: NDArray[Any]) -> NDArray[Any]:
    """An array of the same numbers, which nobody may write to.

    Of a large one there is one in a process: parties that hold the same samples know the same of
    them, and a party knows some of it in several places.
    """
    if values.nbytes < LARGE:
        return values
    name = _name_of(values)
    found = _SHARED.get(name)
    if found is None:
        found = _SHARED[name] = lasting(values, values.dtype)
    return found


def _name_of(values: NDArray[Any]) -> bytes:
    """Two arrays have the same name only if they are alike in every bit."""
    name = blake2b(np.ascontiguousarray(values).data, digest_size=32).digest()
    return name + f"{values.dtype.str} {values.shape}".encode()
