"""The best lower bound of P* that the dual vectors of a run give together."""

from __future__ import annotations

import numpy as np

from weft.array_types import Flags, Floats, Ints
from weft.solvers.subspace.bundle_qp import Master
from weft.solvers.subspace.free_intercept import HOLD, balanced
from weft.solvers.subspace.party_vectors import padded
from weft.solvers.subspace.subspace_algebra import FREE, Subspace

#: A small problem is solved to this share of the gap that is left. It costs next to nothing, and
#: new vectors that would raise the bound by less than this would be overlooked.
_SHARE = 1e-6


#: Cuts after which there shall be a bound.
_PATIENCE = 4
#: A cut on the other side of a free intercept lies this many times as far as where it is zero.
_BEYOND = 2.0
#: The relative gap that is wanted where none is set.
_WANTED = 1e-6


class Bounding:
    """A small QP per problem over the dual vectors, whose value is a lower bound on P*.

    Also for smooth losses: D is concave, so that a mixture of dual vectors bounds P* at least as
    well as the best of them, and no round trip is spent on it.
    """

    def __init__(self, subspace: Subspace) -> None:
        self._subspace = subspace
        self.masters = [Master(subspace.groups) for _ in range(subspace.width)]
        #: Which vector of the subspace each cut is.
        self.vectors: Ints = np.zeros(0, np.int64)
        #: Weights of the best mixture at this λ, where the intercept is free.
        self._best: Floats | None = None
        #: Curvature of the mean loss in a free intercept, as far as it is known.
        self._bends: Floats = np.full(subspace.width, np.nan)

    def take(self, new: int) -> Floats:
        """Add the newest vectors and solve; returns the weights (vectors × problems)."""
        subspace = self._subspace
        held = subspace.count - new
        fresh = np.arange(held, subspace.count)
        gram = subspace.gram
        if subspace.free:
            gram = gram + HOLD * subspace.intercepts[:, None] * subspace.intercepts[None]
        for p, master in enumerate(self.masters):
            if new:
                master.add(
                    gram[np.ix_(fresh, self.vectors)][:, :, p],
                    gram[held:, held:, p],
                    subspace.offsets[held:, p],
                    np.arange(new) % subspace.groups,
                )
        self.vectors = np.concatenate([self.vectors, fresh])
        return self.solve()

    def solve(self) -> Floats:
        """Weights of the best mixture; bounds of the subspace are raised."""
        subspace = self._subspace
        weights = np.zeros((subspace.count, subspace.width))
        primal, lam = subspace.primal, subspace.lam
        values, entries = np.zeros(subspace.width), np.zeros(subspace.width)
        for p, master in enumerate(self.masters):
            left = primal[p] - subspace.dual[p]
            tolerance = _SHARE * left if np.isfinite(left) else 1e-6
            floor = 1e-13 * (abs(primal[p]) if np.isfinite(primal[p]) else 1.0)
            tolerance = max(tolerance, floor)
            if subspace.free:
                cuts = subspace.intercepts[self.vectors, p], subspace.offsets[self.vectors, p]
                centre = float(subspace.intercept_of(subspace.point)[p])
                found = balanced(master, *cuts, float(lam[p]), centre, tolerance)
                mu, values[p], entries[p] = found
            else:
                solution = master.solve(scale=1.0 / lam[p], tolerance=tolerance)
                mu, values[p] = solution.mu, solution.value
            # The value is as good as the inner products that it was found with.
            values[p] -= subspace.doubt[p] * mu.sum() ** 2 / lam[p]
            weights[self.vectors, p] = mu
        if subspace.exchange.noise:
            squares = subspace.paid(weights, weights)
            values -= subspace.beyond(squares, weights) / lam
        if subspace.free:
            self._narrow(values, entries)
            values -= subspace.range.price(entries)
            weights = self._best_so_far(values, weights)
        subspace.dual = np.maximum(subspace.dual, values)
        return weights

    def _best_so_far(self, values: Floats, weights: Floats) -> Floats:
        """The mixtures that bound best: a new one may lack a cut on the side of its intercept."""
        before = self._best
        if before is not None:
            worse = values < self._subspace.dual
            weights = np.where(worse, padded(before, len(weights)), weights)
        self._best = weights
        return weights

    def _narrow(self, values: Floats, entries: Floats) -> None:
        """Where the best intercept can be, by all cuts and by a mixture of every problem."""
        subspace, cuts = self._subspace, self.vectors
        lengths = np.einsum("jjp->jp", subspace.gram)[cuts] + subspace.doubt
        bounds = subspace.offsets[cuts] - 0.5 * lengths / subspace.lam
        subspace.range.narrow(
            subspace.primal,
            np.vstack([subspace.intercepts[cuts], entries]),
            np.vstack([bounds, values]),
        )

    def bracket(self, newest: int, mixture: Floats) -> Floats:
        """Make cuts on the other side of a free intercept, where that is all that lacks.

        ``newest`` is the vector of the gradient at the point. Near the optimum its bound is as good
        as any, but for its entry at the intercept: a cut a little farther out in the intercept
        alone cancels that. The point stays; two round trips. Returns the best mixture after that.
        """
        subspace = self._subspace
        if not subspace.free:
            return mixture
        entries, lacking = subspace.intercepts[newest], self._lacks_intercept(newest)
        if not lacking.any():
            return mixture
        self._bends = np.where(np.isnan(self._bends), subspace.exchange.steepest, self._bends)
        step = np.where(lacking, _BEYOND * entries / self._bends, 0.0)
        target = subspace.point.copy()
        target[FREE] += step
        stay_or_go = np.repeat(np.eye(2)[:, :, None], subspace.width, axis=2)
        subspace.search(target, stay_or_go, np.ones((1, subspace.width)))
        mixture = self.take(subspace.absorb())
        # By how much the entry has changed tells how far the next one has to be.
        bend = (entries - subspace.intercepts[-1]) / np.where(lacking, step, 1.0)
        self._bends = np.where(lacking & (bend > 0), bend, self._bends)
        return mixture

    def _lacks_intercept(self, newest: int) -> Flags:
        """Whether a problem would be solved, if the entry of its gradient at the intercept were 0.

        P − D at the intercept of the point is ‖∇P‖²/2λ over the other weights. Also whether there
        is no bound at all after some cuts, since all their entries have one sign.
        """
        subspace = self._subspace
        primal, entries = subspace.primal, subspace.intercepts[newest]
        dual = subspace.offsets[newest] - 0.5 * subspace.gram[newest, newest] / subspace.lam
        dual = dual - entries * subspace.intercept_of(subspace.point)
        wanted = (subspace.exchange.settings.gap or _WANTED) * np.abs(primal)
        unproved = primal - subspace.dual > wanted
        solved = primal - dual <= wanted
        if len(self.vectors) >= _PATIENCE:
            every = subspace.intercepts[self.vectors]
            solved |= (every >= 0.0).all(axis=0) | (every <= 0.0).all(axis=0)
        lacking: Flags = solved & unproved & (entries != 0.0)
        return lacking

    @property
    def idle(self) -> Ints:
        """For how many solves no problem has used each cut."""
        return np.asarray(np.min([master.idle for master in self.masters], axis=0))

    def keep(self, cuts: Ints) -> Ints:
        """Keep only some cuts; returns the vectors to keep: theirs get the last numbers of all."""
        for master in self.masters:
            master.keep(cuts)
        # Its vectors may be among those that go.
        self._best = None
        kept = self.vectors[cuts]
        first = 1
        if self._subspace.free:
            kept, first = np.concatenate([[FREE], kept]), FREE + 1
        self.vectors = np.arange(first, first + len(cuts))
        return kept

    def keep_newest(self, count: int) -> Ints:
        """Keep the newest cuts only."""
        total = len(self.vectors)
        return self.keep(np.arange(max(0, total - count), total))
