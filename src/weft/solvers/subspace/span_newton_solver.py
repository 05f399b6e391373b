"""Newton's method in the span of all vectors, for parties that come and go.

Where every phase waits for the last party, phases are dear and arithmetic is not. Minimising over
the span of all vectors so far takes a third to two thirds of the iterations of L-BFGS. That needs
the Hessian there: second moments of the Z's, weighed by l'', which label holders tell together with
the losses, at the step that is guessed. Only along the newest vector, whose Z they do not have when
they are asked, curvature is guessed: from the last step, and from the vector before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.array_types import Floats, Ints
from weft.solvers.subspace.coordinator_coefficients_and_products import Subspace
from weft.solvers.subspace.lbfgs_solver import STEPS, inherit_and_search
from weft.solvers.subspace.lower_bound import Bounding
from weft.solvers.subspace.rounding_allowed_by_gap import FINEST

#: Further vectors of every iteration: slopes at so many times the scores. They widen the span at no
#: further round trip; near the optimum, slopes at other steps would be nearly the same.
_STRETCHED: Floats = np.array([2.0, 4.0])
#: Iterations after which the oldest vectors are dropped again, when the span is full.
_BETWEEN_DROPS = 3
#: The place of the guessed step in the table of losses.
_GUESS = 1
#: The guess will do where it brings this share of what the best step brings.
_ENOUGH = 0.9
#: Steps from which on the next guess is the full one; shorter guesses double the best step.
_LONG, _DOUBLE, _SHORTEST = 0.5, 2.0, 1e-3
#: A guess where no step was any good is this share of the last one.
_BACK = 0.25
#: Share of the largest curvature, in units of every vector, below which there is none.
_FLAT = 1e-11
#: Curvature of a new direction over the least that goes with the last step.
_CONVEX = 1.2
#: What part of the moments that were known before goes on where they are told again, of losses with
#: a kink: parties tell them unsteadily, otherwise in every search, which few samples next to the
#: kink even out less than all of them. A mean of several searches is nearer to the Hessian.
_REMEMBERED = 0.4
#: Share of P below which a change of it means nothing.
_ROUNDING = 1e-12
#: What share of the gap a kink that is rounded off may cost, and of the gap that is wanted; and
#: the least share of its width that is left after one iteration.
_LOST, _LOST_AT_LAST, _SHARPEST = 0.1, 0.2, 0.25


@dataclass
class Curvature:
    """What is known of the Hessian of the mean loss, in coefficients.

    Attributes
    ----------
    known
        Vectors between which second moments are known.
    moments
        Those (known × known × problems).
    across
        Curvature along what is new in a vector, per problem.
    """

    known: Ints
    moments: Floats
    across: Floats


class SpanNewton:
    """One iteration after the other, all problems side by side."""

    def __init__(self, subspace: Subspace) -> None:
        width = subspace.width
        self._subspace = subspace
        self._bounding = Bounding(subspace)
        self._curvature: Curvature | None = None
        #: Where the newest gradient was taken; None: at the point.
        self._at: Floats | None = None
        #: From where the last guess was to where, if both gradients are there.
        self._between: Floats | None = None
        self._reach = np.ones(width)
        #: 1/N Σ l at the last guess.
        self._guessed: Floats = np.full(width, np.inf)
        if not subspace.exchange.settings.make_loss().smooth:
            # So far is every sample from its kink at w = 0.
            subspace.exchange.rounding = np.full(width, subspace.exchange.bounds.label)

    def turn(self) -> None:
        """All vectors bound P* at another λ too."""
        self._bounding.solve()

    def step(self) -> None:
        """Complete the gradient at the guess, minimise in the span, search the way there."""
        subspace = self._subspace
        new = subspace.absorb()
        # The gradient comes before those of stretched scores.
        newest = subspace.count - new
        mixture = self._bounding.take(new)
        mixture = self._bounding.bracket(newest, mixture)
        self._sharpen(newest)
        at = subspace.point if self._at is None else subspace.padded(self._at)
        direction = self._direction(newest, at)
        steps = self._steps()
        primal = subspace.search(
            subspace.point + direction,
            steps,
            self._reach[None, :],
            stretched=np.repeat(_STRETCHED[:, None], subspace.width, axis=1),
            moments=True,
        )
        subspace.mixture = mixture
        there = subspace.point + self._reach * direction
        self._guessed = subspace.risks[_GUESS]
        self._learn(newest)
        self._between, self._at = there - at, there
        self._move(primal, steps)
        if subspace.strained:
            self._restart()
        elif subspace.count + self._coming > subspace.exchange.most_directions:
            self._drop()

    def inherit(self) -> None:
        """Take over α of HyFDCA, and search the way to w of the best mixture with it."""
        inherit_and_search(self._subspace, self._bounding)
        self._at = self._between = None

    # ── a kink that is rounded off ────────────────────────────────────────────────────────

    def _sharpen(self, newest: int) -> None:
        """Round the kink off over less, as the gap falls.

        By how much the cut at the guess lies below the losses there is what rounding costs, about
        the square of the width times the samples next to the kink.
        """
        subspace, exchange = self._subspace, self._subspace.exchange
        if exchange.rounding is None or self._at is None:
            return
        at, vector = subspace.padded(self._at), subspace.unit(newest)
        lost = self._guessed - (subspace.offsets[newest] - subspace.inner(vector, at))
        primal = np.abs(subspace.primal)
        wanted = (exchange.settings.gap or FINEST) * primal
        left = np.where(np.isfinite(subspace.dual), primal - subspace.dual, primal)
        bearable = np.maximum(_LOST * left, _LOST_AT_LAST * wanted)
        less = np.sqrt(bearable / np.maximum(lost, _ROUNDING * primal))
        sharper = exchange.rounding * np.clip(less, _SHARPEST, 1.0)
        # Rounding costs 0.28 of its width at most, |t|σ(−|t|/g) in a sample: what is lost beyond
        # that, by vectors that guards held back, comes back at no width.
        exchange.rounding = np.minimum(exchange.rounding, np.maximum(sharper, bearable))

    # ── directions ────────────────────────────────────────────────────────────────────────

    def _direction(self, newest: int, at: Floats) -> Floats:
        """The way to the minimum of a quadratic model in the span, per problem."""
        subspace = self._subspace
        away = subspace.point - at
        direction = np.zeros_like(subspace.point)
        for p in range(subspace.width):
            paid = subspace.gram[:, :, p]
            every = self._every(p)
            hessian = self._bent(p, newest, every) + subspace.lam[p] * paid
            slope = subspace.lam[p] * paid @ at[:, p] - every[:, newest] + hessian @ away[:, p]
            way = -_solved(hessian, slope)
            known = abs(subspace.primal[p]) if np.isfinite(subspace.primal[p]) else 0.0
            if -slope @ way > _ROUNDING * known:
                direction[:, p] = way
        return direction

    def _every(self, problem: int) -> Floats:
        """Inner products of all vectors over all columns, a free intercept's too."""
        entries = self._subspace.intercepts[:, problem]
        total: Floats = self._subspace.gram[:, :, problem] + np.outer(entries, entries)
        return total

    def _bent(self, problem: int, newest: int, every: Floats) -> Floats:
        """Second moments of all vectors: those known, and a guess for the others.

        What is new in a vector, orthogonal to the known ones, is guessed to have the curvature
        that the last such part had. How it goes with the known ones tells the last step: the
        gradient changed by what the Hessian made of it, of which the new part is seen.
        """
        held = self._curvature
        if held is None:
            return self._subspace.exchange.steepest * every
        known, moments = held.known, held.moments[:, :, problem]
        others = np.setdiff1d(np.arange(len(every)), known)
        basis = _basis(every, known, others)
        new = basis[:, others].T @ every @ basis[:, others]
        corner = held.across[problem] * new
        cross = np.zeros((len(known), len(others)))
        if self._between is not None:
            taken = self._subspace.padded(self._between)[known, problem]
            made = moments @ taken
            bend = taken @ made
            part = basis[:, others].T @ every[:, newest]
            if bend > 0:
                cross = -np.outer(made, part) / bend
                corner = _convex(corner, part, bend)
        whole = np.zeros_like(every)
        whole[np.ix_(known, known)] = moments
        whole[np.ix_(known, others)], whole[np.ix_(others, known)] = cross, cross.T
        whole[np.ix_(others, others)] = corner
        back = np.linalg.inv(basis)
        bent: Floats = back.T @ whole @ back
        return bent

    def _learn(self, newest: int) -> None:
        """Second moments as they were told and are remembered, and how curved the newest vector's
        new part was."""
        subspace, before = self._subspace, self._curvature
        told = subspace.exchange.moments
        assert told is not None
        kinked = subspace.exchange.rounding is not None
        moments = _remembered(told, before) if kinked and before is not None else told
        across = np.full(subspace.width, subspace.exchange.steepest)
        for p in range(subspace.width):
            every = self._every(p)
            known = np.zeros(0, np.int64) if before is None else before.known
            new = _basis(every, known, np.array([newest]))[:, newest]
            length = new @ every @ new
            if length > _FLAT * every[newest, newest]:
                across[p] = new @ moments[:, :, p] @ new / length
            elif before is not None:
                across[p] = before.across[p]
        self._curvature = Curvature(np.arange(subspace.count), moments, across)

    @property
    def _coming(self) -> int:
        """Vectors of an iteration, at most."""
        return 1 + len(_STRETCHED) + self._subspace.free

    def _drop(self) -> None:
        """Forget the oldest vectors; the point, where the gradient was taken, and second moments
        go on in those that are left, the latter exactly."""
        subspace, held = self._subspace, self._curvature
        assert held is not None
        assert self._at is not None
        assert self._between is not None
        gram, point = subspace.gram, subspace.point
        first = 1 + subspace.free
        kept = self._bounding.keep_newest(
            subspace.exchange.most_directions - _BETWEEN_DROPS * self._coming - first
        )
        fold = point.copy()
        fold[kept] = 0.0
        subspace.drop(kept)
        moments = np.empty((len(kept) + 1, len(kept) + 1, subspace.width))
        away, between = np.zeros_like(subspace.point), np.zeros_like(subspace.point)
        for p in range(subspace.width):
            left = np.column_stack([fold[:, p], np.eye(len(gram))[:, kept]])
            moments[:, :, p] = left.T @ held.moments[:, :, p] @ left
            onto, inside = left.T @ gram[:, :, p], left.T @ gram[:, :, p] @ left
            away[:, p] = _solved(inside, onto @ (self._at - point)[:, p])
            between[:, p] = _solved(inside, onto @ self._between[:, p])
        self._curvature = Curvature(np.arange(len(moments)), moments, held.across)
        self._at, self._between = subspace.point + away, between

    # ── steps ─────────────────────────────────────────────────────────────────────────────

    def _steps(self) -> Floats:
        """Shares of point and target (steps × 2 × problems), the guess among them."""
        steps = np.repeat(STEPS[:, None], self._subspace.width, axis=1)
        steps[_GUESS] = self._reach
        return np.stack([1.0 - steps, steps], axis=1)

    def _move(self, primal: Floats, steps: Floats) -> None:
        """Each problem takes the guess if that is good enough, else its best step."""
        best = primal.argmin(axis=0)
        gain = primal[0] - primal.min(axis=0)
        fine = primal[0] - primal[_GUESS] >= _ENOUGH * gain
        self._subspace.move(np.where(fine & (gain > 0), _GUESS, best))
        taken = steps[best, 1, np.arange(len(best))]
        shorter = np.maximum(_DOUBLE * taken, _SHORTEST)
        self._reach = np.where(taken >= _LONG, 1.0, np.minimum(shorter, 1.0))
        stuck = best == 0
        self._reach = np.where(stuck, np.maximum(_BACK * self._reach, _SHORTEST), self._reach)

    def _restart(self) -> None:
        """Go on from the point as it is measured, with the newest dual vectors only."""
        subspace, held = self._subspace, self._curvature
        assert held is not None
        kept = self._bounding.keep_newest(subspace.exchange.most_directions // 2)
        subspace.refresh(kept)
        self._curvature = Curvature(
            np.arange(1, 1 + len(kept)), held.moments[np.ix_(kept, kept)], held.across
        )
        self._at = self._between = None


def _remembered(told: Floats, before: Curvature) -> Floats:
    """Second moments that were told, with some of those that were known before.

    What the told ones say of further vectors, as combinations of the known and a rest, stays.
    """
    known = before.known
    order = np.concatenate([known, np.setdiff1d(np.arange(len(told)), known)])
    count = len(known)
    moments = told.copy()
    for p in range(told.shape[2]):
        new = told[:, :, p][np.ix_(order, order)]
        inside, cross = new[:count, :count], new[:count, count:]
        onto = np.hstack([np.eye(count), _solved(inside, cross)])
        mixed = _REMEMBERED * before.moments[:, :, p] + (1.0 - _REMEMBERED) * inside
        whole = onto.T @ mixed @ onto
        whole[count:, count:] += new[count:, count:] - cross.T @ onto[:, count:]
        back = np.argsort(order)
        moments[:, :, p] = whole[np.ix_(back, back)]
    return moments


def _convex(corner: Floats, part: Floats, bend: float) -> Floats:
    """Curvature of new parts, with what the last step asks for at least."""
    square = float(part @ part)
    if square == 0.0:
        return corner
    lacking = _CONVEX * square / bend - float(part @ corner @ part) / square
    return corner + max(lacking, 0.0) * np.outer(part, part) / square


def _basis(every: Floats, known: Ints, others: Ints) -> Floats:
    """Coefficients of a basis: vectors as they are, of others what is orthogonal to the known."""
    basis = np.eye(len(every))
    if len(known):
        inside = every[np.ix_(known, known)]
        basis[np.ix_(known, others)] = -_solved(inside, every[np.ix_(known, others)])
    return basis


def _solved(matrix: Floats, right: Floats) -> Floats:
    """The solution of a positive semidefinite system, zero along what is flat."""
    units = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    scale = np.where(units > 0, 1.0 / np.where(units > 0, units, 1.0), 0.0)
    values, vectors = np.linalg.eigh(scale[:, None] * matrix * scale)
    curved = values > _FLAT * values.max(initial=0.0)
    some, lengths = vectors[:, curved], values[curved]
    one = right[:, None] if right.ndim == 1 else right
    found = scale[:, None] * (some @ ((some.T @ (scale[:, None] * one)) / lengths[:, None]))
    solution: Floats = found.reshape(right.shape)
    return solution
