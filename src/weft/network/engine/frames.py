"""Frames between the coordinator's job and a party, and how the engine's answers are read.

An envelope travels as bytes in one frame, on a channel of our own. The engine's auxiliary messages
take four times as long for the same bytes (they are streamed, with acknowledgements), and sending
a different one to each party is broken in 2.9.0.
"""

from __future__ import annotations

from typing import Any

from nvflare.fuel.f3.cellnet.core_cell import TargetMessage
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.message import Message

from weft.protocol import Failure

#: The channel and its two topics: an envelope, and whether an envelope has arrived.
CHANNEL, ASK, SEEN = "weft", "ask", "seen"
#: Header with an envelope's id, by which the coordinator can ask whether it arrived.
ENVELOPE_ID = "weft.envelope"
#: Answers to that question.
YES, NO = b"yes", b"no"
#: Largest envelope that fits into one frame of the engine, with its headers.
MOST_BYTES = 2**31 - 2**22


class Unconnected(Exception):
    """This process has lost its server, so it cannot reach any party."""


def message_to(party: str, topic: str, envelope: str, content: bytes) -> dict[str, TargetMessage]:
    """One party's message, as the engine's cells take it."""
    message = Message({ENVELOPE_ID: envelope}, content)
    return {party: TargetMessage(target=party, channel=CHANNEL, topic=topic, message=message)}


def reply_with(content: bytes) -> Message:
    return Message({MessageHeaderKey.RETURN_CODE: ReturnCode.OK}, content)


def refusal() -> Message:
    """The answer to a sender who may not ask, or asks for something unknown."""
    return Message({MessageHeaderKey.RETURN_CODE: ReturnCode.INVALID_REQUEST}, None)


def is_from_coordinator(request: Message) -> bool:
    """Whether a job of the server sent this: the server checks origins of what it forwards."""
    return str(request.get_header(MessageHeaderKey.ORIGIN, "")).startswith("server.")


def content_of(message: Message) -> bytes:
    return b"" if message.payload is None else bytes(message.payload)


def envelope_id_of(message: Message) -> str:
    return str(message.get_header(ENVELOPE_ID, ""))


def read_reply(message: Message | None, seconds: float) -> bytes | Failure:
    """A party's reply, or why there is none.

    Parameters
    ----------
    seconds
        How long was waited.

    Raises
    ------
    Unconnected
        The message never left this process.
    """
    code: Any = None
    if message is not None:
        code = message.get_header(MessageHeaderKey.RETURN_CODE, ReturnCode.OK)
    if message is None or code == ReturnCode.TIMEOUT:
        return Failure("late", f"gave no answer within {seconds:g} s")
    if code == ReturnCode.OK:
        return content_of(message)
    if code == ReturnCode.TARGET_UNREACHABLE:
        raise Unconnected
    if code == ReturnCode.COMM_ERROR:
        return Failure("failed", "is not connected")
    if code == ReturnCode.PROCESS_EXCEPTION:
        return Failure("failed", "broke down; its own log says more")
    if code == ReturnCode.INVALID_REQUEST:
        return Failure("failed", "is connected, but not ready yet")
    return Failure("failed", f"could not be asked ({code})")
