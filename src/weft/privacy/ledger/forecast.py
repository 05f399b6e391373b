"""How many sums over each sample a run will take: most likely, and at most.

The most follows from what the solvers do in an iteration and from the limits of the run. What is
likely was fitted to runs of the fast solvers on breast cancer without guards: the number of sums is
close to a power of q = mean ‖x‖²/λ, the curvature that the data has over the curvature that λ adds,
and a power of the digits of the gap. On breast cancer and digits it came within a factor of three.
Guards make runs longer: five parties with overlapping rows and columns took 229 sums where 109 were
forecast. The constants of HyFDCA were set by eye. Methods in rounds, which serve for comparison,
are taken to use up all the iterations that they may: most of them never reach a gap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from weft.errors import ConfigError
from weft.solvers.catalogue import ALGORITHMS
from weft.solvers.hyfdca.curvature import MOST_ROUNDS
from weft.solvers.registry import resolve
from weft.solvers.rounds.run_state import CERTIFY_EVERY
from weft.solvers.settings import Settings
from weft.solvers.subspace.newton_cg import MOST_PRODUCTS

#: Sums of an iteration at most: new vectors, a point measured afresh, a model that is closed.
_MOST = {"cutting-planes": 2 + 1, "lbfgs": 1 + 1 + 1, "newton-cg": 1 + MOST_PRODUCTS + 1 + 1}
#: Sums are a·(1 + q)^b·digits^c, with digits = log10(1/gap) …
_LIKELY = {
    "cutting-planes": (1.7, 0.32, 0.6),
    "lbfgs": (2.1, 0.21, 0.47),
    "newton-cg": (23.0, 0.12, 0.12),
}
#: … and this share more for every further λ, which starts from the last.
_FURTHER = 0.3
#: Sums of an iteration, where nothing but their number ends the run.
_USUAL = {"cutting-planes": 1.7, "lbfgs": 1.0, "newton-cg": 12.0}
#: Iterations of HyFDCA are a·q·gap^−b, for losses with kinks and for smooth ones.
_HYFDCA = {False: (0.11, 0.57), True: (0.01, 0.5)}
#: Rounds of power iteration, and norms.
_SETTING_UP = 8
#: The gap of a run that is not told when to stop but by its limits.
_NO_GAP = 1e-6


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


def forecast(
    settings: Settings, *, classes: int, mean_square: float, unit_rows: bool = False
) -> Forecast:
    """What a run with these settings, whose solver is chosen, will take.

    Parameters
    ----------
    classes
        Problems side by side: one for two classes and for a response.
    mean_square
        1/N Σ ‖x_i‖² of the scaled table.
    unit_rows
        Whether norms of rows are summed for scaling, which takes a sum of its own.
    """
    norms = int(unit_rows)
    if settings.solver == "hyfdca":
        others, others_most = _set_up(settings)
        likely, most = _hyfdca(settings, classes, mean_square)
        return Forecast(
            likely + others + norms,
            None if most is None else most + others_most + norms,
            others,
            others_most,
        )
    if not ALGORITHMS[settings.solver].spans:
        return _rounds(settings, classes, mean_square, norms)
    width = classes * (settings.folds + 1)
    iterations = _iterations(settings)
    most = None
    if iterations is not None:
        # One more for a run that starts from a model, whose z is measured first.
        sums = _MOST[settings.solver] * iterations * len(settings.lambdas) + 1
        most = sums * width + norms
    likely = _span(settings, mean_square) * width + norms
    others_most = 0
    if settings.hands_over:
        # HyFDCA may go on where this solver stops, and sets up like any run of its own.
        _, others_most = _set_up(msgspec.structs.replace(settings, local="safe"))
        _, left = _hyfdca(settings, classes, mean_square)
        most = None if most is None or left is None else most + left + others_most
    return Forecast(_capped(likely, most), most, 0, others_most)


def _iterations(settings: Settings, trips: int = 2) -> int | None:
    """Iterations for each λ, at most, where each takes so many round trips or more."""
    limits = [settings.iterations]
    if settings.round_trips is not None:
        # The last may begin just below the limit.
        limits.append(settings.round_trips // trips + 1)
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _span(settings: Settings, mean_square: float) -> int:
    """What the fast solvers are likely to take for each problem."""
    further = 1.0 + _FURTHER * (len(settings.lambdas) - 1)
    iterations = _iterations(settings)
    if settings.gap is None and iterations is not None:
        return math.ceil(_USUAL[settings.solver] * iterations * len(settings.lambdas)) + 1
    digits = max(1.0, -math.log10(settings.gap or _NO_GAP))
    a, b, c = _LIKELY[settings.solver]
    base = 1.0 + mean_square / settings.smallest_lam
    return math.ceil(a * math.pow(base, b) * math.pow(digits, c) * further)


def _hyfdca(settings: Settings, classes: int, mean_square: float) -> tuple[int, int | None]:
    """What HyFDCA is likely to take after setting up, and at most."""
    a, b = _HYFDCA[math.isfinite(settings.make_loss().smoothness)]
    iterations = _iterations(settings)
    # A share of the samples takes part in an iteration, so that each gets that share of the sums.
    found = a * mean_square / settings.lam * (settings.gap or _NO_GAP) ** -b + 2.0
    if settings.gap is None and iterations is not None:
        found = iterations * min(1.0, settings.iic)
    likely = math.ceil(found) * classes
    if iterations is None:
        return likely, None
    # Every iteration may begin a certificate that is measured apart, and the end takes one.
    most = (2 * iterations + 2) * classes
    return _capped(likely, most), most


def _rounds(settings: Settings, classes: int, mean_square: float, norms: int) -> Forecast:
    """What a method in rounds takes: its own sums of an iteration, and one for a certificate."""
    own = (ALGORITHMS[settings.solver].sample_sums or 0) * classes
    every = settings.certify_every or CERTIFY_EVERY

    def taken(iterations: int) -> int:
        # One certificate more for a run that is resumed, which measures a point anew.
        return own * iterations + (math.ceil(iterations / every) + 1) * classes + norms

    iterations = _iterations(settings, trips=1)
    if iterations is None:
        guess, _ = _hyfdca(settings, 1, mean_square)
        return Forecast(taken(guess), None, own * guess, None if own else 0)
    most = taken(iterations)
    return Forecast(most, most, own * iterations, own * iterations)


def _set_up(settings: Settings) -> tuple[int, int]:
    """Sums that every holder of a sample gets before the first iteration of HyFDCA."""
    if settings.local == "practical":
        return 0, 0
    return (1, 1) if settings.local == "theory" else (_SETTING_UP, MOST_ROUNDS + 1)


def _capped(likely: int, most: int | None) -> int:
    return likely if most is None else min(likely, most)


def alternatives(settings: Settings) -> list[tuple[str, Settings]]:
    """Other ways to train this model, and what to write in the config for them."""
    found: list[tuple[str, Settings]] = []

    def offer(what: str, **changes: object) -> None:
        try:
            changed, _ = resolve(msgspec.structs.replace(settings, **changes))
        except ConfigError:
            return
        found.append((what, changed))

    for solver, algorithm in ALGORITHMS.items():
        # What only serves comparison is no advice.
        if not algorithm.ours:
            continue
        if solver != settings.solver:
            offer(f'name = "{solver}" in [solver]', solver=solver)
    if settings.folds:
        # Without folds nothing chooses among several values of λ.
        offer("one lambda and no folds", path=(), folds=0)
    if settings.folds > 2:
        offer("folds = 2", folds=2)
    if len(settings.lambdas) > 2:
        largest = (settings.lambdas[0],)
        offer("two values of lambda", path=largest)
    if settings.gap is not None and settings.gap < 1e-1:
        wider = min(10 * settings.gap, 1e-1)
        offer(f"gap = {wider:g}", gap=wider)
    return found
