"""Framed records: a file of records, each with its length and a checksum.

.. code-block:: text

    length (8 bytes), CRC-32 (4 bytes), content

A frame whose length runs over the end of the file was not finished, or its length is damaged. What
tells them apart: with a damaged length, the checksum is that of fewer bytes, which are all there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO
from zlib import crc32

_PREFIX = struct.Struct("<QI")
#: How far the true end of a record is looked for: some seconds' worth of bytes.
_SEARCHED = 1 << 24


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


#: Bytes before a record in a file.
PREFIX_BYTES = _PREFIX.size


def prefix_of(content: bytes) -> bytes:
    """What stands before a record in a file; the record must not be empty."""
    return _PREFIX.pack(len(content), crc32(content))


def framed(content: bytes) -> bytes:
    """The bytes of a record in a file."""
    return prefix_of(content) + content


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
        One does not match its checksum, or its length is not what was written.
    """
    while (at := file.tell()) < size:
        prefix = file.read(_PREFIX.size)
        if len(prefix) < _PREFIX.size:
            raise CutOff
        length, check = _PREFIX.unpack(prefix)
        if length == 0:
            # Zeros: the file grew before a power cut, but was never filled.
            raise Damage(last=not (prefix + file.read()).strip(b"\0"))
        begin = at + _PREFIX.size
        fits = length <= size - begin
        content = file.read(length) if fits else b""
        if not fits or crc32(content) != check:
            end = _true_end(file, begin, size, check)
            if end is None and not fits:
                raise CutOff
            whole = end is not None
            end = begin + length if end is None else end
            # One that is whole was finished, whatever its length says.
            if not lenient or (end >= size and not whole):
                raise Damage(last=end >= size and not whole)
            content = b""
            file.seek(end)
        yield content, file.tell()


def _true_end(file: IO[bytes], begin: int, size: int, check: int) -> int | None:
    """Where the content ends that has this checksum; None: it is damaged, or not all there."""
    file.seek(begin)
    found = 0
    content = file.read(min(size - begin, _SEARCHED))
    for count in range(len(content)):
        found = crc32(content[count : count + 1], found)
        if found == check:
            return begin + count + 1
    return None
