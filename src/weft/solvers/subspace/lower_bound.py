"""The best lower bound of P* that the dual vectors of a run give together."""

from __future__ import annotations

import numpy as np

from weft.array_types import Flags, Floats, Ints
from weft.solvers.subspace.bundle_qp import Master
from weft.solvers.subspace.coordinator_coefficients_and_products import FREE, Subspace
from weft.solvers.subspace.lower_bound_free_intercept import HOLD, InterceptRange, Mixture, balanced
from weft.solvers.subspace.lower_bound_joint_intercepts import (
    CutsBesideClasses,
    JointInterceptRange,
    best_mixture,
)
from weft.solvers.subspace.vectors_kept_by_party import padded

#: A small problem is solved to this share of the gap that is left. It costs next to nothing, and
#: new vectors that would raise the bound by less than this would be overlooked.
_SHARE = 1e-6


#: Cuts after which there shall be a bound.
_PATIENCE = 4
#: A cut on the other side of a free intercept lies this many times as far as where it is zero.
_BEYOND = 2.0
#: Times the gap that is wanted at which cuts beside the intercepts of several classes begin.
_EARLY = 30.0
#: Share of that gap that cuts beside the intercepts lose at least.
_LEAST_SLACK = 0.1
#: Newest cuts from which mixtures of a joint loss are made, beside the best one.
_NEWEST = 4
#: The relative gap that is wanted where none is set.
_WANTED = 1e-6


class Bounding:
    """A small QP per problem over the dual vectors, whose value is a lower bound on P*.

    Also for smooth losses: D is concave, so that a mixture of dual vectors bounds P* at least as
    well as the best of them, and no round trip is spent on it.
    """

    def __init__(self, subspace: Subspace) -> None:
        self._subspace = subspace
        self._columns = subspace.exchange.problems.columns
        self.masters = [Master(subspace.groups) for _ in self._columns]
        #: Which vector of the subspace each cut is.
        self.vectors: Ints = np.zeros(0, np.int64)
        #: Weights of the best mixture at this λ, where the intercept is free.
        self._best: Floats | None = None
        #: Curvature of the mean loss in a free intercept, as far as it is known.
        self._bends: Floats = np.full(subspace.width, np.nan)
        #: Whether all classes have one loss, and cuts beside their intercepts, per problem.
        self._joint = subspace.exchange.problems.joint
        self._beside: list[CutsBesideClasses] = []

    def take(self, new: int) -> Floats:
        """Add the newest vectors and solve; returns the weights (vectors × problems)."""
        subspace = self._subspace
        held = subspace.count - new
        fresh = np.arange(held, subspace.count)
        gram = subspace.gram
        if subspace.free:
            held_back = subspace.intercepts[:, None] * subspace.intercepts[None]
            gram = gram + HOLD * subspace.joined(held_back)
        for columns, master in zip(self._columns, self.masters, strict=True):
            p = columns.start
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
        self._learn_range()
        for columns, master in zip(self._columns, self.masters, strict=True):
            p = columns.start
            left = primal[p] - subspace.dual[p]
            tolerance = _SHARE * left if np.isfinite(left) else 1e-6
            floor = 1e-13 * (abs(primal[p]) if np.isfinite(primal[p]) else 1.0)
            tolerance = max(tolerance, floor)
            if subspace.free:
                cuts = subspace.intercepts[self.vectors, columns], subspace.offsets[self.vectors, p]
                centre = subspace.intercept_of(subspace.point)[columns]
                found = balanced(master, *cuts, float(lam[p]), centre, tolerance)
                if self._joint and len(self.vectors):
                    found = self._of_classes(columns, found.mu)
                mu, values[columns], entries[columns] = found
            else:
                solution = master.solve(scale=1.0 / lam[p], tolerance=tolerance)
                mu, values[columns] = solution.mu, solution.value
            # The value is as good as the inner products that it was found with.
            values[columns] -= subspace.doubt[p] * mu.sum() ** 2 / lam[p]
            weights[self.vectors, columns] = mu[:, None]
        if subspace.exchange.noise:
            squares = subspace.paid(weights, weights)
            values -= subspace.beyond(squares, weights) / lam
        if subspace.free:
            if not self._joint:
                self._narrow(values, entries)
            values -= subspace.range.price(entries)
            weights = self._best_so_far(values, weights)
        subspace.dual = np.maximum(subspace.dual, values)
        return weights

    def minimum_near(self, stickiness: float) -> Floats:
        """The minimum of λ/2 ‖w‖², the highest cut, and a term that holds on to the point.

        That is λ/2 times ``stickiness`` times ‖w − point‖². Returns coefficients of vectors.
        """
        subspace, cuts = self._subspace, self.vectors
        share = stickiness / (1.0 + stickiness)
        found = share * subspace.point
        for columns, master in zip(self._columns, self.masters, strict=True):
            p = columns.start
            held, left = (1.0 + stickiness) * subspace.lam[p], subspace.primal[p] - subspace.dual[p]
            heights = subspace.offsets[cuts, p] - share * (
                subspace.gram[cuts, :, p] @ subspace.point[:, p]
            )
            tolerance = _SHARE * left if np.isfinite(left) else _SHARE
            mu = master.solve_aside(heights, tolerance=max(tolerance, 0.0), scale=1.0 / held)
            found[cuts, columns] += mu[:, None] / held
        return found

    def _learn_range(self) -> None:
        """How far apart the best intercepts of classes can be, by entries of all cuts."""
        subspace = self._subspace
        if subspace.free and isinstance(subspace.range, JointInterceptRange):
            cuts = subspace.intercepts[self.vectors]
            subspace.range.narrow(subspace.primal, cuts, subspace.lam)

    def _of_classes(self, columns: slice, mixed: Floats) -> Mixture:
        """The best mixture of a joint loss: from one that is given, and from the newest cuts."""
        subspace, cuts, p = self._subspace, self.vectors, columns.start
        entries, offsets = subspace.intercepts[cuts, columns], subspace.offsets[cuts, p]
        gram, lam = subspace.gram[np.ix_(cuts, cuts)][:, :, p], float(subspace.lam[p])
        heights = offsets - 0.5 * np.diag(gram) / lam
        slacks = (
            subspace.primal[p] - heights + entries @ subspace.intercept_of(subspace.point)[columns]
        )
        least = _SHARE * (abs(subspace.primal[p]) if np.isfinite(subspace.primal[p]) else 1.0)
        slacks = np.maximum(np.where(np.isfinite(slacks), slacks, 1.0), least)

        def price(entry: Floats) -> float:
            every = np.zeros(subspace.width)
            every[columns] = entry
            return float(subspace.range.price(every)[p])

        newest = list(np.eye(len(cuts))[-_NEWEST:])
        return best_mixture(
            [mixed, *newest],
            entries,
            slacks,
            lambda mu: float(offsets @ mu - 0.5 * (mu @ gram @ mu) / lam),
            price,
        )

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
        subspace, cuts, ranged = self._subspace, self.vectors, self._subspace.range
        assert isinstance(ranged, InterceptRange)
        lengths = np.einsum("jjp->jp", subspace.gram)[cuts] + subspace.doubt
        bounds = subspace.offsets[cuts] - 0.5 * lengths / subspace.lam
        ranged.narrow(
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
        if self._joint:
            return self._cut_beside_classes(newest)
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

    def _cut_beside_classes(self, newest: int) -> Floats:
        """Several cuts at once, beside the intercepts of all classes of a joint loss."""
        subspace, weight = self._subspace, self._subspace.exchange.bounds.weight
        if not self._beside:
            self._beside = [CutsBesideClasses(c.stop - c.start, weight) for c in self._columns]
        entries, target = subspace.intercepts[newest], subspace.point.copy()
        slack = np.maximum(self._slack(newest), _LEAST_SLACK * self._wanted)
        for beside, columns in zip(self._beside, self._columns, strict=True):
            beside.choose(entries[columns], float(slack[columns.start]))
            target[FREE, columns] += beside.shift
        stay_or_go = np.repeat(np.eye(2)[:, :, None], subspace.width, axis=2)
        guesses = np.hstack([beside.guesses for beside in self._beside])
        subspace.search(target, stay_or_go, guesses)
        mixture = self.take(new := subspace.absorb())
        for beside, columns in zip(self._beside, self._columns, strict=True):
            beside.learn(entries[columns], subspace.intercepts[-new:, columns])
        return mixture

    @property
    def _wanted(self) -> Floats:
        """The gap that is wanted, not as a share."""
        subspace = self._subspace
        wanted: Floats = (subspace.exchange.settings.gap or _WANTED) * np.abs(subspace.primal)
        return wanted

    def _slack(self, newest: int) -> Floats:
        """P − D at the intercepts of the point: ‖∇P‖²/2λ over the other weights."""
        subspace = self._subspace
        dual = subspace.offsets[newest] - 0.5 * subspace.gram[newest, newest] / subspace.lam
        at_point: Floats = subspace.intercepts[newest] * subspace.intercept_of(subspace.point)
        slack: Floats = subspace.primal - dual + subspace.joined(at_point)
        return slack

    def _lacks_intercept(self, newest: int) -> Flags:
        """Whether a problem would be solved, if the entry of its gradient at the intercept were 0.

        Also whether there is no bound at all after some cuts, since all their entries have one
        sign; of several classes, before it is solved, since they take several iterations.
        """
        subspace = self._subspace
        primal, entries = subspace.primal, subspace.intercepts[newest]
        unproved = primal - subspace.dual > self._wanted
        solved = self._slack(newest) <= (_EARLY if self._joint else 1.0) * self._wanted
        if len(self.vectors) >= _PATIENCE:
            every = subspace.intercepts[self.vectors]
            one_sided = (every >= 0.0).all(axis=0) | (every <= 0.0).all(axis=0)
            solved |= subspace.dual <= 0.0 if self._joint else one_sided
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
        """Keep the newest cuts, and those that the best mixture with a free intercept is of."""
        kept = np.zeros(len(self.vectors), bool)
        kept[-count:] = True
        if self._best is not None:
            kept |= padded(self._best, self._subspace.count)[self.vectors].any(axis=1)
        return self.keep(np.flatnonzero(kept))
