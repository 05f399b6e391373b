"""Steps by trying them out, as papers do: a search over a grid, one option after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.experiments.trials import Course, Progress, Trial


def tune(
    course: Course,
    solver: str,
    options: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]],
    *,
    iterations: int,
    near: float,
    passes: int = 2,
    progress: Progress | None = None,
) -> Trial:
    """The best of short runs.

    Options are searched in the order of the grid, each with the best values found for the others,
    ``passes`` times over: the numbers of values add up, where a search of all combinations
    multiplies them.
    Best is the run that is first as ``near`` to P* as wanted, and if none comes there the one that
    ends nearest.

    Parameters
    ----------
    options
        What every run is told, with values to start from.
    grid
        Further values of some options; None as a value leaves the option out.
    """
    chosen = dict(options)
    best = course.run(solver, given(chosen), iterations, near=near, progress=progress)
    tried = [chosen]
    for name, values in [*grid.items()] * passes:
        for value in (options.get(name), *values):
            changed = {**chosen, name: value}
            if changed in tried:
                continue
            tried.append(changed)
            # What has not come there when the best one had cannot win.
            most = best.reached(near) or iterations
            trial = course.run(solver, given(changed), most, near=near, progress=progress)
            if score(trial, near) < score(best, near):
                best, chosen = trial, changed
    return best


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options without those that are left to the method."""
    return {name: value for name, value in options.items() if value is not None}


def score(trial: Trial, near: float) -> tuple[float, float]:
    """Small is good: iterations to a distance, then the distance at the end."""
    reached = trial.reached(near)
    return (float("inf") if reached is None else reached, trial.end)
