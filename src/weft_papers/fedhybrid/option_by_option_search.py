"""Grid search over a method's options, one option after the other, as papers do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft_papers.fedhybrid.runs_tracked_to_optimum import Progress, TrackedRun, Workbench


def tune(
    workbench: Workbench,
    solver: str,
    starts: Sequence[Mapping[str, Any]],
    grid: Mapping[str, Sequence[Any]],
    *,
    iterations: int,
    near: float,
    passes: int = 2,
    progress: Progress | None = None,
) -> TrackedRun:
    """The best of short runs.

    Options are searched in the order of the grid, each with the best values found for the others,
    ``passes`` times over: the numbers of values add up, where a search of all combinations
    multiplies them.
    Best is the run that is first as ``near`` to P* as wanted, and if none comes there the one that
    ends nearest.

    Parameters
    ----------
    starts
        Options to begin with, of which the best are taken.
    grid
        Values of some of the options to try; None leaves an option out.
    """
    tried: list[dict[str, Any]] = []
    best: TrackedRun | None = None
    chosen: dict[str, Any] = {}

    def attempt(options: Mapping[str, Any]) -> None:
        nonlocal best, chosen
        if options in tried:
            return
        tried.append(dict(options))
        # What has not come there when the best one had cannot win.
        most = iterations if best is None else best.reached(near) or iterations
        run = workbench.run(solver, given(options), most, near=near, progress=progress)
        if best is None or score(run, near) < score(best, near):
            best, chosen = run, dict(options)

    for start in starts:
        attempt(start)
    for name, values in [*grid.items()] * passes:
        for value in values:
            attempt({**chosen, name: value})
    if best is None:
        raise ValueError("a search needs a start")
    return best


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options without those that are left to the method."""
    return {name: value for name, value in options.items() if value is not None}


def score(run: TrackedRun, near: float) -> tuple[float, float]:
    """Small is good: iterations to a distance, then the distance at the end."""
    reached = run.reached(near)
    return (float("inf") if reached is None else reached, run.end)
