"""The paper's search: constant steps in [1e-4, 1], μ in [1e-4, 10], the best by ‖x₀ − x*‖.

All values of one option are tried at once, each with the best values found for the others, option
after option: the numbers of values add up, where all combinations of five options would multiply
them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.array_types import Floats
from weft_papers.fedhybrid.constant_step_grid import Candidates, Grid

#: 1, 3, 10, … from end to end of the paper's ranges.
STEPS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
PENALTIES = (*STEPS, 3.0, 10.0)

Chosen = dict[str, float]
_EVERY = ("mu", "gradient_a", "gradient_b", "newton_a", "newton_b")


def best_fedhybrid(
    grid: Grid, newton: Sequence[str], iterations: int, starts: Sequence[Chosen]
) -> Chosen:
    """The options with which x₀ ends nearest to x*.

    Parameters
    ----------
    starts
        Options to begin with, of which the best are taken.
    """
    names = [
        name
        for name in _EVERY
        if name == "mu"
        or (name.startswith("newton") and newton)
        or (name.startswith("gradient") and len(newton) < len(grid.parties))
    ]
    # Hessians that change from step to step cost too much for every value.
    whole = grid.quadratic or not newton
    few = slice(None, None, 1 if whole else 2)
    chosen, least = _best_of(grid, newton, iterations, starts)
    for _ in range(3 if whole else 1):
        before = least
        for name in names:
            values: tuple[float, ...] = PENALTIES if name == "mu" else STEPS
            tried = [chosen, *({**chosen, name: value} for value in values[few])]
            found, error = _best_of(grid, newton, iterations, tried)
            if error < least:
                chosen, least = found, error
        if least == before:
            break
    return chosen


def _best_of(
    grid: Grid, newton: Sequence[str], iterations: int, tried: Sequence[Chosen]
) -> tuple[Chosen, float]:
    last = grid.fedhybrid(newton, candidates(tried), iterations).errors[-1]
    at = int(np.argmin(last))
    return dict(tried[at]), float(last[at])


def candidates(tried: Sequence[Chosen]) -> Candidates:
    return Candidates(*(np.array([one[name] for one in tried]) for name in _EVERY))


def best_fedavg(grid: Grid, iterations: int) -> float:
    """The rate, of all those of the grid."""
    rates: Floats = np.array(STEPS)
    return float(rates[int(np.argmin(grid.fedavg(rates, iterations).errors[-1]))])


def gradient_starts() -> list[Chosen]:
    """All of the grid: without Newton-type parties three options are left."""
    return [_options(mu, a, b, 1.0, 1.0) for mu in PENALTIES for a in STEPS for b in STEPS]


def newton_starts() -> list[Chosen]:
    """Every tenfold μ with full primal steps and two dual ones."""
    return [_options(mu, 0.1, 0.1, 1.0, b) for mu in PENALTIES[::2] for b in (1e-2, 1e-1)]


def both(gradient: Chosen, newton: Chosen) -> list[Chosen]:
    """The steps of two searches together, with the μ of either."""
    steps = gradient["gradient_a"], gradient["gradient_b"], newton["newton_a"], newton["newton_b"]
    return [_options(mu, *steps) for mu in (gradient["mu"], newton["mu"])]


def _options(*values: float) -> Chosen:
    return dict(zip(_EVERY, values, strict=True))
