"""How fine tables of losses and of second moments may be: fine ones tell about single samples."""

from __future__ import annotations

import math

from weft.losses.compiled_sample_losses import has_formula
from weft.solvers.run_settings import Settings
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
#: Below such a gap planes of a smooth loss take more round trips than L-BFGS, as they now and then
#: do above it.
_FINEST_OF_PLANES = 5e-5
#: One of so many samples counts where only those next to a kink weigh much …
_PER_KINK = 16
#: … and of those with a smooth loss, which weigh less the farther their scores are from zero.
_PER_SCORE = 2


def weighing(settings: Settings, samples: int) -> int:
    """How many samples' curvature those of a party come to, of which each fold leaves some out."""
    left_out = settings.evaluation.held_out or (1.0 / settings.folds if settings.folds else 0.0)
    share = _PER_SCORE if settings.make_loss().smooth else _PER_KINK
    return max(int(samples * (1.0 - left_out) / share), min(samples, 1))


def most_directions(samples: int, min_batch: int) -> int:
    """Vectors of whose products, of so many samples, a party tells second moments.

    Of k vectors there are k (k + 1)/2: one for ``min_batch`` samples at most. A party that counts
    no sample's loss tells nothing.
    """
    if min_batch == 1 or not samples:
        return MOST_DIRECTIONS
    moments = samples // min_batch
    return min(MOST_DIRECTIONS, (math.isqrt(8 * moments + 1) - 1) // 2)


def may_tell_moments(settings: Settings) -> bool:
    """Whether any party tells second moments, or rounds kinks off, in a run with these settings.

    Whoever agreed to another solver has not agreed to these; nor have they the noise of sums. All
    holders of a sample know as much.
    """
    loss = settings.make_loss()
    return settings.solver == SPAN_NEWTON and loss.spreads and settings.sum_noise is None


def may_ascend(settings: Settings) -> bool:
    """Whether mixtures of dual vectors, and steps of ascent from them, may be asked for.

    They are for cutting planes, which losses with a kink take, and where Newton's method in the
    span was agreed on, smooth ones that bend nowhere at once: steps of others show where single
    samples come to a bend. Slopes without a bound do so where they are cut off.
    """
    loss = settings.make_loss()
    if not loss.smooth:
        return True
    agreed = settings.solver == SPAN_NEWTON and settings.class_weight is None
    coarse = settings.gap is not None and settings.gap >= _FINEST_OF_PLANES
    bends = loss.spreads and math.isfinite(loss.lipschitz) and has_formula(loss)
    return agreed and coarse and bends and settings.penalize_intercept


def tells_moments(settings: Settings, samples: int, min_batch: int) -> bool:
    """Whether a party that counts so many samples tells second moments when asked to."""
    if not may_tell_moments(settings):
        return False
    return most_directions(weighing(settings, samples), min_batch) >= LEAST_DIRECTIONS
