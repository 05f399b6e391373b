"""Typed messages, channels that carry them, recordings, and what they cost."""

from weft.protocol.channel import Among, Channel, Failure, Handler, Replies, Request
from weft.protocol.local_channel import LocalChannel, Recorded, Sink
from weft.protocol.message import Fields, Message, Nothing, Part, Value, fields_of, size_of
from weft.protocol.metering import Meter, Reading
from weft.protocol.packing import pack, unpack
from weft.protocol.participation import (
    Cyclic,
    Everyone,
    Participation,
    RandomFraction,
    Trace,
    participation_of,
)
from weft.protocol.phase import Answer, Phase, answer, answers, phase_named

__all__ = [
    "Among",
    "Answer",
    "Channel",
    "Cyclic",
    "Everyone",
    "Failure",
    "Fields",
    "Handler",
    "LocalChannel",
    "Message",
    "Meter",
    "Nothing",
    "Part",
    "Participation",
    "Phase",
    "RandomFraction",
    "Reading",
    "Recorded",
    "Replies",
    "Request",
    "Sink",
    "Trace",
    "Value",
    "answer",
    "answers",
    "fields_of",
    "pack",
    "participation_of",
    "phase_named",
    "size_of",
    "unpack",
]
