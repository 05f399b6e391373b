"""Framed records: a file of records, each with its length and a checksum.

.. code-block:: text

    length (8 bytes), CRC-32 (4 bytes), content
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO
from zlib import crc32

_PREFIX = struct.Struct("<QI")


class CutOff(Exception):
    """A file ends within a frame."""


class Damage(Exception):
    """A frame is not as it was written.

    Attributes
    ----------
    last
        Whether nothing comes after it, so that it may never have been complete.
    """

    def __init__(self, *, last: bool) -> None:
        super().__init__("a frame is damaged")
        self.last = last


def framed(content: bytes) -> bytes:
    """The bytes of a record in a file; the record must not be empty."""
    return _PREFIX.pack(len(content), crc32(content)) + content


def read_frames(
    file: IO[bytes], size: int, *, lenient: bool = False
) -> Iterator[tuple[bytes, int]]:
    """Records from the current position up to ``size``, and where each ends.

    ``lenient``: one in the middle that does not match its checksum is given as no bytes.

    Raises
    ------
    CutOff
        The last one is incomplete.
    Damage
        One does not match its checksum.
    """
    while (at := file.tell()) < size:
        prefix = file.read(_PREFIX.size)
        if len(prefix) < _PREFIX.size:
            raise CutOff
        length, check = _PREFIX.unpack(prefix)
        if length > size - at - _PREFIX.size:
            raise CutOff
        if length == 0:
            # Zeros: the file grew before a power cut, but was never filled.
            raise Damage(last=not (prefix + file.read()).strip(b"\0"))
        content = file.read(length)
        end = file.tell()
        if crc32(content) != check:
            if end >= size or not lenient:
                raise Damage(last=end >= size)
            content = b""
        yield content, end
