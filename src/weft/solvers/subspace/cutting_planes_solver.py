"""Cutting planes on hybrid data (the OCAS and BMRM family), in two round trips an iteration.

Every dual vector gives a cut R(w) ≥ o − b·w. The coordinator minimises λ/2 ‖w‖² + the maximum of
all cuts, a small QP in the cuts' weights, whose value is a lower bound on P*; the label holders
search the way from the best point to that minimum, and cut again at a guessed step on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.array_types import Flags, Floats
from weft.losses.compiled_sample_losses import has_formula
from weft.solvers.subspace.coordinator_coefficients_and_products import Subspace
from weft.solvers.subspace.lower_bound import Bounding
from weft.solvers.subspace.messages import Ascent
from weft.solvers.subspace.orthonormal_vector_basis import basis_of_newest, most_in_basis

#: Where losses are measured between the best point and the model's minimum …
_STEPS: Floats = np.concatenate(
    [[0.0], np.geomspace(1e-2, 1.0, 11), np.repeat([0.2, 0.35, 0.5, 0.75, 1.0], 4)]
)
#: … and how much that is stretched there, in gaps: a mixture of dual vectors that is not optimal
#: yet gives a w that is too short.
_STRETCH: Floats = np.concatenate([np.zeros(12), np.tile([0.25, 0.5, 1.0, 2.0], 5)])
#: The same where losses are measured on the way to other minima as well …
_FEWER_STEPS: Floats = np.concatenate(
    [[0.0], np.geomspace(1e-2, 1.0, 7), np.repeat([0.35, 0.6, 1.0], 4)]
)
_FEWER_STRETCH: Floats = np.concatenate([np.zeros(8), np.tile([0.25, 0.5, 1.0, 2.0], 3)])
#: … where, on each of these, in steps to its farthest cut.
_ASIDE: Floats = np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.0])
_LONGEST_STRETCH = 0.3
#: The next cut is made a little beyond the step that was best last time.
_BEYOND = 1.5
_FIRST_REACH = 0.5
#: Squares of samples of which all cells are zero count as this.
_SHORTEST = 1e-30
#: Iterations in which both kinds of dual vectors are made, whatever they are worth.
_TRIAL = 8
#: The gap falls well if it comes down to this share of itself in half as many iterations.
_SLOW = 0.75
#: Share of the mixtures below which a kind is left out.
_USED = 0.1


@dataclass(frozen=True)
class Places:
    """Where an iteration makes cuts.

    Attributes
    ----------
    steps
        On the way to the minimum of the model, in guessed steps.
    beside
        How much other minima hold on to the point, in λ, and in guessed steps where cuts are made
        on the way to each.
    idle
        Solves in a row without weight after which a cut is dropped.
    together
        Whether coordinate ascent goes through whole cohorts too, besides every sample alone.
    """

    steps: tuple[float, ...] = (1.0,)
    beside: tuple[tuple[float, tuple[float, ...]], ...] = ()
    idle: int = 12
    together: bool = False

    @property
    def farthest(self) -> list[int]:
        """The last point on the way to each other minimum."""
        ends: list[int] = np.cumsum([len(steps) for _, steps in self.beside]).tolist()
        return [end - 1 for end in ends]

    @property
    def count(self) -> int:
        """Of cuts."""
        return len(self.steps) + sum(len(steps) for _, steps in self.beside)


#: Where sums are dear.
ONE_CUT = Places()
#: Where round trips are dear. Cuts that are as near to each other as those of one way say much the
#: same; those on the way to minima that hold on to the point show other samples at their kinks.
EAGER = Places(
    steps=(1.0, 0.5, 2.0), beside=((1.0, (1.0, 2.0)), (10.0, (2.0,))), idle=40, together=True
)


class CuttingPlanes:
    """One iteration after the other; the cuts serve every λ.

    Two kinds of dual vectors are made: subgradients at a guessed step (*vertices*: kinks of the
    loss are on one side or the other) and steps of coordinate ascent. Few features and many samples
    live on the former, many features on the latter; a kind that the mixtures do not use is left
    out as long as the gap falls well without it.

    Parameters
    ----------
    places
        Where subgradients are taken: more of them take fewer iterations, and are more sums.
    """

    def __init__(self, subspace: Subspace, places: Places = ONE_CUT) -> None:
        self._subspace = subspace
        self._bounding = Bounding(subspace)
        self._reach = np.full(subspace.width, _FIRST_REACH)
        self._places = places
        #: Which cuts came from coordinate ascent.
        self._ascended: Flags = np.zeros(0, bool)
        self._coming = [False]
        self._gaps: list[float] = []

    def turn(self) -> None:
        """All vectors bound P* at another λ too."""
        self._bounding.solve()

    def step(self) -> None:
        """Complete the newest cuts, solve the small problem, search."""
        subspace = self._subspace
        weights = self._take()
        vertices, ascent = self._useful(weights[1:])
        guess = np.minimum(1.0, _BEYOND * self._reach)
        guesses = np.array(self._places.steps)[:, None] * guess
        asked = self._ascent(weights) if ascent else None
        beside = self._beside(guess) if vertices and self._places.beside else None
        towards, steps = self._steps(beside)
        primal = subspace.search(
            weights / subspace.lam,
            steps,
            guesses if vertices else guesses[:0],
            asked,
            beside=beside,
        )
        subspace.mixture = weights
        risen = 0 if asked is None else asked.count
        self._coming = [False] * (vertices * self._places.count) + [True] * risen
        best = primal.argmin(axis=0)
        subspace.move(best)
        self._reach = np.where(towards[best] > 0, towards[best], self._reach)
        self._drop()

    def _take(self) -> Floats:
        """Complete the cuts under way; returns the weights of the best mixture."""
        new = self._subspace.absorb()
        kinds = np.repeat(self._coming, self._subspace.groups) if new else np.zeros(0, bool)
        self._ascended = np.concatenate([self._ascended, kinds])
        return self._bounding.take(new)

    def inherit(self) -> None:
        """Take over α of HyFDCA, which came from coordinate ascent, as a cut."""
        self._take()
        self._subspace.inherit()
        self._coming = [True]
        self._take()

    def _ascent(self, weights: Floats) -> Ascent:
        """Coordinate ascent from the best mixture, through cohorts too where parties can."""
        subspace, exchange = self._subspace, self._subspace.exchange
        samples = exchange.holdings.n_samples
        per_square = subspace.lam * samples
        able = self._places.together and has_formula(exchange.settings.make_loss())
        return Ascent(
            weights=weights[1:],
            curvature=max(exchange.mean_square, _SHORTEST) / per_square,
            basis=basis_of_newest(subspace, most_in_basis(subspace.width, samples))
            / np.sqrt(per_square)
            if able
            else None,
        )

    def _beside(self, guess: Floats) -> Floats:
        """Points on the way to minima that hold on to the point (points × vectors × problems)."""
        here, points = self._subspace.point, []
        for stickiness, steps in self._places.beside:
            way = guess * (self._bounding.minimum_near(stickiness) - here)
            points += [here + step * way for step in steps]
        return np.stack(points)

    def _useful(self, weights: Floats) -> tuple[bool, bool]:
        """Whether vertices, and whether steps of ascent, have been worth their sums."""
        self._gaps.append(float(self._subspace.gaps.max()))
        if len(self._gaps) <= _TRIAL or self._gaps[-1] > _SLOW * self._gaps[-_TRIAL // 2]:
            return True, True
        total = weights.sum(axis=0)
        share = weights[self._ascended].sum(axis=0) / np.where(total > 0, total, 1.0)
        # Where round trips are dear, vertices bring the best point forward, if not the bound.
        vertices = bool(self._places.beside) or bool(share.min() < 1.0 - _USED)
        return vertices, bool(share.max() > _USED)

    def _steps(self, beside: Floats | None) -> tuple[Floats, Floats]:
        """Where losses are measured: how far on the way to the target (0: elsewhere), and shares
        of the point, the target and points beside (steps × points × problems)."""
        width, aside = self._subspace.width, [] if beside is None else self._places.farthest
        near, stretched = (_FEWER_STEPS, _FEWER_STRETCH) if aside else (_STEPS, _STRETCH)
        points = 2 if beside is None else 2 + len(beside)
        steps = np.zeros((len(near) + len(aside) * len(_ASIDE), points, width))
        steps[: len(near), 0] = 1.0 - near[:, None]
        stretch = 1.0 + stretched[:, None] * np.minimum(self._subspace.gaps, _LONGEST_STRETCH)
        steps[: len(near), 1] = near[:, None] * stretch
        for k, point in enumerate(aside):
            some = slice(len(near) + k * len(_ASIDE), len(near) + (k + 1) * len(_ASIDE))
            steps[some, 0], steps[some, 2 + point] = 1.0 - _ASIDE[:, None], _ASIDE[:, None]
        return np.concatenate([near, np.zeros(len(steps) - len(near))]), steps

    def _drop(self) -> None:
        """Forget cuts that no problem has used for long."""
        idle = self._bounding.idle
        # Groups of rows go together, as they came.
        idle = np.repeat(idle.reshape(-1, self._subspace.groups).min(axis=1), self._subspace.groups)
        if (idle >= self._places.idle).sum() >= max(8, len(idle) // 8):
            kept = np.flatnonzero(idle < self._places.idle)
            self._ascended = self._ascended[kept]
            self._subspace.drop(self._bounding.keep(kept))
