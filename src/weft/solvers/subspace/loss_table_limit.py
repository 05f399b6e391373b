"""How fine tables of losses and of second moments may be: fine ones tell about single samples."""

from __future__ import annotations

import math

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


#: Vectors of which second moments may be asked for at once.
MOST_DIRECTIONS = 64


#: Of so many samples one counts where only those next to a kink weigh much.
_PER_KINK = 16


def weighing(samples: int, *, kinks: bool) -> int:
    """How many samples weigh in second moments, where the loss may have kinks."""
    return max(samples // _PER_KINK, min(samples, 1)) if kinks else samples


def most_directions(samples: int, min_batch: int) -> int:
    """Vectors of whose products, of so many samples, a party tells second moments.

    Of k vectors there are k (k + 1)/2: one for ``min_batch`` samples at most. A party that counts
    no sample's loss tells nothing.
    """
    if min_batch == 1 or not samples:
        return MOST_DIRECTIONS
    moments = samples // min_batch
    return min(MOST_DIRECTIONS, (math.isqrt(8 * moments + 1) - 1) // 2)
