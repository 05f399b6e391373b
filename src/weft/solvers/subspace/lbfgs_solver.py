"""L-BFGS in coefficients: the parties hold gradients, the coordinator the quasi-Newton algebra.

The full step is guessed to be right, and the gradient there asked for together with the losses
along the way: two round trips an iteration, three where the guess was wrong.
"""

from __future__ import annotations

import numpy as np

from weft.array_types import Floats
from weft.solvers.subspace.coordinator_coefficients_and_products import Subspace
from weft.solvers.subspace.lower_bound import Bounding

#: Steps measured along a direction: the full one, which is also the guess, shorter and longer.
STEPS: Floats = np.concatenate(
    [[0.0], np.geomspace(1e-6, 0.7, 21), [1.0], np.geomspace(1.4, 16.0, 9)]
)
_FULL = 22
#: Pairs of steps and changes of the gradient that a direction comes from.
_MEMORY = 40
#: Fewer are not given up for the sake of rounding.
_LEAST_PAIRS = 12
#: The full step will do where it brings this share of what the best one brings.
_ENOUGH = 0.5
#: Share of P below which a change of it means nothing.
_ROUNDING = 1e-12
#: Vectors at which the older ones are dropped.
_MOST_VECTORS = 160


class Lbfgs:
    """One iteration after the other, all problems side by side."""

    def __init__(self, subspace: Subspace) -> None:
        self._subspace = subspace
        self._bounding = Bounding(subspace)
        #: Steps, and the vectors whose difference is the change of the gradient but for λ·step.
        self._pairs: list[tuple[Floats, Floats]] = []
        self._before: tuple[Floats, Floats] | None = None

    def turn(self) -> None:
        """All vectors bound P* at another λ too."""
        self._bounding.solve()

    def step(self) -> None:
        """Complete the gradient at the point, find a direction, search along it."""
        subspace = self._subspace
        mixture = self._bounding.take(subspace.absorb())
        at = subspace.count - 1
        mixture = self._bounding.bracket(at, mixture)
        newest = subspace.unit(at)
        self._remember(newest)
        gradient = subspace.shrunk(subspace.point) - newest
        direction = worthwhile(subspace, gradient, self._direction(gradient))
        primal = search_along(subspace, direction)
        subspace.mixture = mixture
        taken = take_step(subspace, primal)
        strained = len(self._pairs) >= _LEAST_PAIRS and subspace.strained
        if strained or subspace.count >= _MOST_VECTORS:
            self._restart()
        elif not taken:
            subspace.gather()

    def inherit(self) -> None:
        """Take over α of HyFDCA, and search the way to w of the best mixture with it."""
        inherit_and_search(self._subspace, self._bounding)

    def _remember(self, newest: Floats) -> None:
        """The last step, and how the gradient's part from the losses changed."""
        subspace = self._subspace
        if self._before is not None:
            point, vector = (subspace.padded(part) for part in self._before)
            self._pairs.append((subspace.point - point, vector - newest))
            del self._pairs[:-_MEMORY]
        self._before = (subspace.point, newest)

    def _direction(self, gradient: Floats) -> Floats:
        """−H∇P by the two-loop recursion (Nocedal), per problem."""
        subspace = self._subspace
        q, stack = gradient, []
        for step, change in reversed(self._pairs):
            s = subspace.padded(step)
            y = subspace.padded(change) + subspace.shrunk(s)
            curved = subspace.inner(s, y)
            # λ > 0 makes sᵀy positive unless the problem did not move at all.
            rho = np.where(curved > 0, 1.0 / np.where(curved > 0, curved, 1.0), 0.0)
            a = rho * subspace.inner(s, q)
            q = q - a * y
            stack.append((s, y, rho, a))
        if stack:
            s, y, rho, _ = stack[0]
            longest = subspace.inner(y, y)
            q = q * np.where(
                rho > 0, subspace.inner(s, y) / np.where(longest > 0, longest, 1.0), 1.0
            )
        else:
            q = q / (subspace.lam + subspace.exchange.steepest)
        for s, y, rho, a in reversed(stack):
            q = q + (a - rho * subspace.inner(y, q)) * s
        return -q

    def _restart(self) -> None:
        """Go on from the point as it is measured, with the newest dual vectors only."""
        self._pairs.clear()
        self._before = None
        self._subspace.refresh(self._bounding.keep_newest(_MOST_VECTORS // 4))


def worthwhile(subspace: Subspace, gradient: Floats, direction: Floats) -> Floats:
    """The direction, but zero for problems that it promises nothing but rounding.

    Differences of points and gradients are noise there, and what is made of them has any length.
    """
    known = np.where(np.isfinite(subspace.primal), np.abs(subspace.primal), 0.0)
    return np.where(-subspace.inner(gradient, direction) > _ROUNDING * known, direction, 0.0)


def search_along(subspace: Subspace, direction: Floats) -> Floats:
    """P at all steps along a direction; the dual vector at the full one is then under way."""
    shares = np.stack([1.0 - STEPS, STEPS], axis=1)
    steps = np.repeat(shares[:, :, None], subspace.width, axis=2)
    return subspace.search(subspace.point + direction, steps, np.ones((1, subspace.width)))


def take_step(subspace: Subspace, primal: Floats) -> bool:
    """Take the full step where it is good enough for all problems, else each its best one.

    Returns whether the full step was taken: its dual vector is under way then.
    """
    best = primal.argmin(axis=0)
    gain = primal[0] - primal.min(axis=0)
    noise = _ROUNDING * np.abs(primal[0])
    fine = primal[0] - primal[_FULL] >= _ENOUGH * gain - noise
    if fine.all():
        subspace.move(np.full(subspace.width, _FULL))
        return True
    subspace.move(best)
    return False


def inherit_and_search(subspace: Subspace, bounding: Bounding) -> None:
    """Take α of HyFDCA among the dual vectors; the one at the best point is then under way."""
    bounding.take(subspace.absorb())
    subspace.inherit()
    mixture = bounding.take(subspace.absorb())
    primal = search_along(subspace, mixture / subspace.lam - subspace.point)
    subspace.mixture = mixture
    if not take_step(subspace, primal):
        subspace.gather()
