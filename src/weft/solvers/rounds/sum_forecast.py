"""Sums over a sample that a method in rounds takes."""

from __future__ import annotations

import math

from weft.solvers.rounds.run_state import CERTIFY_EVERY
from weft.solvers.settings import Settings
from weft.solvers.sum_forecast import Forecast, first_order_iterations, most_iterations


def forecast_rounds(
    settings: Settings, classes: int, mean_square: float, sample_sums: int
) -> Forecast:
    """Its own sums of every iteration, and one for each certificate."""
    own = sample_sums * classes
    every = settings.certify_every or CERTIFY_EVERY

    def taken(iterations: int) -> int:
        # One certificate more for a run that is resumed, which measures a point anew.
        return own * iterations + (math.ceil(iterations / every) + 1) * classes

    iterations = most_iterations(settings, trips=1)
    if iterations is None:
        guess = math.ceil(first_order_iterations(settings, mean_square))
        return Forecast(taken(guess), None, own * guess, None if own else 0)
    most = taken(iterations)
    return Forecast(most, most, own * iterations, own * iterations)
