"""How many sums over each sample a run will take: most likely, and at most.

The most follows from what a solver does in an iteration and from the limits of the run. What is
likely was fitted to runs on breast cancer and digits; every solver has its own constants, beside
its code. Methods in rounds, which serve for comparison, are taken to use up all the iterations that
they may: most of them never reach a gap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.solvers.rounds.coordinator_totals_and_bound import CERTIFY_EVERY
from weft.solvers.run_settings import Settings

#: The gap of a run that is not told when to stop but by its limits.
NO_GAP = 1e-6
#: First-order methods on the dual take a·q·gap^−b iterations, for losses with kinks and for smooth
#: ones, with q = mean ‖x‖²/λ; set by eye on runs of HyFDCA.
_FIRST_ORDER = {False: (0.11, 0.57), True: (0.01, 0.5)}
#: A further λ, which starts from the last, takes this share of the sums of the first.
_FURTHER = 0.3
#: a, b and c of `power_of_gap` for the iterations of quasi-Newton methods.
QUASI_NEWTON = (2.1, 0.21, 0.47)


@dataclass(frozen=True)
class Forecast:
    """Sums over a sample that one run takes.

    Attributes
    ----------
    likely, most
        Those that a holder of the sample with its label gets; ``most`` is None where nothing
        limits the run.
    others, others_most
        Those that a holder without the label gets.
    """

    likely: int
    most: int | None
    others: int = 0
    others_most: int | None = 0

    def of(self, labelled: bool) -> tuple[int, int | None]:
        """Likely, and at most, for a holder with the label or without."""
        return (self.likely, self.most) if labelled else (self.others, self.others_most)

    def plus(self, sums: int) -> Forecast:
        """With further sums for holders with the label."""
        most = None if self.most is None else self.most + sums
        return Forecast(self.likely + sums, most, self.others, self.others_most)


def most_iterations(settings: Settings, trips: int = 2) -> int | None:
    """Iterations for each λ, at most, where each takes so many round trips or more."""
    limits = [settings.iterations]
    if settings.round_trips is not None:
        # The last may begin just below the limit.
        limits.append(settings.round_trips // trips + 1)
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def first_order_iterations(settings: Settings, mean_square: float) -> float:
    """Iterations over all samples that a first-order method is likely to take."""
    a, b = _FIRST_ORDER[settings.make_loss().smooth]
    return float(a * mean_square / settings.lam * (settings.gap or NO_GAP) ** -b + 2.0)


def power_of_gap(
    settings: Settings, mean_square: float, fitted: tuple[float, float, float]
) -> float:
    """a·(1 + q)^b·digits^c, with q = mean ‖x‖²/λ and digits = log10(1/gap), over all λ."""
    a, b, c = fitted
    digits = max(1.0, -math.log10(settings.gap or NO_GAP))
    further = 1.0 + _FURTHER * (len(settings.lambdas) - 1)
    base = 1.0 + mean_square / settings.smallest_lam
    return float(a * math.pow(base, b) * math.pow(digits, c) * further)


def capped(likely: int, most: int | None) -> int:
    return likely if most is None else min(likely, most)


def forecast_rounds(
    settings: Settings, classes: int, mean_square: float, sample_sums: int
) -> Forecast:
    """Of a method in rounds: its own sums of every iteration, and one for each certificate."""
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
