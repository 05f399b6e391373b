"""Channels: how messages reach parties, who answers, and what it costs."""

from weft.protocol.channel import Among, Channel, Failure, Handler, Replies, Request
from weft.protocol.local_channel import LocalChannel, Recorded, Sink
from weft.protocol.message import Message, Value, size_of
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
