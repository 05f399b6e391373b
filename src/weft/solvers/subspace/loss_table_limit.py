"""How fine tables of losses and of second moments may be: fine ones tell about single samples."""

from __future__ import annotations

import math

from weft.solvers.settings import Settings
from weft.solvers.subspace.settings import SPAN_NEWTON

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


#: Where second moments of fewer vectors may be told, they are not asked for.
LEAST_DIRECTIONS = 24
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


def rounds_kinks(settings: Settings, samples: int, min_batch: int) -> bool:
    """Whether a party that counts so many samples rounds the kink of the loss off when asked to."""
    if settings.solver != SPAN_NEWTON or not settings.make_loss().rounds:
        return False
    return most_directions(weighing(samples, kinks=True), min_batch) >= LEAST_DIRECTIONS
