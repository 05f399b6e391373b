"""Newton's method with conjugate gradients in a trust region, in coefficients.

A product with the Hessian takes two round trips: l''·z of a direction at the label holders, whose
feature sum comes back as a vector. Everything else (Steihaug's method, lengths, the quadratic
model) needs inner products only, which the coordinator has.
"""

from __future__ import annotations

import numpy as np

from weft.array_types import Flags, Floats
from weft.solvers.subspace.coordinator_coefficients_and_products import Subspace
from weft.solvers.subspace.lbfgs_solver import (
    STEPS,
    inherit_and_search,
    search_along,
    take_step,
    worthwhile,
)
from weft.solvers.subspace.lower_bound import Bounding

#: Products with the Hessian for one direction, at most.
MOST_PRODUCTS = 30
#: Dual vectors that are kept for the lower bound.
_KEPT = 40


class NewtonCg:
    """One Newton step after the other, all problems side by side."""

    def __init__(self, subspace: Subspace) -> None:
        self._subspace = subspace
        self._bounding = Bounding(subspace)
        self._radius = np.full(subspace.width, np.inf)

    def turn(self) -> None:
        """All vectors bound P* at another λ too."""
        self._bounding.solve()

    def step(self) -> None:
        """Complete the gradient at the point, find a direction by products, search along it."""
        subspace = self._subspace
        mixture = self._bounding.take(subspace.absorb())
        newest = subspace.count - 1
        mixture = self._bounding.bracket(newest, mixture)
        gradient = subspace.shrunk(subspace.point) - subspace.unit(newest)
        direction = self._direction(gradient)
        direction = worthwhile(subspace, subspace.padded(gradient), direction)
        primal = search_along(subspace, direction)
        subspace.mixture = subspace.padded(mixture)
        length = np.sqrt(np.maximum(subspace.inner(direction, direction), 0.0))
        best = STEPS[primal.argmin(axis=0)]
        taken = take_step(subspace, primal)
        # As far as the losses went on falling, and twice that.
        self._radius = np.maximum(2.0 * best, 1e-3) * length
        self._radius[length == 0.0] = np.inf
        # Vectors from the Hessian serve one direction only.
        kept = self._bounding.keep_newest(_KEPT)
        if subspace.strained:
            subspace.refresh(kept)
            return
        if not taken:
            subspace.gather()
        subspace.drop(kept)

    def inherit(self) -> None:
        """Take over α of HyFDCA, and search the way to w of the best mixture with it."""
        inherit_and_search(self._subspace, self._bounding)

    def _direction(self, gradient: Floats) -> Floats:
        """Steihaug's conjugate gradients on ∇²P d = −∇P, until the residual is small."""
        subspace = self._subspace
        direction = np.zeros_like(gradient)
        residual = -gradient
        way = residual
        first = square = subspace.inner(residual, residual)
        # Problems that are as good as solved do not keep the others waiting.
        target = 0.1 * (subspace.exchange.settings.gap or 0.0)
        # Where λ leaves an intercept free, the bound may lag behind a point that is solved.
        known = np.where(np.isfinite(self._reference()), self._reference(), 0.0)
        going = (square > target * known) & (subspace.gaps > target)
        wanted = first * np.minimum(0.01, first / np.maximum(self._reference(), 1e-300))
        for _ in range(MOST_PRODUCTS):
            if not going.any():
                break
            scale = self._scale(way)
            subspace.bend(way * scale)
            subspace.absorb()
            direction, residual, way = (subspace.padded(x) for x in (direction, residual, way))
            product = subspace.unit(subspace.count - 1) / scale + subspace.shrunk(way)
            curved = subspace.inner(way, product)
            alpha = np.where(going & (curved > 0), square / np.where(curved > 0, curved, 1.0), 0.0)
            alpha, hit = self._within(direction, way, alpha)
            direction = direction + alpha * way
            residual = residual - alpha * product
            before, square = square, subspace.inner(residual, residual)
            going &= (square > wanted) & ~hit & (alpha > 0)
            way = residual + square / np.where(before > 0, before, 1.0) * way
        return direction

    def _reference(self) -> Floats:
        """‖∇P‖² where the relative gap is about one: P · 2λ."""
        return 2.0 * self._subspace.lam * np.maximum(self._subspace.primal, 0.0)

    def _scale(self, way: Floats) -> Floats:
        """A factor that keeps l''·z of the direction within what can be summed."""
        subspace, bounds = self._subspace, self._subspace.exchange.bounds
        length = np.sqrt(np.maximum(subspace.inner(way, way), 0.0))
        loss = subspace.exchange.settings.make_loss()
        # |l''·z| ≤ l'' ‖x‖ ‖way‖, and ‖x‖ is at most what bounds.v allows for.
        slope = bounds.alpha / 2 / bounds.weight
        steepest = bounds.weight * loss.curvature_below(slope, bounds.label)
        longest = steepest * bounds.v / (bounds.alpha / 2)
        return 0.5 * bounds.alpha / (longest * np.where(length > 0, length, 1.0))

    def _within(self, direction: Floats, way: Floats, alpha: Floats) -> tuple[Floats, Flags]:
        """Stop at the edge of the trust region."""
        subspace = self._subspace
        a, b = subspace.inner(way, way), subspace.inner(direction, way)
        c = subspace.inner(direction, direction)
        hit = c + alpha * (2 * b + alpha * a) > self._radius**2
        if not hit.any():
            return alpha, hit
        room = np.maximum(np.where(np.isfinite(self._radius), self._radius, 0.0) ** 2 - c, 0.0)
        edge = (-b + np.sqrt(np.maximum(b * b + a * room, 0.0))) / np.where(a > 0, a, 1.0)
        return np.where(hit, edge, alpha), hit
