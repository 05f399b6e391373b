"""How the values of an axis lie in chunks, for ciphers that work on thousands of values at once.

Value j of slot i has number i · width + j; a chunk holds 4,096 of them, and has six check words
that travel beside it.
"""

from __future__ import annotations

import numpy as np

from weft.array_types import Ints

VALUES = 4096
CHECKS = 6
#: Words of a chunk are numbers below this prime, 2^50 − 16383.
MODULUS = (1 << 50) - 16383


def chunks_of(slots: Ints, width: int) -> Ints:
    """The chunks that hold the values of some slots, ascending."""
    if not len(slots):
        return np.zeros(0, np.int64)
    first, last = slots * width // VALUES, ((slots + 1) * width - 1) // VALUES
    reach = int((last - first).max()) + 1
    chunks: Ints = np.unique(np.minimum(first[:, None] + np.arange(reach), last[:, None]))
    return chunks
