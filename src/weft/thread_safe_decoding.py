"""Types that are ready to be decoded, from whichever thread.

msgspec prepares a type when it is first decoded or converted to, and ends the process where two
threads do that at once. So types of Weft's own are prepared here, one after the other.
"""

from __future__ import annotations

from threading import Lock
from types import UnionType
from typing import Any, TypeVar, overload

import msgspec

_T = TypeVar("_T")

_PREPARING = Lock()
_PREPARED: set[object] = set()


@overload
def prepared(kind: type[_T]) -> type[_T]: ...


@overload
def prepared(kind: UnionType) -> Any: ...


def prepared(kind: object) -> object:
    """The same type, which msgspec knows from now on."""
    if kind not in _PREPARED:
        with _PREPARING:
            msgspec.msgpack.Decoder(kind)
            _PREPARED.add(kind)
    return kind
