"""What a party's own columns leave of its responses: the slopes that its samples would have in a
model of these columns and a constant alone.

A model is λN w = −Σ slope·row over all columns. What own columns explain makes no slope, however
large it is; and what is left may stand out though responses do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from weft.array_types import Floats
from weft.solvers.secret_sharing.gamma_as_poisson import GAMMA

#: The loss of labels of two classes, or of one against all others.
LOGISTIC = "logistic"
#: By how much of the largest a matrix that may be singular is made larger.
_LITTLE = 1e-10
#: Which part of squares rounding may make of responses that columns explain.
_DIGITS = 1e-18
#: Scores from which on e^z says no more.
_HIGHEST = 50.0
#: Steps of a fit at most, and by how much of itself its objective falls in the last.
_STEPS, _ENOUGH = 50, 1e-12
#: Part of squares that few have at least where they may have nearly all.
_SOME = 0.05
#: Samples at most that are judged without all columns that others have and they are far off in.
_FARTHEST = 8
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


@dataclass(frozen=True)
class Left:
    """What a fit leaves.

    Attributes
    ----------
    slopes
        Times weights; zero where digits of cells hold no less.
    falls
        By how much the sum of their squares falls without one sample, two, and more: a column that
        differs in these, or many that say nothing, take a part of what stands out, as no model need
        do. None where columns take up nearly all samples.
    """

    slopes: Floats
    falls: Floats


def unexplained(
    given: Responses, least: int, penalty: float = 0.0, shared: Sequence[int] = ()
) -> Iterator[Left]:
    """What own columns leave, and what they leave without each that others have of other samples,
    whose weight is then not as one's own would have it, or several such that are far off together.

    Parameters
    ----------
    penalty
        λN of the model, but for the constant: what a fit explains by a large weight it leaves.
    shared
        Columns that others have too.
    """
    x = np.column_stack([np.ones(len(given.values)), given.cells])
    sizes = np.linalg.norm(x * np.sqrt(given.weights)[:, None], axis=0)
    # A column without any cells, or with none that digits hold, explains nothing.
    sizes[sizes < 1e-100] = 1.0
    x /= sizes
    held = penalty * np.append(0.0, sizes[1:] ** -2.0)
    with np.errstate(over="ignore", invalid="ignore"):
        weights = _fit(given, x, held)
        scores = x @ weights
        slopes, bends = _slopes(given, scores)
        slopes, root = given.weights * slopes, np.sqrt(given.weights * bends)
        if given.loss == "squared" and _are_rounding(given, slopes):
            slopes = np.zeros_like(slopes)
        combinations = _combinations(x, shared, least)
        x *= root[:, None]
        gram = x.T @ x + np.diag(held)
        # A little more, so that of columns that are alike each can be left out.
        inverse = np.linalg.inv(
            gram + _LITTLE * max(gram.diagonal().max(), 1e-300) * np.eye(len(gram))
        )
        fit = _Fit(slopes, root, x, x @ inverse)
        yield fit.left(least, np.zeros(len(slopes)))
        for combination in combinations:
            size = np.sqrt(combination @ inverse @ combination)
            part = fit.explaining @ combination / size
            lost = float(weights @ combination / size)
            moved = slopes - root * part * lost
            if given.loss == GAMMA:
                # A bend of one tells little where scores move far: slopes go by e^−z.
                there = scores - part * lost / np.maximum(root, 1e-150)
                moved = given.weights * _slopes(given, there)[0]
            yield _Fit(moved, root, x, fit.explaining).left(least, part)


def _combinations(x: Floats, shared: Sequence[int], least: int) -> list[Floats]:
    """Each column that others have, and those together in which one sample is far off: two that
    are alike explain it each without the other.

    A sample is far off in a column of whose squares about the mean it has as much as one of
    ``least`` that alone have all. Weights do not count: samples that weigh much are far off in no
    cell by that.
    """
    found = list(np.eye(x.shape[1])[[1 + at for at in shared]])
    far = np.zeros(x.shape)
    for place in (1 + at for at in shared):
        far[:, place] = x[:, place] - x[:, place].mean()
    parts = far**2 / np.maximum((far**2).sum(axis=0), 1e-300)
    near = parts * least < 1.0 - _LITTLE
    far[near], parts[near] = 0.0, 0.0
    several = np.flatnonzero((parts > 0.0).sum(axis=1) > 1)
    farthest = np.argsort(parts[several].sum(axis=1))[::-1][:_FARTHEST]
    found.extend(far[several[farthest]])
    return found


def _are_rounding(given: Responses, slopes: Floats) -> bool:
    far = given.weights * (given.values - np.median(given.values))
    return float(slopes @ slopes) <= _DIGITS * float(far @ far)


def _slopes(given: Responses, scores: Floats) -> tuple[Floats, Floats]:
    """Slopes by score, and the bends of losses: of amounts those that are expected."""
    if given.loss == "squared":
        return scores - given.values, np.ones_like(scores)
    z = _bounded(scores + given.offsets)
    if given.loss == LOGISTIC:
        chance = scipy.special.expit(z)
        return chance - (given.values > 0), chance * (1.0 - chance)
    if given.loss == GAMMA:
        return 1.0 - given.values * np.exp(-z), np.ones_like(z)
    return np.exp(z) - given.values, np.exp(z)


def _losses(given: Responses, scores: Floats) -> Floats:
    if given.loss == "squared":
        return 0.5 * (scores - given.values) ** 2
    z, values = _bounded(scores + given.offsets), given.values
    if given.loss == LOGISTIC:
        return np.logaddexp(0.0, np.where(values > 0, -z, z))
    found: Floats = z + values * np.exp(-z) if given.loss == GAMMA else np.exp(z) - values * z
    return found


def _bounded(scores: Floats) -> Floats:
    return np.clip(scores, -_HIGHEST, _HIGHEST)


def _fit(given: Responses, x: Floats, held: Floats) -> Floats:
    """By Newton's steps with the bends that are expected, each half as long until it helps."""
    fit, weights = np.zeros(x.shape[1]), given.weights
    if given.loss == "squared":
        fit[0] = np.median(given.values) / x[0, 0]
    elif given.loss != LOGISTIC:
        means = np.exp(_bounded(given.offsets))
        level = float(weights @ (given.values / means)) / max(float(weights.sum()), 1e-300)
        fit[0] = np.log(max(level, 1e-300)) / x[0, 0]

    def objective(at: Floats) -> float:
        return float(weights @ _losses(given, x @ at)) + 0.5 * float(held @ at**2)

    now = objective(fit)
    for _ in range(_STEPS):
        slopes, bends = _slopes(given, x @ fit)
        if given.loss == GAMMA:
            # Those that are there: with the expected ones steps are short where amounts are large.
            bends = 1.0 - slopes
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


@dataclass(frozen=True)
class _Fit:
    """A fit by squares, or what it is by the last of Newton's steps, in rows times ``root``."""

    slopes: Floats
    root: Floats
    x: Floats
    #: What each row has of every weight.
    explaining: Floats

    def left(self, least: int, without: Floats) -> Left:
        """``without``: what a column that is left out explained beyond others, a vector of one."""
        free = 1.0 - (self.explaining * self.x).sum(axis=1) + without**2
        if float(free.sum()) < _BEYOND * least or self._even(free, least):
            return Left(self.slopes, np.zeros(0))
        falls = self._falls(free, without, min(least - 1, len(self.slopes)))
        return Left(self.slopes, np.nan_to_num(falls))

    def _even(self, free: Floats, least: int) -> bool:
        """Whether few have little of all squares, also by what each would have without itself."""
        alone = (self.slopes / np.maximum(free, 1e-9)) ** 2
        most = np.partition(alone, max(len(alone) - least, 0))[-least:]
        return float(most.sum()) < _SOME * float(self.slopes @ self.slopes)

    def _falls(self, free: Floats, without: Floats, most: int) -> Floats:
        """Samples go in turn by the slope that each would have in the fit of all others."""
        slopes, root = self.slopes, self.root
        total, there = float(slopes @ slopes), np.ones(len(slopes), bool)
        left = slopes / np.maximum(root, 1e-150)
        falls, taken = np.zeros(most), np.zeros((most, len(left)))
        for number in range(most):
            each = np.where(there, (root * left) ** 2 / np.maximum(free, 1e-9), -1.0)
            which = int(each.argmax())
            there[which] = False
            # What a sample has of the others' fit, without those that were taken before.
            change = self.explaining @ self.x[which] - without * without[which]
            change += taken[:number].T @ taken[:number, which]
            change /= np.sqrt(max(float(free[which]), 1e-9))
            left += change * left[which] / np.sqrt(max(float(free[which]), 1e-9))
            free = free - change**2
            taken[number] = change
            falls[number] = total - float(((root * left)[there] ** 2).sum())
        return falls
