"""Losses of the samples that folds leave out, from what the coordinator knows: noisy scalars.

The mean of log 2cosh(z/2) over these samples is told apart at every point; labels add w·h, where h
is the slope at w = 0 over them, one more vector of the problem. A squared loss is quadratic: it
follows from h at 0 and at the model. How many are predicted rightly cannot be told: whether a score
is above zero is no smooth function of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from weft.array_types import Floats
from weft.solvers.secret_sharing.coordinator_lbfgs import Descent
from weft.solvers.secret_sharing.digit_widths import TableBounds
from weft.solvers.secret_sharing.fold_rows import FoldSizes


@dataclass
class HeldOut:
    """What one problem leaves out; losses are in parts of all samples.

    Attributes
    ----------
    start
        The loss at w = 0.
    """

    descent: Descent
    squared: bool
    start: float
    _told: dict[int, float] = field(default_factory=dict)

    def note(self, told: float) -> None:
        """The mean of log 2cosh(z/2) at the point of the newest vector."""
        self._told[self.descent.vectors - 1] = told

    def loss(self) -> float:
        """At the model; of a squared loss, whose newest vector is h there."""
        descent, model = self.descent, self.descent.model
        if model == descent.products.first:
            return self.start
        # The vector of slopes at w = 0 of what is left out comes after that of all others.
        first = descent.products.first + 1
        if self.squared:
            newest = descent.vectors - 1
            return self.start + 0.5 * (descent.tilt(model, first) + descent.tilt(model, newest))
        return self._told[model] + descent.tilt(model, first)


def starting_losses(
    bounds: TableBounds, sizes: FoldSizes, squared: bool
) -> tuple[Floats, Floats, Floats]:
    """Per problem, the share of samples trained on, and losses at w = 0 of these and the others."""
    share: Floats = 1.0 - sizes.samples / bounds.samples
    if squared:
        held: Floats = 0.5 * sizes.squares / bounds.samples
        return share, 0.5 * bounds.label_square - held, held
    return share, share * math.log(2.0), (1.0 - share) * math.log(2.0)
