"""How many sums over each sample a run will take, and which other runs would take fewer."""

from __future__ import annotations

import msgspec

from weft.errors import ConfigError
from weft.solvers.catalogue import ALGORITHMS, algorithm_of, resolve
from weft.solvers.rounds.sum_forecast import forecast_rounds
from weft.solvers.settings import Settings
from weft.solvers.sum_forecast import Forecast


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
    algorithm = algorithm_of(settings.solver)
    if algorithm.forecast is not None:
        ahead = algorithm.forecast(settings, classes, mean_square)
    else:
        ahead = forecast_rounds(settings, classes, mean_square, algorithm.sample_sums or 0)
    return ahead.plus(int(unit_rows))


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
