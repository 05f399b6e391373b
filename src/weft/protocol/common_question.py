"""What a request asks, as far as masks under its answer depend on it.

A total over parties that were asked different things, at other points or with other steps, would
tell how one of them differs. Such totals must not be readable.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

from weft.protocol.message import Fields, Message, Part, declared
from weft.protocol.message_bytes import pack

_BYTES = 32


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
    told: Fields = {}
    for name, path in _alike(type(message)):
        value: Any = message
        for attribute in path:
            value = None if value is None else getattr(value, attribute)
        if value is not None:
            told[name] = value
    said = blake2b(pack(told) if told else b"", digest_size=_BYTES).digest()
    return blake2b(before + said, digest_size=_BYTES, person=b"weft question").digest()


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
