"""Letters between a site's two processes: numbered, over a connection inside one machine."""

from __future__ import annotations

import socket
import struct

import msgspec

from weft.network.envelope import Failed, encode

_HEAD = struct.Struct("<QQ")
#: The number of what a new process says first: an `Opening`.
FIRST = 0
#: Not a letter: asks what the site's ledger says is spent.
EXPOSURE = b""


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


def send_frame(connection: socket.socket, number: int, content: bytes) -> None:
    connection.sendall(_HEAD.pack(number, len(content)))
    connection.sendall(content)


def receive_frame(connection: socket.socket) -> tuple[int, bytes] | None:
    """A number and its content; None where the other side is gone."""
    head = _receive(connection, _HEAD.size)
    if head is None:
        return None
    number, size = _HEAD.unpack(head)
    content = _receive(connection, size)
    return None if content is None else (number, bytes(content))


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
