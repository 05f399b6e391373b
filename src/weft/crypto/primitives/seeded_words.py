"""Uniform 64-bit words from a seed, for what two sides draw alike without a word.

Whoever has a seed has all its words. Nothing here opens what parties hide from the coordinator:
those pads come from secrets that it lacks (`weft.crypto.pads.pads_all_parties_know`).
"""

from __future__ import annotations

from hashlib import blake2b
from math import prod
from typing import ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

Words = NDArray[np.uint64]

#: Bytes of a seed.
SEED_BYTES = 32
#: Words that are made at once: as many zeros are encrypted again and again.
_CHUNK = 1 << 14
_ZEROS = memoryview(bytes(8 * _CHUNK))
#: Words that the library asks for room for, beyond those it makes.
MARGIN = 2
#: Every key is used from the start of its stream.
_FROM_ZERO = modes.CTR(bytes(16))


class SeededStream:
    """Words that follow from a seed and what they are for, some at a time.

    AES-256 in counter mode, under a key of its own for every label.
    """

    #: Where the stream is cannot be saved, and from its start it would repeat itself.
    moves_unseen: ClassVar[bool] = True

    def __init__(self, seed: bytes, label: str) -> None:
        key = blake2b(label.encode(), digest_size=32, key=seed, person=b"weft words").digest()
        self._encryptor = Cipher(algorithms.AES256(key), _FROM_ZERO).encryptor()

    def fill(self, room: Words) -> Words:
        """The next words; of the room there must be `MARGIN` words more, which are spoilt."""
        count = len(room) - MARGIN
        view = room.data.cast("B")
        for begin in range(0, count, _CHUNK):
            some = min(_CHUNK, count - begin)
            self._encryptor.update_into(_ZEROS[: 8 * some], view[8 * begin :])
        return room[:count]


def seeded_words(seed: bytes, label: str, *shape: int) -> Words:
    """All words of a stream that are wanted."""
    room = np.empty(prod(shape) + MARGIN, np.uint64)
    return SeededStream(seed, label).fill(room).reshape(shape)
