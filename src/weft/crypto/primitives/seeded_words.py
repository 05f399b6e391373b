"""Uniform 64-bit words from a seed, for what two sides draw alike without a word.

Whoever has a seed has all its words. Nothing here opens what parties hide from the coordinator:
those pads come from secrets that it lacks (`weft.crypto.opening_pads`).
"""

from __future__ import annotations

from hashlib import blake2b
from math import prod
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

Words = NDArray[np.uint64]

#: Bytes of a seed.
SEED_BYTES = 32
#: Words that are made at once: as many zeros are encrypted again and again.
_CHUNK = 1 << 17
_ZEROS: NDArray[Any] = np.zeros(_CHUNK, np.uint64)


def seeded_words(seed: bytes, label: str, *shape: int) -> Words:
    """Words that follow from a seed and what they are for: AES-256 in counter mode."""
    key = blake2b(label.encode(), digest_size=32, key=seed, person=b"weft words").digest()
    encryptor = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    count = prod(shape)
    # The library asks for room for one more block.
    out = np.empty(count + 2, np.uint64)
    room = out.data.cast("B")
    for begin in range(0, count, _CHUNK):
        some = min(_CHUNK, count - begin)
        encryptor.update_into(_ZEROS[:some].data.cast("B"), room[8 * begin :])
    return out[:count].reshape(shape)
