"""Typed messages, channels that carry them, recordings, and what they cost."""

from weft.protocol.channel import (
    Among,
    Channel,
    Failure,
    Handler,
    LocalChannel,
    Recorded,
    Replies,
    Request,
    Sink,
)
from weft.protocol.declared_message_fields import Fields, Message, Nothing, Part, Value, fields_of
from weft.protocol.message_bytes import pack, unpack
from weft.protocol.metering import Meter, Reading, size_of
from weft.protocol.phase_with_request_and_reply import Answer, Phase, answer, answers, phase_named

__all__ = [
    "Among",
    "Answer",
    "Channel",
    "Failure",
    "Fields",
    "Handler",
    "LocalChannel",
    "Message",
    "Meter",
    "Nothing",
    "Part",
    "Phase",
    "Reading",
    "Recorded",
    "Replies",
    "Request",
    "Sink",
    "Value",
    "answer",
    "answers",
    "fields_of",
    "pack",
    "phase_named",
    "size_of",
    "unpack",
]
