"""How many points and vectors a sealed run can need, so that a party answers no more.

A coordinator that deals wrong numbers reads about one cell with every point that it asks for. What
the settings can need is known to all: more is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.errors import ProtocolError
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.supported_losses import EXPONENTIAL_LOSSES

#: Gradients that a run may have: every new vector is multiplied with all others.
MOST_GRADIENTS = 200
#: Points that may be tried again, besides one for every gradient: per λ, and in a run.
SPARE_POINTS, MOST_SPARE_POINTS = 24, 240
#: Values of λ in a run: of what folds leave out, a squared loss takes a vector for each.
MOST_LAMBDAS = 200


def spare_points(settings: Settings) -> int:
    """Points that may be tried again in a run, at first."""
    return min(MOST_SPARE_POINTS, SPARE_POINTS * len(settings.lambdas))


@dataclass
class PointAndVectorLimit:
    """What is left to be asked.

    Attributes
    ----------
    gradients
        Vectors at points, and of what folds leave out.
    spare
        Points without a vector.
    apart
        Whether labels have a vector of their own.
    """

    gradients: int
    spare: int
    apart: bool = False

    @classmethod
    def of(cls, settings: Settings, problems: int, *, offset: bool = False) -> PointAndVectorLimit:
        """For a run with so many problems side by side, and scores that differ at w = 0 or not."""
        stages = len(settings.lambdas)
        iterations = math.inf if settings.iterations is None else settings.iterations * stages
        # One at w = 0; of what folds leave out one there, and at every model of a squared loss.
        gradients = int(min(MOST_GRADIENTS, iterations)) + 1
        # With offsets labels have a vector of their own, besides the gradient there.
        apart = settings.loss in EXPONENTIAL_LOSSES or (offset and settings.loss != "squared")
        gradients += apart
        if settings.folds:
            gradients += 1 + (min(stages, MOST_LAMBDAS) if settings.loss == "squared" else 0)
        # Second moments take another point of every problem.
        return cls(gradients, spare_points(settings) + 2 * problems, apart)

    def start_apart(self) -> None:
        """With weights labels have a vector of their own, besides the gradient at w = 0."""
        if not self.apart:
            self.gradients, self.apart = self.gradients + 1, True

    def ask_point(self) -> None:
        """A point is asked for; the vector that follows it, if any, gives it back."""
        self.spare -= 1
        self._check()

    def ask_vector(self) -> None:
        self.gradients -= 1
        # The point is accounted for, and one more may be tried again before the next.
        self.spare += 2
        self._check()

    def _check(self) -> None:
        if self.spare < 0 or self.gradients < 0:
            raise ProtocolError(
                "sealed training is asked for more points than the iterations of this run can need"
            )
