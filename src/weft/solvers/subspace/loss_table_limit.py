"""How fine a table of losses may be: a fine one tells about single samples."""

from __future__ import annotations

#: Points at which losses, or dual vectors, may be asked for at once: finer tables say more about
#: single samples.
MOST_STEPS = 32
#: To stay, to go all the way, and one between: fewer say nothing.
_FEWEST = 3


def most_steps(samples: int, min_batch: int) -> int:
    """Points at which a party tells the losses of so many samples.

    Where the slope of their sum changes between two points, a sample passed its kink there; so
    that ``min_batch`` of them may have, tables of few samples are coarse. A party that counts no
    sample's loss tells nothing.
    """
    if min_batch == 1 or not samples:
        return MOST_STEPS
    return max(_FEWEST, min(MOST_STEPS, samples // min_batch))
