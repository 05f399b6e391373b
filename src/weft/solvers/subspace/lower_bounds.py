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

    def __init__(self, subspace: Subspace) -> None:
        self._subspace = subspace
        self.masters = [Master(subspace.groups) for _ in range(subspace.width)]
        #: Which vector of the subspace each cut is.
        self.vectors: Ints = np.zeros(0, np.int64)

    def take(self, new: int) -> Floats:
        """Add the newest vectors and solve; returns the weights (vectors × problems)."""
        subspace = self._subspace
        held = subspace.count - new
        fresh = np.arange(held, subspace.count)
        for p, master in enumerate(self.masters):
            if new:
                master.add(
                    subspace.gram[np.ix_(fresh, self.vectors)][:, :, p],
                    subspace.gram[held:, held:, p],
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
        for p, master in enumerate(self.masters):
            left = primal[p] - subspace.dual[p]
            tolerance = _SHARE * left if np.isfinite(left) else 1e-6
            floor = 1e-13 * (abs(primal[p]) if np.isfinite(primal[p]) else 1.0)
            solution = master.solve(scale=1.0 / lam[p], tolerance=max(tolerance, floor))
            # The value is as good as the inner products that it was found with.
            doubt = subspace.doubt[p] * solution.mu.sum() ** 2 / lam[p]
            subspace.dual[p] = max(subspace.dual[p], solution.value - doubt)
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
