"""Slopes next to the kink of a loss, where a guard wants more samples to change along."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.losses import Loss

#: Distances to the kink within which they are looked for.
_DISTANCES = 2.0 ** np.arange(-24.0, 8.0, 0.25)  # 128 of them: bisection takes seven steps
#: Slopes between the two sides keep this far from either.
_MARGIN = 0.1


class Kinks:
    """Samples by their distance to the kink of the loss, at some z.

    Late in a run a subgradient changes in a few samples only, which a guard would hold back. But
    next to the kink of the loss any slope between its two sides is nearly as good a subgradient: so
    there more samples change along. The bound that such a vector gives is weaker by the samples'
    distances to their kinks, and as true as any other.

    Parameters
    ----------
    loss, z, labels
        Where the slopes are taken.
    """

    def __init__(self, loss: Loss, z: Floats, labels: Floats) -> None:
        self._loss, self._z, self._labels = loss, z, labels
        #: Per sample, the place of the nearest distance at which the slopes on its sides differ.
        self._place = np.zeros(len(z), np.int64)
        step = len(_DISTANCES) // 2
        while step:
            # The farther, the sooner they differ: bisection, for all samples at once.
            low, high = self._sides(self._place + step - 1)
            self._place += np.where(low == high, step, 0)
            step //= 2

    def _sides(self, place: NDArray[np.int64] | int) -> tuple[Floats, Floats]:
        distance = _DISTANCES[place]
        below, above = self._z - distance, self._z + distance
        return self._loss.u(below, self._labels), self._loss.u(above, self._labels)

    def soften(self, values: Floats, count: float) -> Floats:
        """Values of −l' at z, some ``count`` next to the kink replaced by others between its sides.

        Which ones follows from z alone, which all holders of a sample with its label know, and
        nobody else: they all find the same values, and nobody else can tell them.
        """
        nearest = min(math.ceil(count), len(values)) - 1
        place = int(np.partition(self._place, nearest)[nearest])
        low, high = self._sides(place)
        share = _MARGIN + (1.0 - 2.0 * _MARGIN) * _fractions(self._z)
        return np.where(low != high, low + share * (high - low), values)


def _fractions(z: Floats) -> Floats:
    """Numbers between 0 and 1 that seem random, one per number."""
    x = np.ascontiguousarray(z + 0.0).view(np.uint64)
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    fractions: Floats = (x >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return fractions
