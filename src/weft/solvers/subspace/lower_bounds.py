"""Lower bounds from dual vectors: the best of all their mixtures, for every problem."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.solvers.subspace.bundle_qp import Master
from weft.solvers.subspace.coefficients import Subspace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: A small problem is solved to this share of the gap that is left. It costs next to nothing, and
#: new vectors that would raise the bound by less than this would be overlooked.
_SHARE = 1e-6


class Bounding:
    """A small QP per problem over the dual vectors, whose value is a lower bound on P*.

    Also for smooth losses: D is concave, so that a mixture of dual vectors bounds P* at least as
    well as the best of them, and no round trip is spent on it.
    """

    def __init__(self, span: Subspace) -> None:
        self._span = span
        self.masters = [Master(span.groups) for _ in range(span.width)]
        #: Which vector of the span each cut is.
        self.vectors: Ints = np.zeros(0, np.int64)

    def take(self, new: int) -> Floats:
        """Add the newest vectors and solve; returns the weights (vectors × problems)."""
        span = self._span
        held = span.count - new
        fresh = np.arange(held, span.count)
        for p, master in enumerate(self.masters):
            if new:
                master.add(
                    span.gram[np.ix_(fresh, self.vectors)][:, :, p],
                    span.gram[held:, held:, p],
                    span.offsets[held:, p],
                    np.arange(new) % span.groups,
                )
        self.vectors = np.concatenate([self.vectors, fresh])
        return self.solve()

    def solve(self) -> Floats:
        """Weights of the best mixture; bounds of the span are raised."""
        span = self._span
        weights = np.zeros((span.count, span.width))
        primal, lam = span.primal, span.lam
        for p, master in enumerate(self.masters):
            left = primal[p] - span.dual[p]
            tolerance = _SHARE * left if np.isfinite(left) else 1e-6
            floor = 1e-13 * (abs(primal[p]) if np.isfinite(primal[p]) else 1.0)
            solution = master.solve(scale=1.0 / lam[p], tolerance=max(tolerance, floor))
            # The value is as good as the inner products that it was found with.
            doubt = span.doubt[p] * solution.mu.sum() ** 2 / lam[p]
            span.dual[p] = max(span.dual[p], solution.value - doubt)
            weights[self.vectors, p] = solution.mu
        return weights

    @property
    def idle(self) -> Ints:
        """For how many solves no problem has used each cut."""
        return np.asarray(np.min([master.idle for master in self.masters], axis=0))

    def keep(self, cuts: Ints) -> Ints:
        """Keep only some cuts; returns their vectors, which get new numbers from 1 on."""
        for master in self.masters:
            master.keep(cuts)
        kept = self.vectors[cuts]
        self.vectors = np.arange(1, len(cuts) + 1)
        return kept

    def keep_newest(self, count: int) -> Ints:
        """Keep the newest cuts only."""
        total = len(self.vectors)
        return self.keep(np.arange(max(0, total - count), total))
