"""What is not as declared is refused, in every field of every message, in one sentence."""

from __future__ import annotations

import numpy as np
import pytest

from weft.declarations import declared_phases
from weft.errors import ProtocolError
from weft.protocol.message import ANY, SCALAR_BYTES, fields_of, flat, message_of

#: Every request and every reply, once.
KINDS = sorted(
    {kind for phase in declared_phases().values() for kind in (phase.request, phase.reply)},
    key=lambda kind: (kind.__module__, kind.__qualname__),
)
SINGLE = {bool: True, int: 7, float: 0.5, str: "text", bytes: bytes(2 * SCALAR_BYTES)}
#: At least one of each type, of each number of axes, and of each kind of number.
VALUES = [
    *SINGLE.values(),
    np.array(["a", "b"]),
    np.array([b"a", b"b"]),
    *(np.ones((2,) * axes, kind) for axes in range(4) for kind in ("u8", "f8")),
    *(np.ones(2, kind) for kind in ("i4", "i8", "u4", ">u8", "u1", "f4", "?", "c16", "M8[s]")),
]


def example(field):
    """A value as a field declares it."""
    if field.kind is not np.ndarray:
        return SINGLE[field.kind]
    shape = (2,) * len(field.meaning.shape)
    return np.full(shape, "a") if field.dtype is None else np.ones(shape, given_type(field))


def given_type(field):
    return np.dtype("f8") if field.dtype == ANY else field.dtype


def well_formed(kind):
    """A message with every field that its type declares."""
    return {name: example(field) for name, field in flat(kind)}


def fits(field, value):
    """Whether a value is of the declared type, said once more."""
    if field.kind is float:
        return type(value) in (int, float)
    if field.kind is not np.ndarray or not isinstance(value, np.ndarray):
        return type(value) is field.kind
    if value.ndim != len(field.meaning.shape):
        return False
    if field.dtype is None:
        return value.dtype.kind == "U"
    return value.dtype.kind in "iufbU" if field.dtype == ANY else value.dtype == field.dtype


def every_field():
    return [(kind, name, field) for kind in KINDS for name, field in flat(kind)]


def assert_refused(kind, fields, name):
    with pytest.raises(ProtocolError, match="a message is malformed") as told:
        message_of(kind, fields)
    assert f"'{name}'" in str(told.value)
    assert "\n" not in str(told.value)


def test_there_are_messages_to_look_at():
    assert len(KINDS) > 50
    assert {field.kind for _, _, field in every_field()} == {*SINGLE, np.ndarray}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__qualname__)
def test_what_is_as_declared_is_read_as_it_was_said(kind):
    fields = well_formed(kind)
    said = fields_of(message_of(kind, fields))
    defaults = {name for name, field in flat(kind) if not field.required}
    assert fields.keys() - defaults <= said.keys() <= fields.keys()
    for name, value in said.items():
        assert np.array_equal(value, fields[name]), name


def test_a_value_of_another_type_is_refused_in_every_field():
    tried = 0
    for kind, name, field in every_field():
        fields = well_formed(kind)
        for value in VALUES:
            if not fits(field, value):
                tried += 1
                assert_refused(kind, {**fields, name: value}, name)
    assert tried > 15 * len(every_field())


def test_a_field_that_must_be_there_is_missed():
    tried = 0
    for kind, name, field in every_field():
        fields = well_formed(kind)
        del fields[name]
        part = name.rpartition(".")[0]
        # A part may be left out whole, where it is no longer named by any field.
        if field.required and (not part or any(n.startswith(f"{part}.") for n in fields)):
            tried += 1
            assert_refused(kind, fields, name)
    assert tried > len(KINDS)


@pytest.mark.parametrize("name", ["more", "round.more", "", "__class__"])
def test_a_field_that_is_not_declared_is_refused(name):
    for kind in KINDS:
        assert_refused(kind, {**well_formed(kind), name: 7}, name)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(value):
    tried = set()
    for kind, name, field in every_field():
        if field.kind is float:
            assert_refused(kind, {**well_formed(kind), name: value}, name)
            tried.add(float)
        elif field.dtype == np.float64:
            numbers = example(field)
            numbers.flat[-1] = value
            assert_refused(kind, {**well_formed(kind), name: numbers}, name)
            tried.add(np.ndarray)
    assert tried == {float, np.ndarray}


def test_half_a_scalar_under_masks_is_refused():
    tried = 0
    for kind, name, field in every_field():
        if field.meaning.form.title == "masked scalars":
            tried += 1
            for length in (1, SCALAR_BYTES - 1, 2 * SCALAR_BYTES + 1):
                assert_refused(kind, {**well_formed(kind), name: bytes(length)}, name)
    assert tried > 10
