"""Letters between a site's two processes: numbered, over a connection inside one machine.

Whether a frame is a letter or a question of the site's own owner stands in its head: the content of
a letter is chosen by the coordinator, and must never be taken for anything else.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

import msgspec

from weft.network.envelope_bytes import Failed, encode

_HEAD = struct.Struct("<?QQ")
#: The number of what a new process says first: an `Opening`.
FIRST = 0
#: Letters that a site works on at the same time, most of which wait for another one of their run;
#: and how many questions what has become of a run it takes beyond that.
MOST_LETTERS, MOST_PINGS = 100, 10


class Frame(NamedTuple):
    """What one process sends the other.

    Attributes
    ----------
    owner
        Not a letter: the site's owner asks what its ledger says is spent.
    """

    number: int
    content: bytes
    owner: bool = False


class Opening(msgspec.Struct, frozen=True):
    """Whether a site could be opened in a new process.

    Attributes
    ----------
    notes
        How its tables were read, for its owner.
    wrong
        What is wrong, for its owner; empty: nothing.
    kind, told
        What others hear of it.
    """

    notes: list[str] = []
    wrong: str = ""
    kind: str = ""
    told: str = ""

    @property
    def reply(self) -> bytes:
        """To every letter, where it could not be opened."""
        return encode(Failed("refused" if self.kind == "refused" else "failed", self.told))


def send_frame(connection: socket.socket, frame: Frame) -> None:
    connection.sendall(_HEAD.pack(frame.owner, frame.number, len(frame.content)))
    connection.sendall(frame.content)


def receive_frame(connection: socket.socket) -> Frame | None:
    """A whole frame; None where the other side is gone."""
    head = _receive(connection, _HEAD.size)
    if head is None:
        return None
    owner, number, size = _HEAD.unpack(head)
    content = _receive(connection, size)
    return None if content is None else Frame(number, bytes(content), owner)


def _receive(connection: socket.socket, size: int) -> bytearray | None:
    content = bytearray(size)
    left = memoryview(content)
    while left:
        try:
            count = connection.recv_into(left)
        except OSError:
            return None
        if not count:
            return None
        left = left[count:]
    return content
