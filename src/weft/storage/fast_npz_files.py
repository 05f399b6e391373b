"""Files of arrays as NumPy has them: a zip archive with one file for each, as they are.

``numpy.load`` reads what is written here, and what ``numpy.savez`` wrote is read. Its own ways
take thirty microseconds for each array, most of them in looking after archives of any kind; a
ledger is forty small arrays, read and written anew at every booking.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from io import BufferedReader, BytesIO
from struct import Struct
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np
from numpy.lib.format import (
    header_data_from_array_1_0,
    read_array_header_1_0,
    read_magic,
    write_array_header_1_0,
)
from numpy.typing import NDArray

#: What is in front of a file: its mark, version, flags, method, time, date, sum, two sizes (which
#: do not fit here where all bits are set), bytes of the name, and of what follows that.
_LOCAL = Struct("<4s5H3I2H")
#: The two sizes that did not fit: kind, bytes, and both.
_SIZES = Struct("<2H2Q")
#: The same in the list at the end, with who wrote it, more lengths and where it begins.
_LISTED = Struct("<4s6H3I5H2I")
#: Both sizes and the place.
_PLACED = Struct("<2H3Q")
#: Where the list is, for archives of any size, where that is told, and for small ones.
_END = Struct("<4sQ2H2I4Q")
_END_AT = Struct("<4sIQI")
_SMALL_END = Struct("<4s4H2IH")
_MARKS = b"PK\3\4", b"PK\1\2", b"PK\6\6", b"PK\6\7", b"PK\5\6"
_LOCAL_MARK, _LISTED_MARK, _END_MARK, _END_AT_MARK, _SMALL_END_MARK = _MARKS
#: Version of the format; the first of January 1980; all bits set; names are in UTF-8.
_VERSION, _DATE, _FULL, _MANY, _UTF8 = 45, 33, 0xFFFFFFFF, 0xFFFF, 0x800
_SUFFIX = ".npy"


def write_arrays(file: BinaryIO, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays, by name, into an empty file."""
    listed: list[bytes] = []
    place = 0
    for key, held in arrays.items():
        array = np.asarray(held)
        by_columns = array.flags.f_contiguous and not array.flags.c_contiguous
        head = _head(array.dtype, array.shape, by_columns)
        # As it lies in memory, without a copy; NumPy's stubs say from Python 3.12 on that one can.
        data: Any = array.T if by_columns else np.ascontiguousarray(array)
        name, size = (key + _SUFFIX).encode(), len(head) + data.nbytes
        told = _VERSION, _UTF8, 0, 0, _DATE, crc32(data, crc32(head)), _FULL, _FULL, len(name)
        front = _LOCAL.pack(_LOCAL_MARK, *told, _SIZES.size) + name
        front += _SIZES.pack(1, _SIZES.size - 4, size, size) + head
        file.write(front)
        file.write(data)
        more = _PLACED.size, 0, 0, 0, 0, _FULL
        listed.append(_LISTED.pack(_LISTED_MARK, _VERSION, *told, *more) + name)
        listed.append(_PLACED.pack(1, _PLACED.size - 4, size, size, place))
        place += len(front) + data.nbytes
    end, count = b"".join(listed), len(arrays)
    sums = count, count, len(end), place
    file.write(end)
    file.write(_END.pack(_END_MARK, _END.size - 12, _VERSION, _VERSION, 0, 0, *sums))
    file.write(_END_AT.pack(_END_AT_MARK, 0, place + len(end), 1))
    file.write(_SMALL_END.pack(_SMALL_END_MARK, 0, 0, _MANY, _MANY, _FULL, _FULL, 0))


@lru_cache(maxsize=4096)
def _head(dtype: np.dtype[Any], shape: tuple[int, ...], by_columns: bool) -> bytes:
    """What precedes an array."""
    if dtype.hasobject:
        raise ValueError("objects are not written")
    file = BytesIO()
    like = np.broadcast_to(np.empty((), dtype), shape)
    told = {**header_data_from_array_1_0(like), "fortran_order": by_columns}
    write_array_header_1_0(file, told)
    return file.getvalue()


def read_arrays(file: BufferedReader) -> dict[str, NDArray[Any]]:
    """All arrays of a file, by name; ValueError or the like where it is not as it was written."""
    size = os.fstat(file.fileno()).st_size
    found: dict[str, NDArray[Any]] = {}
    sums: list[tuple[bytes, int]] = []
    place = 0
    while (front := file.read(_LOCAL.size))[:4] == _LOCAL_MARK:
        _, _, flags, method, _, _, told, _, length, named, beside = _LOCAL.unpack(front)
        name, more = file.read(named), file.read(beside)
        if length == _FULL:
            _, _, length, _ = _SIZES.unpack(more)
        place += _LOCAL.size + named + beside + length
        if flags & ~_UTF8 or method or place > size:
            raise ValueError("not as arrays are written")
        content = bytearray(length)
        file.readinto(content)
        if crc32(content) != told:
            raise ValueError("an array was changed")
        found[name.decode().removesuffix(_SUFFIX)] = _array_in(content)
        sums.append((name, told))
    _check_end(front + file.read(), sums)
    return found


def _check_end(end: bytes, sums: Iterable[tuple[bytes, int]]) -> None:
    """Insist that the list at the end has the same files, and that nothing is missing of it."""
    place = 0
    for name, told in sums:
        entry = _LISTED.unpack_from(end, place)
        named, beside, remark = entry[10:13]
        begin = place + _LISTED.size
        if entry[0] != _LISTED_MARK or entry[7] != told or end[begin : begin + named] != name:
            raise ValueError("the list of arrays is not theirs")
        place = begin + named + beside + remark
    small = len(end) - _SMALL_END.size
    between = 0, _END.size + _END_AT.size
    if small - place not in between or end[small : small + 4] != _SMALL_END_MARK:
        raise ValueError("the end is missing")


def _array_in(content: bytearray) -> NDArray[Any]:
    """An array as NumPy writes it, with what precedes it."""
    start = 10 + int.from_bytes(content[8:10], "little")
    shape, by_columns, dtype = _told_before(bytes(content[:start]))
    found = np.frombuffer(content, dtype, offset=start)
    return found.reshape(shape, order="F" if by_columns else "C")


@lru_cache(maxsize=4096)
def _told_before(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type: reading it took NumPy most of the time, and files repeat it."""
    file = BytesIO(head)
    if read_magic(file) != (1, 0):
        raise ValueError("not a version that is written here")
    try:
        shape, by_columns, dtype = read_array_header_1_0(file)
    except Exception as error:
        # Whatever Python finds amiss in a text that somebody made up, such as a TokenError.
        raise ValueError("not what precedes an array") from error
    if dtype.hasobject:
        raise ValueError("objects are not read")
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError("not lengths of axes")
    return shape, by_columns, dtype
