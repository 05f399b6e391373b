"""Messages as bytes: what a network carries.

A message is a flat dictionary, so its bytes are a version mark and a MessagePack map in which an
array is its type, shape and buffer. Nothing in it can name code: unpacking builds plain values
or refuses.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from weft.errors import ProtocolError
from weft.protocol.message import Fields, OnDevice, Value

_VERSION = b"WEFT1"
#: Array types that may travel, by their code in NumPy: whole numbers, floats, flags, text.
_KINDS = "iufbU"


#: Values that travel as they are.
_PLAIN = frozenset({bool, int, float, str, bytes})

#: No axis of an array is longer.
_LONGEST = 1 << 36


class _Array(msgspec.Struct, array_like=True, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def pack(message: Fields) -> bytes:
    """Serialise the fields of a message."""
    fields: dict[str, Any] = {}
    for name, held in message.items():
        if type(held) in _PLAIN:
            fields[name] = ("v", held)
            continue
        value = held.to_host() if isinstance(held, OnDevice) else held
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in _KINDS:
                raise ProtocolError(f"field '{name}' holds {value.dtype}, which cannot travel")
            fields[name] = ("a", _Array(value.dtype.str, value.shape, value.tobytes()))
        elif isinstance(value, bool | np.bool_):
            fields[name] = ("v", bool(value))
        elif isinstance(value, np.integer):
            fields[name] = ("v", int(value))
        elif isinstance(value, np.floating):
            fields[name] = ("v", float(value))
        else:
            fields[name] = ("v", value)
    return _VERSION + msgspec.msgpack.encode(fields)


def unpack(packed: bytes) -> Fields:
    """The inverse of :func:`pack`; anything else is a ProtocolError."""
    if not packed.startswith(_VERSION):
        raise ProtocolError("a message does not begin with this version's mark; update both sides")
    try:
        fields = msgspec.msgpack.decode(packed[len(_VERSION) :], type=dict[str, tuple[str, Any]])
        return {name: _value(kind, value) for name, (kind, value) in fields.items()}
    except (msgspec.MsgspecError, ValueError, TypeError, SyntaxError, RecursionError) as error:
        raise ProtocolError(f"a message cannot be read: {error}") from None


def _value(kind: str, value: Any) -> Value:
    if kind == "v" and isinstance(value, bool | int | float | str | bytes):
        return value
    if kind != "a":
        raise ValueError(f"unknown kind of field {kind!r}")
    parts = msgspec.convert(value, _Array)
    dtype = np.dtype(parts.dtype)
    if dtype.kind not in _KINDS:
        raise ValueError(f"arrays of {dtype} do not travel")
    if any(not 0 <= n <= _LONGEST for n in parts.shape):
        raise ValueError("an array has a length that cannot be")
    # A copy: the receiver may write into what it was sent.
    return np.frombuffer(parts.data, dtype).reshape(parts.shape).copy()
