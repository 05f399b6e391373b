"""Sums over a sample that a run of HyFDCA takes."""

from __future__ import annotations

import math

from weft.solvers.hyfdca.data_norms import MOST_ROUNDS
from weft.solvers.run_settings import Settings
from weft.solvers.sum_count_forecast import (
    Forecast,
    capped,
    first_order_iterations,
    most_iterations,
)

#: Rounds of power iteration, and norms.
_SETTING_UP = 8


def forecast_hyfdca(settings: Settings, classes: int, mean_square: float) -> Forecast:
    """Every holder takes part in setting up; iterations are for holders with the label."""
    others, others_most = set_up(settings)
    likely, most = iterating(settings, classes, mean_square)
    return Forecast(
        likely + others, None if most is None else most + others_most, others, others_most
    )


def set_up(settings: Settings) -> tuple[int, int]:
    """Sums that every holder of a sample gets before the first iteration: likely, and at most."""
    if settings.local == "practical":
        return 0, 0
    return (1, 1) if settings.local == "theory" else (_SETTING_UP, MOST_ROUNDS + 1)


def iterating(settings: Settings, classes: int, mean_square: float) -> tuple[int, int | None]:
    """Sums after setting up: likely, and at most."""
    iterations = most_iterations(settings)
    found = first_order_iterations(settings, mean_square)
    if settings.gap is None and iterations is not None:
        # A share of the samples takes part in an iteration, and each gets that share of the sums.
        found = iterations * min(1.0, settings.iic)
    likely = math.ceil(found) * classes
    if iterations is None:
        return likely, None
    # Every iteration may begin a certificate that is measured apart, and the end takes one.
    most = (2 * iterations + 2) * classes
    return capped(likely, most), most
