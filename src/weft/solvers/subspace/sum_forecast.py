"""Sums over a sample that the solvers for full participation take.

What is likely was fitted to runs on breast cancer without guards: the number of sums is close to a
power of q = mean ‖x‖²/λ, the curvature that the data has over the curvature that λ adds, and a
power of the digits of the gap. On breast cancer and digits it came within a factor of three. Guards
make runs longer: five parties with overlapping rows and columns took 229 sums where 109 were
forecast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from weft.solvers.hyfdca.sum_forecast import iterating, set_up
from weft.solvers.settings import Settings
from weft.solvers.sum_forecast import NO_GAP, Forecast, capped, most_iterations

#: A further λ, which starts from the last, takes this share of the sums of the first.
_FURTHER = 0.3


@dataclass(frozen=True)
class SubspaceForecast:
    """The forecast of one solver.

    Attributes
    ----------
    most
        Sums of an iteration at most: new vectors, a point measured afresh, a model that is closed.
    usual
        Sums of an iteration, where nothing but their number ends the run.
    fitted
        a, b and c of a·(1 + q)^b·digits^c sums, with digits = log10(1/gap).
    """

    most: int
    usual: float
    fitted: tuple[float, float, float]

    def __call__(self, settings: Settings, classes: int, mean_square: float) -> Forecast:
        width = classes * (settings.folds + 1)
        iterations = most_iterations(settings)
        most = None
        if iterations is not None:
            # One more for a run that starts from a model, whose z is measured first.
            most = (self.most * iterations * len(settings.lambdas) + 1) * width
        likely = self._likely(settings, mean_square) * width
        others_most = 0
        if settings.hands_over:
            # HyFDCA may go on where this solver stops, and sets up like any run of its own.
            _, others_most = set_up(msgspec.structs.replace(settings, local="safe"))
            _, left = iterating(settings, classes, mean_square)
            most = None if most is None or left is None else most + left + others_most
        return Forecast(capped(likely, most), most, 0, others_most)

    def _likely(self, settings: Settings, mean_square: float) -> int:
        """Sums for each problem."""
        further = 1.0 + _FURTHER * (len(settings.lambdas) - 1)
        iterations = most_iterations(settings)
        if settings.gap is None and iterations is not None:
            return math.ceil(self.usual * iterations * len(settings.lambdas)) + 1
        digits = max(1.0, -math.log10(settings.gap or NO_GAP))
        a, b, c = self.fitted
        base = 1.0 + mean_square / settings.smallest_lam
        return math.ceil(a * math.pow(base, b) * math.pow(digits, c) * further)
