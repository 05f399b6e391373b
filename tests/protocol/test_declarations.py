"""Every declared message: what decoding refuses before a party or the coordinator sees it.

Messages are made from the declarations themselves, in both directions of all phases: with all
fields, and with the required ones only. Whatever is missing, unknown, or of another type, kind of
numbers, number of axes, or not finite is refused with one sentence that names the field.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import pytest
from typing_extensions import TypeAliasType

import weft
from weft.all_messages import MODULES, declared_phases
from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import (
    ANY,
    SCALAR_BYTES,
    Message,
    OnDevice,
    Part,
    declared,
    fields_of,
    flat,
    message_of,
)
from weft.protocol.field_visibility import Form, Meaning, numbers
from weft.protocol.message_bytes import pack, unpack

#: Types of all messages of the library, by phase and direction.
TYPES = {
    f"{name} {way}": kind
    for name, phase in sorted(declared_phases().items())
    if phase.request.__module__.startswith(("weft.", "weft_neural."))
    for way, kind in (("request", phase.request), ("reply", phase.reply))
}
#: The same by the room that declares them.
ROOMS = {room: [] for room in sorted({name.split(".")[0].split()[0] for name in TYPES})}
for name, kind in TYPES.items():
    ROOMS[name.split(".")[0].split()[0]].append(kind)
every_room = pytest.mark.parametrize("kinds", ROOMS.values(), ids=ROOMS)

OTHERS = ("i1", "i4", "i8", "u4", "u8", "f4", "f8", "?", "c16", ">u8", ">i4", ">f8")
VALUES = {int: 3, float: 0.5, bool: True, str: "text", bytes: bytes(2 * SCALAR_BYTES)}


def value_of(field):
    """A value as declared."""
    if field.kind is not np.ndarray:
        # Another value than the default, which would not travel.
        value = VALUES[field.kind]
        return (not value if field.kind is bool else value + 1) if value == field.default else value
    shape = tuple(range(1, len(field.meaning.shape) + 1))
    if field.dtype is None:
        return np.full(shape, "text")
    return np.ones(shape, np.int64 if field.dtype == ANY else field.dtype)


def whole(kind):
    """All fields of a message, as they travel."""
    return {name: value_of(field) for name, field in flat(kind)}


def required(kind, prefix=""):
    """The fields without which a message is refused."""
    found = {}
    for field in declared(kind):
        name = f"{prefix}{field.name}"
        if field.required and issubclass(field.kind, Part):
            found |= required(field.kind, f"{name}.")
        elif field.required:
            found[name] = value_of(field)
    return found


def assert_refused(kind, fields, name):
    sentence = f"{kind.__name__} is read"
    try:
        message_of(kind, fields)
    except ProtocolError as error:
        sentence = str(error)
    assert f"'{name}'" in sentence
    assert "\n" not in sentence


def wrong_values(field):
    """Values that are not as declared."""
    good = value_of(field)
    for other in (7, 0.25, True, "words", b"junk", np.zeros(3), np.array(1.0), None, [1], {}):
        fits = type(other) is field.kind and field.kind is not np.ndarray
        if not fits and (field.kind, type(other)) != (float, int):
            if type(other) is np.ndarray and other.ndim == 1 and field.kind is np.ndarray:
                continue
            yield other
    if field.kind is float:
        yield from (np.nan, np.inf, -np.inf, np.float64(0.5))
    if field.meaning.form is Form.SCALARS:
        yield from (good[:-1], good + b"0")
    if field.kind is np.ndarray:
        yield from (good[None], good[0], np.zeros_like(good, dtype=object))
        others = set(map(np.dtype, OTHERS))
        if field.dtype == ANY:
            others = {d for d in others if d.kind not in "iufb"}
        yield from (np.ones(good.shape, d) for d in others - {field.dtype})
        if field.dtype not in (None, ANY):
            yield np.full(good.shape, "text")
        if field.dtype == np.float64:
            yield from (np.full(good.shape, bad) for bad in (np.nan, np.inf, -np.inf))


def test_all_modules_with_phases_are_loaded():
    """A site that does not load them would not know what it is asked."""
    packages = Path(weft.__file__).parent.parent
    found = {
        ".".join(path.relative_to(packages).with_suffix("").parts)
        for path in packages.rglob("*.py")
        if re.search(r"^\w+(: \w+)? = Phase\(", path.read_text(), re.MULTILINE)
    }
    assert {module.__name__ for module in MODULES} == found
    assert len(TYPES) > 100


@every_room
def test_a_message_comes_back_as_it_was_sent(kinds):
    for kind in kinds:
        for fields in (whole(kind), required(kind)):
            again = fields_of(message_of(kind, unpack(pack(fields))))
            assert list(again) == [name for name, _ in flat(kind) if name in fields]
            for name, value in fields.items():
                assert type(again[name]) is type(value)
                assert np.array_equal(again[name], value)


@every_room
def test_a_message_without_a_required_field_is_refused(kinds):
    for kind in kinds:
        needed = required(kind)
        for name in needed:
            assert_refused(kind, {k: v for k, v in needed.items() if k != name}, name)


@every_room
def test_a_part_is_there_with_all_its_required_fields_or_not_at_all(kinds):
    """An optional part that lacks a field is no absent part."""
    for kind in kinds:
        everything = whole(kind)
        parts = {name.rpartition(".")[0] for name in everything} - {""}
        for part in parts:
            mine = {k: v for k, v in everything.items() if k.startswith(f"{part}.")}
            owner = kind
            for step in part.split("."):
                owner = next(f.kind for f in declared(owner) if f.name == step)
            for field in declared(owner):
                name = f"{part}.{field.name}"
                if field.required and len(mine) > 1 and not issubclass(field.kind, Part):
                    assert_refused(kind, {k: v for k, v in everything.items() if k != name}, name)


@every_room
def test_an_unknown_field_is_refused(kinds):
    for kind in kinds:
        known = whole(kind)
        for name in ("no_such_field", "", "round.", "no.such.part", *(f"{k}.more" for k in known)):
            assert_refused(kind, {**known, name: 1}, name)


@every_room
def test_a_field_that_is_not_as_declared_is_refused(kinds):
    for kind in kinds:
        known = whole(kind)
        for name, field in flat(kind):
            for wrong in wrong_values(field):
                assert_refused(kind, {**known, name: wrong}, name)


Scalar = TypeVar("Scalar", bound=np.generic)
Shape = TypeAliasType("Shape", tuple[Any, ...])
#: As numpy declares it from 2.5 on.
Aliased = TypeAliasType("Aliased", np.ndarray[Shape, np.dtype[Scalar]], type_params=(Scalar,))
Again = TypeAliasType("Again", Aliased[Scalar], type_params=(Scalar,))
SAID = Meaning(Form.WEIGHTS, "of nothing", ("rows",))


class Arrays(Message):
    floats: Annotated[Aliased[np.float64], SAID]
    slots: Annotated[Again[np.int32] | None, SAID] = None
    weights: Annotated[Aliased[np.float64] | OnDevice | None, SAID] = None
    text: Annotated[Aliased[np.str_] | None, SAID] = None
    anything: Annotated[Aliased[Any] | None, SAID] = None


class Held(OnDevice):
    """Two weights that no accelerator holds."""

    nbytes = 16

    def to_host(self):
        return np.array([0.5, 1.5])


class Opened(Message):
    cells: Annotated[np.ndarray[Any, np.dtype[np.float64]], numbers("of nothing", "rows")]


def test_what_an_accelerator_holds_may_be_weights_and_nothing_else():
    """Unlike those of arrays, its numbers are not looked at when a message is read."""
    held, cells = Held(), np.array([0.5, 1.5])
    assert message_of(Arrays, {"floats": cells, "weights": held}).weights is held
    assert message_of(Opened, {"cells": cells}).cells is cells
    with pytest.raises(ProtocolError, match="'cells' holds Held, expected an array"):
        message_of(Opened, {"cells": held})


def test_an_array_may_be_declared_by_an_alias():
    assert all(field.kind is np.ndarray for field in declared(Arrays))
    found = {field.name: field.dtype for field in declared(Arrays)}
    assert found == {
        "floats": np.float64, "slots": np.int32, "weights": np.float64, "text": None,
        "anything": ANY,
    }  # fmt: skip
    cells = np.array([0.5, 1.5])
    assert message_of(Arrays, {"floats": cells}).floats is cells
    assert_refused(Arrays, {"floats": cells.astype(np.float32)}, "floats")
