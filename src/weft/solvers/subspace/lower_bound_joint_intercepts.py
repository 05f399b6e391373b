"""Bounds of P* and free intercepts where all classes have one loss.

Every class has an intercept, and a dual vector an entry s_k for each: P(w, β) ≥ D − Σ_k s_k β_k.
So all of them must cancel in a mixture. Cuts at intercepts a little beside those of the point, one
class at a time, make that possible: their entries point into all directions, and their differences
tell the curvature there, by which another cut is made where entries are about zero.

What rounding leaves is paid for with how far apart the best intercepts can be. Softmax does not
change when all of them do by the same: so the largest may be taken for zero. A class k whose
samples weigh a share π_k has at the optimum a loss of no more than P in total, and none of its
samples one below the distance of its score from the largest. With the longest row r and
‖w‖² ≤ 2P/λ, and c the value of the constant column,

    c (max_j β_j − β_k)  ≤  P/π_k + √2 r √(2P/λ).

An entry s_k of a dual vector is no more than c π_k and no less than −c times the largest weight,
which tells enough of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.array_types import Floats, Ints
from weft.solvers.subspace.class_fold_problems import Problems
from weft.solvers.subspace.lower_bound_free_intercept import DOUBT, Mixture
from weft.sums.largest_possible_sums import Bounds

#: Classes beside whose intercept there is a cut in one iteration.
_BESIDE = 2
#: How far beside, at most.
_FARTHEST = 1.0


class JointInterceptRange:
    """How far below the largest intercept those of the classes can be at the optimum.

    Attributes
    ----------
    low
        No intercept is less, per column; minus infinity where nothing is known.
    """

    def __init__(self, problems: Problems, bounds: Bounds) -> None:
        self._problems, self._bounds = problems, bounds
        #: c π_k is no less than that, and c no less than that.
        self._shares: Floats = np.zeros(problems.width)
        self._constant: Floats = np.zeros(problems.count)
        self.low: Floats = np.full(problems.width, -np.inf)

    def narrow(self, primal: Floats, entries: Floats, lam: Floats) -> None:
        """Learn from P at a point, and from entries of dual vectors (vectors × columns)."""
        if not len(entries):
            return
        every, limits = self._problems.by_class(np.abs(entries)), self._bounds
        self._shares = np.maximum(self._shares, entries.max(axis=0))
        self._constant = np.maximum(self._constant, every.max(axis=(0, 2)) / limits.weight)
        constant = self._problems.spread(self._constant)
        best = primal * (1.0 + DOUBT)
        # ‖x‖ is at most what sums of dual vectors leave room for.
        row = limits.v / (limits.alpha / 2)
        known = (self._shares > 0.0) & np.isfinite(best)
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = best / self._shares + row * np.sqrt(4.0 * best / lam) / constant
        self.low = np.maximum(self.low, np.where(known, -reach, -np.inf))

    def price(self, entry: Floats) -> Floats:
        """What a bound loses at most for entries that are not zero; infinite: it bounds nothing."""
        below = np.minimum(entry, 0.0)
        lost = np.where(below == 0.0, 0.0, below * np.where(below == 0.0, 0.0, self.low))
        return self._problems.spread(self._problems.summed(lost))


def best_mixture(
    starts: Sequence[Floats],
    entries: Floats,
    slacks: Floats,
    value: Callable[[Floats], float],
    price: Callable[[Floats], float],
) -> Mixture:
    """The best bound that some mixtures give when the entries of each are made to cancel.

    Parameters
    ----------
    starts
        Weights of dual vectors.
    entries
        (dual vectors × classes).
    slacks
        By how much each vector's D, at the intercepts of the point, is below P.
    value, price
        D of weights at intercepts of zero, and what it loses for entries that are left.
    """
    found = []
    for mu in starts:
        for some in (mu, cancelled(mu, entries, slacks)):
            entry = some @ entries
            found.append((value(some) - price(entry), Mixture(some, value(some), entry)))
    return max(found, key=lambda one: one[0])[1]


def cancelled(mu: Floats, entries: Floats, slacks: Floats) -> Floats:
    """Weights with a little of other vectors added, so that entries cancel, if any can do that.

    The less a vector's D is below P, the more of it is taken.
    """
    # Loaded when it is needed: all of scipy.optimize, which other problems do without.
    from scipy.optimize import nnls

    little = nnls((entries / slacks[:, None]).T, -(mu @ entries))[0] / slacks
    whole = mu + little
    return np.asarray(whole / max(1.0, float(whole.sum())))


class CutsBesideClasses:
    """Where to make cuts beside the intercepts of a point, in one problem.

    Attributes
    ----------
    shift
        From the intercepts of the point to a target.
    guesses
        Shares of that way at which there are cuts, a row for each: one where entries are about
        zero, and some beside the intercept of a single class.
    """

    def __init__(self, classes: int, weight: float) -> None:
        #: Curvature in the intercepts; at first that of equal probabilities.
        self._known: Floats = weight / classes * (np.eye(classes) - 1.0 / classes)
        self._next = 0
        self.shift: Floats = np.zeros(classes)
        self.guesses: Floats = np.zeros((1 + _BESIDE, classes))

    def choose(self, entries: Floats, slack: float) -> None:
        """Choose cuts that lose about as much as the point does."""
        count = len(entries)
        curved = np.maximum(np.diag(self._known), 1e-12)
        self.shift = np.minimum(np.sqrt(2.0 * slack / curved), _FARTHEST)
        to_zero = np.linalg.lstsq(self._known, entries)[0]
        self.guesses = np.zeros((1 + _BESIDE, count))
        self.guesses[0] = to_zero / self.shift
        beside: Ints = (self._next + np.arange(_BESIDE)) % count
        self.guesses[1 + np.arange(_BESIDE), beside] = 1.0
        self._next = (self._next + _BESIDE) % count

    def learn(self, before: Floats, after: Floats) -> None:
        """Take in the entries of the point and of the cuts, by the BFGS formula."""
        for guess, entries in zip(self.guesses, after, strict=True):
            step, change = guess * self.shift, before - entries
            made, curved = self._known @ step, float(step @ change)
            if curved > 0.0 and step @ made > 0.0:
                self._known = (
                    self._known
                    - np.outer(made, made) / (step @ made)
                    + np.outer(change, change) / curved
                )
