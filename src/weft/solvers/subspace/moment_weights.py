"""How much each sample weighs in second moments: neither alone nor with few others most of one.

Far from zero the logistic loss has next to no curvature, and a hinge loss whose kink is rounded off
has it next to the kink only. So scores are taken to be nearer, or the kink to be wider, until
curvature adds up to that of as many samples as there must be. What that is compared with is a sum
over all samples, smooth in each of them: where it is reached says nothing about one.

A row that is far longer than others would still be most of the moments in its direction. So samples
weigh less, the more of some direction is theirs.
"""

from __future__ import annotations

import numpy as np

from weft.array_types import Flags, Floats
from weft.errors import ProtocolError
from weft.losses import Loss

#: By what widths grow at a time.
_WIDER = 1.25
#: Share of the largest moment, in units of every vector, below which there is none.
_FLAT = 1e-11


def spread_weights(
    loss: Loss, z: Floats, labels: Floats, width: Floats, used: Flags, least: int
) -> Floats:
    """l'' per sample and problem, over widths of ``width`` or more; zero where it is not used.

    It adds up to that of ``least`` samples with the most curvature that one can have.
    """
    if (used.sum(axis=0) < least).any():
        raise ProtocolError("a message asks for second moments of too few samples")
    if not np.isfinite(z).all():
        # Over no width, however far it grows.
        raise ProtocolError("a message asks for second moments where scores are not finite")
    wide = width.copy()
    while True:
        bend = np.where(used, loss.spread_curvature(z, labels, wide), 0.0)
        few = bend.sum(axis=0) < least * loss.sharpest(wide)
        if not few.any():
            return bend
        wide = np.where(few, _WIDER * wide, wide)


def levelled(columns: Floats, weights: Floats, least: int) -> Floats:
    """Weights of which none makes up more than ``least`` times the mean share of any direction.

    ``columns`` has a row for each sample, and a column for each vector. A sample's share is that of
    what all others have there: where they have nothing, it weighs nothing.
    """
    inside = columns.T @ (columns * weights[:, None])
    units = np.sqrt(np.diag(inside))
    scale = np.where(units > 0.0, 1.0 / np.where(units > 0.0, units, 1.0), 0.0)
    lengths, directions = np.linalg.eigh(scale[:, None] * inside * scale)
    some = lengths > _FLAT * lengths.max(initial=0.0)
    apart = columns @ (scale[:, None] * directions[:, some] / np.sqrt(lengths[some]))
    share = np.minimum(weights * (apart * apart).sum(axis=1), 1.0)
    # Of so many samples, if all weighed the same.
    number = weights.sum() ** 2 / max(float(weights @ weights), np.finfo(float).tiny)
    left = float(least * some.sum()) / max(float(number), 1.0) * (1.0 - share)
    # share/(1 − share) is what it has over what the others have.
    levels: Floats = weights * left / np.maximum(left + share, np.finfo(float).tiny)
    return levels
