"""What the coordinator knows of a run of the fast solvers: coefficients and inner products.

Vector 0 is the anchor; all others came out of dual vectors, but for vector 1 where the intercept is
free: that is the constant column's own, which no sample has to pay for. w, gradients and directions
are arrays of coefficients (vectors × problems); lengths and angles come from the Gram matrices.

An intercept that λ does not hold back has an entry in every vector, which the coordinator knows: s.
The Gram matrices are then of all other columns. A dual vector bounds P* for every intercept β by
D − s β, and so does a mixture: one with Σ μ_j s_j = 0 bounds P* itself, and rounding of that sum is
paid for (`lower_bound_free_intercept.py`).

Where the classes of a loss are one problem (softmax), its columns have the same numbers: inner
products, losses and bounds of all classes together. Only intercepts are those of each class.
"""

from __future__ import annotations

import numpy as np

from weft.array_types import Floats, Ints
from weft.solvers.subspace.class_fold_problems import PARTS
from weft.solvers.subspace.coordinator_round_trips import Exchange
from weft.solvers.subspace.lower_bound_free_intercept import InterceptRange
from weft.solvers.subspace.lower_bound_joint_intercepts import JointInterceptRange
from weft.solvers.subspace.messages import Ascent, Fold
from weft.solvers.subspace.rounding_allowed_by_gap import (
    FINEST,
    FIXED_POINT,
    SINGLE,
    in_few_digits,
)
from weft.solvers.subspace.vectors_kept_by_party import padded

#: Relative rounding of a number.
_ROUNDING = 2.0**-52
#: What share of the gap rounding may make up.
_BEARABLE = 0.1
#: The number of the constant column's own vector, where the intercept is free.
FREE = 1

#: By how much of P rounding may put D above it, before the two are measured.
_ROUNDED = 1e-5


class Subspace:
    """The current point, and the vectors that everything is made of.

    Attributes
    ----------
    lam
        λ per problem: smaller by the samples that a fold leaves out.
    point
        Coefficients of the best w found.
    risk
        1/N Σ l at the point, per problem.
    risks
        The same at the steps of the last search (steps × problems); infinite: not asked.
    offsets
        o of every vector (vectors × problems); of the anchor and of Hessian vectors, zero.
    dual
        The best lower bound of each problem at the current λ.
    free
        Whether λ does not hold the intercept back.
    intercepts
        The entry of every vector at a free intercept (vectors × problems), else zero.
    range
        Where the best intercept can be at the current λ.
    """

    def __init__(self, exchange: Exchange, lam: float, *, warm: bool) -> None:
        self.exchange = exchange
        width = self.width = exchange.problems.width
        self.groups = exchange.settings.groups
        self._base_lam = lam
        self._share = np.ones(width)
        self.free = exchange.free
        known = 1 + self.free
        self.gram: Floats = np.zeros((known, known, width))
        self.offsets: Floats = np.zeros((known, width))
        self.point: Floats = np.zeros((known, width))
        self.intercepts: Floats = np.zeros((known, width))
        self.intercepts[FREE:] = 1.0
        self.range = self._any_intercept()
        self.risk: Floats = np.full(width, np.inf)
        self.risks: Floats = np.zeros((0, width))
        self.dual: Floats = np.full(width, -np.inf)
        self._stay: Floats = np.stack([np.ones(width), np.zeros(width)])
        #: Shares of point and target in the step that the parties have not been told of.
        self._moved: Floats = self._stay
        #: Weights of dual vectors that every party knows, from which a fallback goes on.
        self.mixture: Floats = np.zeros((known, width))
        #: The point, the target, and points beside, of the last search.
        self._points: list[Floats] = [self.point, self.point]
        self._coming: tuple[Floats, Floats | None] | None = None
        self._begin(warm)

    def _begin(self, warm: bool) -> None:
        """A first dual vector, at the point that the run starts from."""
        exchange, nowhere = self.exchange, np.zeros((1, self.width))
        # It brings what the run is set up with too: how many samples each problem has.
        with exchange.channel.with_everyone():
            if warm:
                self.point[0] = 1.0
                self._measure()
            offsets, cross, sizes = exchange.gather(
                self.count, self._moved, guesses=nowhere, first=True
            )
        assert sizes is not None
        self._coming = (offsets, cross)
        self._look_at_folds(sizes)
        self._share = sizes / exchange.holdings.n_samples

    def _look_at_folds(self, sizes: Floats) -> None:
        """Say where samples are in no fold."""
        problems, notes = self.exchange.problems, self.exchange.notes
        left_out = sizes[0] - sizes[problems.classes :: problems.classes]
        share = self.exchange.settings.evaluation.held_out
        if share is not None:
            notes.append(
                f"{left_out[0] / sizes[0]:.0%} of the samples were held out to judge a model that "
                "was trained on the others; the released one was trained on all of them"
            )
        elif len(left_out) and left_out.sum() < sizes[0]:
            notes.append(
                "some samples are trained on in every fold and scored in none, because fewer than "
                f"{2 * PARTS} times min_batch samples of their group have their class"
            )

    @property
    def lam(self) -> Floats:
        return self._base_lam * self._share

    @property
    def base_lam(self) -> float:
        """λ of the problems on all samples."""
        return self._base_lam

    def turn_to(self, lam: float) -> None:
        """Go on with another λ: point and bounds on the risk stay what they are."""
        self._base_lam = lam
        self.dual = np.full(self.width, -np.inf)
        self.range = self._any_intercept()

    def _any_intercept(self) -> InterceptRange | JointInterceptRange:
        """Nothing is known of the best intercept yet."""
        exchange = self.exchange
        if exchange.problems.joint:
            return JointInterceptRange(exchange.problems, exchange.bounds)
        return InterceptRange(self.width)

    def joined(self, values: Floats) -> Floats:
        """Sums over the columns (last) of every problem, for all of its columns."""
        problems = self.exchange.problems
        return problems.spread(problems.summed(values))

    @property
    def count(self) -> int:
        return len(self.offsets)

    @property
    def primal(self) -> Floats:
        """P at the point."""
        return 0.5 * self.lam * self.paid(self.point, self.point) + self.risk

    @property
    def gaps(self) -> Floats:
        """(P − D)/P per problem; no loss is below zero, so that a P below zero proves nothing.

        On the way P and D are put together from products that were rounded, and of a problem that
        is solved D may come out above P. That is a promise, and the parties measure both afresh
        before anything is certified; as no promise at all, such a run never ended.
        """
        above = (self.dual > self.primal) & (self.dual <= self.primal * (1 + _ROUNDED))
        return gaps_of(self.primal, np.where(above, self.primal, self.dual))

    def inner(self, a: Floats, b: Floats) -> Floats:
        """Inner products of two combinations, per problem."""
        total = self.paid(a, b)
        if self.free:
            total = total + self.joined(self.intercept_of(a) * self.intercept_of(b))
        return total

    def paid(self, a: Floats, b: Floats) -> Floats:
        """The same over the columns that λ holds back: all, but for a free intercept."""
        # One after the other: to have einsum look for the best order takes longer than both.
        total: Floats = np.einsum("kp,kp->p", np.einsum("jp,jkp->kp", a, self.gram), b)
        return total

    def intercept_of(self, coefficients: Floats) -> Floats:
        """The intercept's entry in a combination, where it is free."""
        entry: Floats = (coefficients * self.intercepts).sum(axis=0)
        return entry

    def shrunk(self, coefficients: Floats) -> Floats:
        """What the regulariser adds to a gradient: λ times a combination, no free intercept."""
        held = self.lam * coefficients
        if self.free:
            held[FREE] -= self.lam * self.intercept_of(coefficients)
        return held

    def padded(self, coefficients: Floats) -> Floats:
        """Older coefficients, with zeros for the vectors that came since."""
        return padded(coefficients, self.count)

    def unit(self, vector: int) -> Floats:
        """The coefficients of one vector."""
        out = np.zeros((self.count, self.width))
        out[vector] = 1.0
        return out

    # ── round trips ───────────────────────────────────────────────────────────────────────

    def absorb(self) -> int:
        """Complete the vectors under way; returns how many there are."""
        if self._coming is None:
            return 0
        offsets, cross = self._coming
        new, held = len(offsets), self.count
        products, intercepts = self.exchange.spread(held, new)
        self._coming = None
        if cross is not None:
            # Rows multiply all columns, columns all but a free one.
            cross = cross - self.joined(self.intercepts[:held, None] * intercepts)
            products = np.concatenate([cross, products])
        self.intercepts = np.vstack([self.intercepts, intercepts])
        gram = np.zeros((held + new, held + new, self.width))
        gram[:held, :held] = self.gram
        gram[:, held:] = products
        gram[held:, :held] = products[:held].transpose(1, 0, 2)
        corner = products[held:]
        gram[held:, held:] = (corner + corner.transpose(1, 0, 2)) / 2
        self.gram = gram
        self.offsets = np.vstack([self.offsets, offsets])
        self.point = self.padded(self.point)
        return new

    def search(
        self,
        target: Floats,
        steps: Floats,
        guesses: Floats,
        ascent: Ascent | None = None,
        *,
        stretched: Floats | None = None,
        beside: Floats | None = None,
        moments: bool = False,
    ) -> Floats:
        """P at mixtures of the point with the target, or a point beside: (steps × problems).

        ``steps`` are the shares of each (steps × points × problems). New dual vectors at the
        guessed steps (guesses × problems) are then under way, behind them those at the target times
        ``stretched`` and at the points ``beside`` (points × vectors × problems), and those that
        coordinate ascent from a mixture proposes.
        """
        exchange = self.exchange
        if not exchange.stored:
            exchange.point(target)
        asked = thinned(steps, exchange.most_steps)
        found, offsets, cross = exchange.search(
            target, self._moved, steps[asked], guesses, ascent, stretched, beside, moments
        )
        # A step that was not asked about is never the best one.
        risks = np.full((len(steps), self.width), np.inf)
        risks[asked] = found
        self._moved = self._stay
        self._points = [self.point, target, *([] if beside is None else beside)]
        if len(offsets):
            self._coming = (offsets, cross)
        self.risks, self._steps = risks, steps
        a, c = steps[:, 0], steps[:, 1]
        here, cross_, there = (
            self.paid(self.point, self.point),
            self.paid(self.point, target),
            self.paid(target, target),
        )
        norms = a * a * here + 2 * a * c * cross_ + c * c * there
        # A step leads to one other point at most.
        for share, other in zip(steps[:, 2:].transpose(1, 0, 2), self._points[2:], strict=False):
            across, aside = self.paid(self.point, other), self.paid(other, other)
            norms += 2 * a * share * across + share * share * aside
        primal: Floats = 0.5 * self.lam * norms + risks
        return primal

    def move(self, chosen: Ints) -> None:
        """Take the chosen step of the last search, per problem."""
        every = np.arange(self.width)
        shares = self._steps[chosen, :, every].T
        point = shares[0] * self._points[0]
        for share, other in zip(shares[1:], self._points[1:], strict=False):
            point = point + share * other
        self.point = point
        self.risk = self.risks[chosen, every]
        self._moved = shares

    def gather(self) -> None:
        """Ask for the dual vector at the point."""
        offsets, cross, _ = self.exchange.gather(
            self.count, self._moved, guesses=np.zeros((1, self.width))
        )
        self._moved = self._stay
        self._coming = (offsets, cross)

    def bend(self, direction: Floats) -> None:
        """Ask for what the Hessian makes of a direction."""
        offsets, cross, _ = self.exchange.gather(self.count, self._moved, direction=direction)
        self._moved = self._stay
        self._coming = (offsets, cross)

    def inherit(self) -> None:
        """Ask for α that HyFDCA has reached while a party was away, as one more dual vector."""
        exchange, reached = self.exchange, self.exchange.fallback_result
        assert reached is not None
        exchange.fallback_result = None
        self._coming = exchange.inherit(self.count, self._moved, reached)
        self._moved = self._stay

    @property
    def doubt(self) -> Floats:
        """The rounding of an inner product of two vectors, per problem."""
        longest = np.einsum("jjp->jp", self.gram) + self.joined(self.intercepts**2)
        longest = longest.max(axis=0)
        rounding: Floats = longest * _ROUNDING
        if self.exchange.by_rows:
            bounds, samples = self.exchange.bounds, self.exchange.holdings.n_samples
            rounding = rounding + bounds.products * FIXED_POINT * bounds.alpha / samples**0.5
        return rounding

    def beyond(self, squares: Floats, mixture: Floats) -> Floats:
        """By how much half of ‖Σ μ_j b_j‖² may be more than it seems, for the noise in all b_j.

        ‖b‖ ≤ ‖b + η‖ + ‖η‖, and the noise of a mixture is no longer than the longest of all.
        """
        noise = self.exchange.noise * np.abs(mixture).sum(axis=0)
        more: Floats = noise * (np.sqrt(np.maximum(squares, 0.0)) + 0.5 * noise)
        return more

    @property
    def strained(self) -> bool:
        """Whether rounding in a point of large coefficients that cancel spoils the certificate.

        ‖w‖² has the rounding of its terms, z that of fixed point times the coefficients, and that
        of single precision where parties keep Z so; errors are taken as independent of each other.
        """
        squares = self.point**2
        lengths = np.einsum("jjp->jp", self.gram)
        in_norms = 0.5 * self.lam * (squares * lengths).sum(axis=0) * _ROUNDING
        # The anchor's own z is as exact as that of any point.
        in_z = np.sqrt(squares[1:].sum(axis=0)) * self.exchange.bounds.products * FIXED_POINT
        samples = self.exchange.holdings.n_samples
        if in_few_digits(samples, self.exchange.settings):
            # Over all samples, Z² is on average at most ‖b‖² times the mean of ‖x‖².
            parts = (squares * lengths)[1:].sum(axis=0) * self.exchange.mean_square
            in_z = in_z + np.sqrt(parts) * SINGLE
        in_losses = in_z / np.sqrt(samples)
        wanted = (self.exchange.settings.gap or FINEST) * np.abs(self.primal)
        return bool((in_norms + in_losses > _BEARABLE * wanted).any())

    def refresh(self, kept: Ints) -> None:
        """Make the point the anchor and measure it; its dual vector is then under way.

        Two round trips. ``kept`` vectors stay for the lower bound only.
        """
        self._coming = None
        self.drop(kept, whole=True)
        self._measure()
        self._moved = self._stay
        self.gather()

    def _measure(self) -> None:
        """Measure the point, which is the anchor."""
        self.gram[0, 0], self.intercepts[0] = self.exchange.point(self.point)

    def drop(self, kept: Ints, *, whole: bool = False) -> None:
        """Forget all vectors but some (never the anchor); their part in the point stays.

        It goes into the anchor, and with ``whole`` all of the point does.
        """
        fold = self.point.copy()
        if not whole:
            fold[kept] = 0.0
        mixture = self.padded(self.mixture)
        assert self.exchange.fold is None
        self.exchange.fold = Fold(coefficients=fold, keep=kept)
        row = np.einsum("jp,jkp->kp", fold, self.gram)
        corner = np.einsum("kp,kp->p", fold, row)
        gram = np.empty((len(kept) + 1, len(kept) + 1, self.width))
        gram[1:, 1:] = self.gram[np.ix_(kept, kept)]
        gram[0, 1:] = gram[1:, 0] = row[kept]
        gram[0, 0] = corner
        self.gram = gram
        self.offsets = np.vstack([np.zeros((1, self.width)), self.offsets[kept]])
        self.intercepts = np.vstack([self.intercept_of(fold)[None], self.intercepts[kept]])
        self.point = np.vstack([np.ones((1, self.width)), (self.point - fold)[kept]])
        self.mixture = np.vstack([np.zeros((1, self.width)), mixture[kept]])
        if self._coming is not None and self._coming[1] is not None:
            offsets, cross = self._coming
            assert cross is not None
            first = np.einsum("jp,jkp->kp", fold, cross)[None]
            self._coming = (offsets, np.concatenate([first, cross[kept]]))


def thinned(steps: Floats, most: int) -> Ints:
    """Which of some steps to ask for, if all are too many: to stay, to go all the way, and more.

    ``steps`` are shares of the point, the target and others (steps × points × problems).
    """
    if len(steps) <= most:
        return np.arange(len(steps))
    ends = [(steps == share[None, :, None]).all(axis=(1, 2)) for share in np.eye(2, steps.shape[1])]
    needed = np.flatnonzero(ends[0] | ends[1])
    spread = np.linspace(0, len(steps) - 1, max(most - len(needed), 0) + 2)[1:-1]
    return np.union1d(needed, np.rint(spread).astype(np.int64))


def gaps_of(primal: Floats, dual: Floats) -> Floats:
    """(P − D)/P per problem; infinite where the two prove nothing.

    No loss is below zero, so that a P below zero proves nothing, nor does a D above P.
    """
    known = (primal > 0) & np.isfinite(primal) & np.isfinite(dual) & (dual <= primal * (1 + 1e-9))
    gap = np.where(known, primal - dual, 0.0)
    share = np.maximum(gap, 0.0) / np.where(known, primal, 1.0)
    return np.where(known, share, np.where((primal == 0) & (dual == 0), 0.0, np.inf))
