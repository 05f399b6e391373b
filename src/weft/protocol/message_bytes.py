"""Messages as bytes: what a network carries.

A message is a flat dictionary, so its bytes are a version mark and a MessagePack map in which an
array is its type, shape and buffer. Nothing in it can name code: unpacking builds plain values
or refuses. What a request asks of all parties alike goes by its bytes too: a hash of them is in the
masks under the answers.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import numpy as np

from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import Fields, Message, OnDevice, Part, Value, declared
from weft.thread_safe_decoding import prepared

_VERSION = b"WEFT1"
#: Array types that may travel, by their code in NumPy: whole numbers, floats, flags, text.
_KINDS = "iufbU"


#: Values that travel as they are.
_PLAIN = frozenset({bool, int, float, str, bytes})

#: Bytes of a question's hash.
_HASH_BYTES = 32
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
        # Most that is left are arrays, and to ask an abstract class takes longer than to pack one.
        array = type(held) is np.ndarray
        value = held.to_host() if not array and isinstance(held, OnDevice) else held
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
        # A part of it as it is: large messages are not copied for that.
        content = memoryview(packed)[len(_VERSION) :]
        fields = msgspec.msgpack.decode(content, type=dict[str, tuple[str, Any]])
        return {name: _value(kind, value) for name, (kind, value) in fields.items()}
    except (msgspec.MsgspecError, ValueError, TypeError, SyntaxError, RecursionError) as error:
        raise ProtocolError(f"a message cannot be read: {error}") from None


def _value(kind: str, value: Any) -> Value:
    if kind == "v" and isinstance(value, bool | int | float | str | bytes):
        return value
    if kind != "a":
        raise ValueError(f"unknown kind of field {kind!r}")
    parts = msgspec.convert(value, prepared(_Array))
    dtype = np.dtype(parts.dtype)
    if dtype.kind not in _KINDS:
        raise ValueError(f"arrays of {dtype} do not travel")
    if any(not 0 <= n <= _LONGEST for n in parts.shape):
        raise ValueError("an array has a length that cannot be")
    # A copy: the receiver may write into what it was sent.
    return np.frombuffer(parts.data, dtype).reshape(parts.shape).copy()


# ── what all are asked alike ──────────────────────────────────────────────────────────────
#
# A total over parties that were asked different things, at other points or with other steps, would
# tell how one of them differs. Such totals must not be readable.


class Question(NamedTuple):
    """What masks are for; a party answers it once.

    Attributes
    ----------
    phase
        The phase that the party is in.
    number
        Which of its answers in that phase this is.
    lasting
        Whether the number counts turns that several requests may ask for, or single requests.
    asked
        A hash of what all parties were asked alike.
    """

    phase: str
    field: str
    epoch: int
    number: int
    lasting: bool
    asked: bytes

    def mark(self) -> bytes:
        """Sets it apart from every other question."""
        kind = "turn" if self.lasting else "request"
        names = f"{self.phase}\0{self.field}\0{kind}\0{self.epoch}\0{self.number}\0"
        return names.encode() + self.asked


def question_digest(message: Message, before: bytes = b"") -> bytes:
    """A hash of the fields that are the same for all parties.

    ``before`` is the hash of questions that came before, on which the answer depends too.
    """
    return question_after(before, told_alike(message))


def question_after(before: bytes, alike: bytes) -> bytes:
    """The same from what `told_alike` gives."""
    return blake2b(before + alike, digest_size=_HASH_BYTES, person=b"weft question").digest()


def told_alike(message: Message) -> bytes:
    """A hash of the fields that are the same for all parties, whatever came before."""
    told: Fields = {}
    for name, path in _alike(type(message)):
        value: Any = message
        for attribute in path:
            value = None if value is None else getattr(value, attribute)
        if value is not None:
            told[name] = value
    return blake2b(pack(told) if told else b"", digest_size=_HASH_BYTES).digest()


@cache
def _alike(kind: type[Message] | type[Part]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The fields of a type of messages that all parties are told alike: names, and where."""
    found: list[tuple[str, ...]] = []
    for field in declared(kind):
        if issubclass(field.kind, Part):
            found.extend((field.attribute, *path) for _, path in _alike(field.kind))
        elif field.meaning is not None and field.meaning.alike:
            found.append((field.attribute,))
    return tuple((".".join(path), path) for path in found)
