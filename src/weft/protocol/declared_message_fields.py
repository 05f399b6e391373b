"""Messages between the coordinator and a party: declared types, and their fields as they travel.

A message is a `Message` with a declared field for everything it says; a `Phase`
(:mod:`weft.protocol.phase_with_request_and_reply`) names the types of its request and its reply.
In one process messages are handed over as they are. Over a network they travel as flat dictionaries
(`fields_of`), and `message_of` refuses whatever is missing, unknown or malformed before any other
code sees it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

import msgspec
import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from weft.errors import ProtocolError
from weft.protocol.field_visibility import Form, Meaning

#: Bytes of one scalar under masks: a whole number modulo 2^144.
SCALAR_BYTES = 18


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


Value = NDArray[Any] | OnDevice | bytes | str | int | float | bool
#: A message as it travels: a flat dictionary; the fields of a part are named ``part.field``.
Fields = dict[str, Value]


class Part(msgspec.Struct, kw_only=True):
    """Fields that belong together and that several messages have."""


class Message(msgspec.Struct, kw_only=True):
    """One request or reply. A field without a default must be there; None means absent."""


class Nothing(Message):
    """Says only that something was asked, or done."""


M = TypeVar("M", bound=Message | Part)


@dataclass(frozen=True)
class Field:
    """One declared field.

    Attributes
    ----------
    name
        As it travels.
    attribute
        As code reads it.
    kind
        Its type: ``int``, ``float``, ``bool``, ``str``, ``bytes``, ``np.ndarray``, or a `Part`.
    dtype
        Of an array; None: text; ``ANY``: text, numbers or flags.
    required
        Whether a message without it is refused.
    default
        What code reads where it is absent.
    meaning
        What it says; None for a part, whose own fields say it.
    """

    name: str
    attribute: str
    kind: type[Any]
    dtype: np.dtype[Any] | None
    required: bool
    default: object
    meaning: Meaning | None


@cache
def declared(kind: type[Message] | type[Part]) -> tuple[Field, ...]:
    """The fields of a type of messages, in order; an incomplete declaration is a TypeError."""
    return tuple(_field(kind, each) for each in msgspec.structs.fields(kind))


def _field(owner: type, field: msgspec.structs.FieldInfo) -> Field:
    where, hint, meaning = f"{owner.__name__}.{field.name}", field.type, None
    if get_origin(hint) is Annotated:
        hint, *said = get_args(hint)
        meaning = next((each for each in said if isinstance(each, Meaning)), None)
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (each for each in get_args(hint) if each not in (NoneType, OnDevice))
    kind, dtype = hint, None
    hint = _spelt_out(hint)
    if get_origin(hint) is np.ndarray:
        kind, dtype = np.ndarray, _dtype(hint)
    if not (isinstance(kind, type) and issubclass(kind, _KINDS)):
        raise TypeError(f"{where} has a type that cannot travel: {hint}")
    if (meaning is None) != issubclass(kind, Part):
        raise TypeError(f"{where} does not say in which form it travels")
    if meaning is not None and bool(meaning.shape) != (kind is np.ndarray):
        raise TypeError(f"{where} does not name the axes of its array")
    return Field(field.encode_name, field.name, kind, dtype, field.required, field.default, meaning)


def _spelt_out(hint: Any) -> Any:
    """The type that an alias stands for: from numpy 2.5 on ``NDArray[...]`` is an alias."""
    while (meant := getattr(get_origin(hint), "__value__", None)) is not None:
        hint = meant[get_args(hint)]
    return hint


_KINDS = (bool, int, float, str, bytes, np.ndarray, Part)


#: Stands for arrays of text, numbers or flags: values whose type only the data knows.
ANY = np.dtype("V1")


def _dtype(hint: Any) -> np.dtype[Any] | None:
    (scalar,) = get_args(get_args(hint)[1])
    if scalar is Any:
        return ANY
    return None if scalar is np.str_ else np.dtype(scalar)


def fields_of(message: Message | Part, prefix: str = "") -> Fields:
    """What a message says, as it travels: absent fields and defaults are left out."""
    said: Fields = {}
    for (name, default, part), value in zip(_told(type(message)), astuple(message), strict=True):
        if value is None or value is default:
            continue
        if part:
            said.update(fields_of(value, f"{prefix}{name}."))
        else:
            said[prefix + name] = value
    return said


@cache
def _told(kind: type[Message] | type[Part]) -> tuple[tuple[str, object, bool], ...]:
    """Per field: its name, the default that need not be said, and whether it is a part."""
    return tuple(
        # Nothing is what stands for no default.
        (field.name, _NO_DEFAULT if field.required else field.default, issubclass(field.kind, Part))
        for field in declared(kind)
    )


_NO_DEFAULT = object()


def message_of(kind: type[M], fields: Mapping[str, Value]) -> M:
    """The message that travelled as these fields; anything else than declared is refused."""
    read, known = _read(kind, fields, "")
    if known < len(fields):
        names = _names(cast("type[Message]", kind), "")
        unknown = next(name for name in fields if name not in names)
        raise malformed(unknown, "is not known in this phase")
    return read


def _read(kind: type[M], fields: Mapping[str, Value], prefix: str) -> tuple[M, int]:
    """A message or part from its fields, and how many of them it has."""
    values: dict[str, Any] = {}
    count = 0
    for field in declared(cast("type[Message]", kind)):
        name = prefix + field.name
        if issubclass(field.kind, Part):
            # A part whose fields may all be absent travels as nothing.
            if field.required or any(each.startswith(f"{name}.") for each in fields):
                values[field.attribute], more = _read(field.kind, fields, f"{name}.")
                count += more
                continue
        elif name in fields:
            values[field.attribute] = checked(name, field, fields[name])
            count += 1
            continue
        if field.required:
            raise malformed(name, "is missing")
    return kind(**values), count


@cache
def _names(kind: type[Message] | type[Part], prefix: str) -> frozenset[str]:
    return frozenset(name for name, _ in flat(kind, prefix))


def flat(kind: type[Message] | type[Part], prefix: str = "") -> tuple[tuple[str, Field], ...]:
    """All fields of a type under the names by which they travel, those of parts included."""
    found: list[tuple[str, Field]] = []
    for field in declared(kind):
        if issubclass(field.kind, Part):
            found.extend(flat(field.kind, f"{prefix}{field.name}."))
        else:
            found.append((f"{prefix}{field.name}", field))
    return tuple(found)


def checked(name: str, field: Field, value: Value) -> Value:
    """A value of the declared type and shape; any other is refused."""
    meaning = field.meaning
    if meaning is None:
        raise TypeError(f"{name} is a part")
    if field.kind is np.ndarray:
        return _checked_array(name, field, meaning, value)
    if field.kind is float and type(value) is int:
        value = float(value)
    if type(value) is not field.kind:
        raise malformed(name, f"holds {type(value).__name__}, expected {field.kind.__name__}")
    if type(value) is float and not math.isfinite(value):
        raise malformed(name, "is not finite")
    if meaning.form is Form.SCALARS and len(value) % SCALAR_BYTES:  # type: ignore[arg-type]
        raise malformed(name, "does not hold whole scalars")
    return value


def _checked_array(name: str, field: Field, meaning: Meaning, value: Value) -> Value:
    if isinstance(value, OnDevice) and meaning.form is Form.WEIGHTS:
        return value
    if type(value) is not np.ndarray:
        raise malformed(name, f"holds {type(value).__name__}, expected an array")
    fits = value.dtype == field.dtype
    if field.dtype is None or field.dtype == ANY:
        fits = value.dtype.kind in ("U" if field.dtype is None else "iufbU")
    if not fits or value.ndim != len(meaning.shape):
        axes = " × ".join(meaning.shape)
        raise malformed(
            name,
            f"is an array of {value.dtype} with {value.ndim} axes, expected {axes} of "
            f"{field.dtype or 'text'}",
        )
    exact = field.dtype == np.float64
    if exact and not np.isfinite(value).all():
        raise malformed(name, "does not hold finite numbers only")
    return value


def malformed(name: str, what: str) -> ProtocolError:
    """The error for a field that is not as declared."""
    return ProtocolError(f"a message is malformed: '{name}' {what}")
