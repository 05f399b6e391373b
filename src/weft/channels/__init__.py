"""Channels: how messages reach parties, who answers, and what it costs."""

from weft.channels.channel import Among, Channel, Failure, Handler, Replies, Request
from weft.channels.local import LocalChannel, Recorded, Sink
from weft.channels.message import Message, Value, size_of
from weft.channels.meter import Meter, Reading
from weft.channels.packing import pack, unpack
from weft.channels.participation import (
    Cyclic,
    Everyone,
    Participation,
    RandomFraction,
    Trace,
    participation_of,
)

__all__ = [
    "Among",
    "Channel",
    "Cyclic",
    "Everyone",
    "Failure",
    "Handler",
    "LocalChannel",
    "Message",
    "Meter",
    "Participation",
    "RandomFraction",
    "Reading",
    "Recorded",
    "Replies",
    "Request",
    "Sink",
    "Trace",
    "Value",
    "pack",
    "participation_of",
    "size_of",
    "unpack",
]
