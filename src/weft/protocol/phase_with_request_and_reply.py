"""Phases: what the coordinator may ask a party, with the types of request and reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import Fields, Message, message_of

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

_PHASES: dict[str, Phase[Any, Any]] = {}


@dataclass(frozen=True, eq=False)
class Phase(Generic[Q, R]):
    """One thing that a coordinator may ask.

    A phase is a constant of the module that declares its messages; the coordinator asks it, the
    party's half answers it (:func:`answer`). The declarations of both types are read, and checked,
    with the first message: a run asks a few of all the phases that there are.
    """

    name: str
    request: type[Q]
    reply: type[R]

    def __post_init__(self) -> None:
        if self.name in _PHASES:
            raise TypeError(f"phase '{self.name}' is declared twice")
        _PHASES[self.name] = self

    def read_request(self, fields: Fields) -> Q:
        """A request as it travelled; a malformed one is refused."""
        return message_of(self.request, fields)

    def read_reply(self, fields: Fields) -> R:
        """A reply as it travelled; a malformed one is refused."""
        return message_of(self.reply, fields)


@dataclass(frozen=True)
class Answer:
    """A phase with the function that answers it."""

    phase: Phase[Any, Any]
    handle: Callable[[Any], Message]


def answer(phase: Phase[Q, R], handle: Callable[[Q], R]) -> Answer:
    """Let a function answer a phase; its types must be those of the phase."""
    return Answer(phase, handle)


def answers(*these: Answer) -> dict[str, Answer]:
    """Answers by the name of their phase."""
    return {each.phase.name: each for each in these}


def phase_named(name: str) -> Phase[Any, Any]:
    """A declared phase; an unknown name is refused."""
    phase = _PHASES.get(name)
    if phase is None:
        raise ProtocolError(f"phase '{name}' is not known or comes too early")
    return phase


def declared_phases() -> Mapping[str, Phase[Any, Any]]:
    """All phases of the modules that are loaded."""
    return dict(_PHASES)
