"""A loss whose kink is rounded off: its slopes, and second moments that enough samples weigh in.

A loss with a kink has no curvature to make a model of. Rounded off over a width, the hinge loss has
one in every sample, as the logistic loss has. Its slopes are dual variables of the loss itself, so
that all bounds are bounds of that. But samples far from the kink weigh next to nothing. So a width
for second moments is doubled until as many samples lie within it as there must be for so many
moments, whatever width a message asks for: each of them weighs three quarters of the most.
"""

from __future__ import annotations

import numpy as np

from weft.array_types import Flags, Floats, Ints
from weft.errors import ProtocolError
from weft.losses import Loss


def rounded_weights(
    loss: Loss,
    z: Floats,
    labels: Floats,
    width: Floats,
    counted: Ints,
    used: Flags,
    least: int,
) -> Floats:
    """l'' of the rounded loss, per sample and problem, at widths of ``width`` or more.

    Of the samples that are ``counted`` and ``used`` in a problem, ``least`` lie within its width.
    """
    if not counted.size:
        return loss.rounded_curvature(z, labels, width)
    if (used.sum(axis=0) < least).any():
        raise ProtocolError("a message asks for second moments of too few samples")
    wide = width.copy()
    distance = loss.from_kink(z[counted], labels[counted])
    if not np.isfinite(distance).all():
        # Within no width, however often it is doubled.
        raise ProtocolError("a message asks for second moments where scores are not finite")
    while (few := ((distance <= wide) & used).sum(axis=0) < least).any():
        wide = np.where(few, 2.0 * wide, wide)
    return loss.rounded_curvature(z, labels, wide)
