"""What the declarations say of a field that a recording holds."""

from __future__ import annotations

from functools import cache

from weft.errors import ProtocolError
from weft.protocol.forms import Meaning
from weft.protocol.message import Field, flat
from weft.protocol.phase import phase_named
from weft.protocol.recording import Direction


def fields_of(direction: Direction, phase: str) -> dict[str, Meaning]:
    """The fields that a message of a phase may have, beside those that mean the same in all."""
    return {
        name: field.meaning
        for name, field in _declared(direction, phase).items()
        if field.meaning is not None and not field.meaning.common
    }


def field_of(direction: Direction, phase: str, name: str) -> Field | None:
    """A declared field; None: the declarations do not know it."""
    return _declared(direction, phase).get(name)


def meaning_of(direction: Direction, phase: str, name: str) -> Meaning | None:
    """What a field says; None: the declarations do not know it."""
    field = field_of(direction, phase, name)
    return None if field is None else field.meaning


@cache
def _declared(direction: Direction, phase: str) -> dict[str, Field]:
    try:
        found = phase_named(phase)
    except ProtocolError:
        return {}
    return dict(flat(found.request if direction == "down" else found.reply))
