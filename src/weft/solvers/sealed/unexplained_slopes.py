"""What a party's own columns leave of its responses: the slopes that its samples would have in a
model of these columns and a constant alone.

A model is λN w = −Σ slope·row over all columns. What own columns explain makes no slope, however
large it is; and what is left may stand out though responses do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.array_types import Floats
from weft.solvers.sealed.gamma_responses import GAMMA

#: Which part of squares rounding may make of responses that columns explain.
_DIGITS = 1e-18
#: Scores from which on e^z says no more.
_HIGHEST = 50.0
#: Steps of a fit at most, and by how much of itself its objective falls in the last.
_STEPS, _ENOUGH = 50, 1e-12
#: Samples beyond those that columns take up, as a multiple of the fewest: with less, any few of
#: them have nearly all that is left.
_BEYOND = 3


@dataclass(frozen=True)
class Responses:
    """What a party has of its samples, in rows.

    Attributes
    ----------
    cells
        (rows × columns) of its own.
    offsets
        Added to scores; zeros, of a squared loss, whose responses have them taken off.
    """

    values: Floats
    cells: Floats
    weights: Floats
    offsets: Floats
    loss: str


def unexplained(given: Responses, least: int, penalty: float = 0.0) -> tuple[Floats, Floats]:
    """Slopes of a model of own columns, times weights; zero where digits of cells hold no less.

    Also by how much the sum of their squares falls without one sample, two, and more below
    ``least``: a column that differs in these, or many that say nothing, take a part of what stands
    out, as no model need do. None where columns take up nearly all samples.

    Parameters
    ----------
    penalty
        λN of the model, but for the constant: what a fit explains by a large weight it leaves.
    """
    x = np.column_stack([np.ones(len(given.values)), given.cells])
    sizes = np.linalg.norm(x * np.sqrt(given.weights)[:, None], axis=0)
    # A column without any cells, or with none that digits hold, explains nothing.
    sizes[sizes < 1e-100] = 1.0
    x /= sizes
    held = penalty * np.append(0.0, sizes[1:] ** -2.0)
    scores = x @ _fit(given, x, held)
    slopes, bends = _slopes(given, scores)
    slopes, root = given.weights * slopes, np.sqrt(given.weights * bends)
    if given.loss == "squared":
        far = given.weights * (given.values - np.median(given.values))
        if float(slopes @ slopes) <= _DIGITS * float(far @ far):
            return np.zeros_like(slopes), np.zeros(0)
    x *= root[:, None]
    explaining = x @ np.linalg.pinv(x.T @ x + np.diag(held), rcond=1e-12, hermitian=True)
    free = 1.0 - (explaining * x).sum(axis=1)
    if float(free.sum()) < _BEYOND * least:
        return slopes, np.zeros(0)
    return slopes, _falls(slopes, root, x, explaining, free, min(least - 1, len(slopes)))


def _slopes(given: Responses, scores: Floats) -> tuple[Floats, Floats]:
    """Slopes by score, and the bends of losses: of amounts those that are expected."""
    if given.loss == "squared":
        return scores - given.values, np.ones_like(scores)
    z = _bounded(scores + given.offsets)
    if given.loss == GAMMA:
        return 1.0 - given.values * np.exp(-z), np.ones_like(z)
    return np.exp(z) - given.values, np.exp(z)


def _losses(given: Responses, scores: Floats) -> Floats:
    if given.loss == "squared":
        return 0.5 * (scores - given.values) ** 2
    z, values = _bounded(scores + given.offsets), given.values
    found: Floats = z + values * np.exp(-z) if given.loss == GAMMA else np.exp(z) - values * z
    return found


def _bounded(scores: Floats) -> Floats:
    return np.clip(scores, -_HIGHEST, _HIGHEST)


def _fit(given: Responses, x: Floats, held: Floats) -> Floats:
    """By Newton's steps with the bends that are expected, each half as long until it helps."""
    fit, weights = np.zeros(x.shape[1]), given.weights
    if given.loss == "squared":
        fit[0] = np.median(given.values) / x[0, 0]
    else:
        means = np.exp(_bounded(given.offsets))
        level = float(weights @ (given.values / means)) / max(float(weights.sum()), 1e-300)
        fit[0] = np.log(max(level, 1e-300)) / x[0, 0]

    def objective(at: Floats) -> float:
        return float(weights @ _losses(given, x @ at)) + 0.5 * float(held @ at**2)

    now = objective(fit)
    for _ in range(_STEPS):
        slopes, bends = _slopes(given, x @ fit)
        gram = x.T @ (x * (weights * bends)[:, None]) + np.diag(held)
        step = np.linalg.lstsq(gram, x.T @ (weights * slopes) + held * fit, rcond=1e-12)[0]
        before, length = now, 1.0
        while (now := objective(fit - length * step)) > before and length > 1e-6:
            length /= 2
        if not now <= before:
            break
        fit = fit - length * step
        if before - now <= _ENOUGH * abs(before):
            break
    return fit


def _falls(
    slopes: Floats, root: Floats, x: Floats, explaining: Floats, free: Floats, most: int
) -> Floats:
    """By how much squares of slopes fall without samples, in turn by the slope that each would have
    in the fit of all others; of losses that are not squares, as far as one step changes it."""
    total, there = float(slopes @ slopes), np.ones(len(slopes), bool)
    left, free = slopes / np.maximum(root, 1e-150), free.copy()
    falls, taken = np.zeros(most), np.zeros((most, len(left)))
    for number in range(most):
        each = np.where(there, (root * left) ** 2 / np.maximum(free, 1e-9), -1.0)
        which = int(each.argmax())
        there[which] = False
        # What a sample has of the others' fit, without those that were taken before.
        change = explaining @ x[which] + taken[:number].T @ taken[:number, which]
        change /= np.sqrt(max(float(free[which]), 1e-9))
        left += change * left[which] / np.sqrt(max(float(free[which]), 1e-9))
        free -= change**2
        taken[number] = change
        falls[number] = total - float(((root * left)[there] ** 2).sum())
    return falls
