"""Parties and handlers as a network sees them: names of phases, and flat dictionaries of fields.

Not a test itself. What is read or forged here passes the same decoders as over a network.
"""

from __future__ import annotations

import weft.all_messages  # noqa: F401  (every phase is known)
from weft.protocol import fields_of, phase_named


def flat(handler):
    """A party's handler that takes the name of a phase and fields, and returns fields."""

    def answer(name, fields):
        phase = phase_named(name)
        return fields_of(handler(phase, phase.read_request(fields)))

    answer.__self__ = getattr(handler, "__self__", None)
    return answer


def typed(answer):
    """The inverse: a handler for a channel, from one that works on fields."""

    def handler(phase, message):
        return phase.read_reply(answer(phase.name, fields_of(message)))

    return handler


def ask(party, name, fields):
    """What a party says to a request, as fields."""
    return flat(party.on)(name, fields)
