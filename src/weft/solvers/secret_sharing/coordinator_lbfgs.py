"""L-BFGS in coefficients, for one problem: the coordinator knows inner products, and no vector.

Every vector is b_j = Xᵀα/N, the gradient of the mean loss R at a point w_j. Points, gradients and
directions are combinations of such vectors; inner products tell all that L-BFGS and the certificate
need. They carry noise, whose most is known and counts against the certificate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.errors import ConfigError
from weft.solvers.secret_sharing.coordinator_primal_and_dual_bounds import CertifiedPoints
from weft.solvers.secret_sharing.digit_widths import (
    MOST_SCORE,
    NOISE_RANGE,
    POINT_BITS,
    SLACK,
    largest_noise,
    product_noise,
)
from weft.solvers.secret_sharing.exponential_fourier_series import AnySeries
from weft.solvers.secret_sharing.lower_bound_from_cuts import Cut

#: Pairs of steps and changes of the gradient that a direction comes from.
_MEMORY = 60
#: A step must bring this share of what the slope promises.
_ARMIJO = 1e-4
#: Share of P that noise may hide.
_LOSS_DOUBT = 1e-5
#: Steps are never made shorter than this at once.
_SHORTEST = 0.1
#: Cuts after which there shall be one for a free intercept, if none says where the best one is.
_PATIENCE = 5
_NO_ROOM = (
    "offsets or responses make the means of this model too large for sealed training in 64 bits; "
    "take off what all of them have in common, or train with mode = 'sums'"
)
#: By how many times what its value may be off, P shall rise at such a cut.
_RISE = 20.0


@dataclass
class Trial:
    """A point to be tried.

    Attributes
    ----------
    factors
        Whole coefficients of vectors, in units of a point.
    point
        The same as floats.
    step
        The share of the direction.
    reach
        No score is larger, whatever the table.
    moved, away
        How far it is from the point in hand, and from that from which scores are told.
    aside
        It is tried for a bound of a free intercept alone: the point stays where it is.
    """

    factors: list[int]
    point: Floats
    norm: float
    step: float
    reach: float
    moved: float
    away: float
    aside: bool = False


@dataclass
class Descent(CertifiedPoints):
    """A problem, and how it goes on from point to point."""

    _pairs: list[tuple[Floats, Floats]] = field(default_factory=list)
    _trial: Trial | None = None
    #: No score is larger at the point, and the most that the guard can tell apart.
    _scores: float = 0.0
    _longest: float = 1.0
    #: Cuts since one was made for the sake of a free intercept.
    _since: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._scores = self.offset

    def turn(self, lam: float) -> None:
        self._pairs.clear()
        super().turn(lam)

    # ── vectors ───────────────────────────────────────────────────────────────────────────

    def noise_bits(self) -> Ints:
        """Noise that products of the next vector with all others must carry.

        A vector is expected to be no longer than the last, or λw, which it is at the optimum.
        """
        errors, columns = self.errors, self.errors.columns
        most = largest_noise(errors.widths, columns)
        norms = np.sqrt(np.maximum(np.diag(self.products.gram), 0.0)) / errors.unit
        made = [number for number, cut in enumerate(self._cuts) if cut is not None]
        if not made:
            return self.most_noise_bits()
        norm = self._trial.norm if self._trial is not None else 0.0
        new = max(norms[made[-1]], self.lam * norm / errors.unit)
        if self._trial is not None and self._trial.aside:
            new = max(norms[made])
        bits = [product_noise(errors.widths, columns, max(new, old)) for old in [*norms, new]]
        return np.clip(bits, most - NOISE_RANGE, most)

    def most_noise_bits(self) -> Ints:
        """The same for a vector that may be as long as any."""
        most = largest_noise(self.errors.widths, self.errors.columns)
        return np.full(self.products.count + 1, most)

    # ── the next point ────────────────────────────────────────────────────────────────────

    def _newton(self, q: Floats) -> Floats:
        """Hq, H the inverse Hessian by the two-loop recursion (Nocedal)."""
        stack = []
        for s, change in reversed(self._pairs):
            step = self.products.padded(s)
            y = self.products.padded(change) + self.lam * self.products.held(step)
            curved = self.products.dot(step, y)
            if curved <= 1e-12 * self.products.dot(step, step):
                continue
            a = self.products.dot(step, q) / curved
            q = q - a * y
            stack.append((step, y, curved, a))
        if stack:
            step, y, curved, _ = stack[0]
            q = q * (curved / self.products.dot(y, y))
        else:
            q = q / (self._steepest + self.lam)
        for step, y, curved, a in reversed(stack):
            q = q + (a - self.products.dot(y, q) / curved) * step
        return q

    @property
    def _steepest(self) -> float:
        """Above every curvature of R; of a Poisson loss, twice that at w = 0."""
        bounds = self.errors.bounds
        bend = 1.0 if self.squared else 2.0 if self.exponential else 0.25
        return bend * bounds.most_weight * bounds.mean_square

    def propose(self, target: float) -> Trial:
        """The full step, or as much of it as nothing can wrap with; ``target``: the gap wanted."""
        if self._lacks_intercept(target):
            self._trial = self._beside(target)
        else:
            self._trial = self._at(-self._newton(self._gradient), 1.0)
        return self._trial

    def _lacks_intercept(self, target: float) -> bool:
        """Whether a cut is wanted that tells where the best intercept is.

        That is so where other weights are good enough, and where some cuts have told nothing. A
        step comes in between: the smaller the gradient, the less it matters where that is.
        """
        price, others = self._open
        if not self.products.free or price <= others:
            return False
        solved = others <= 0.5 * target * self.primal
        return self._since >= (1 if solved else _PATIENCE)

    def _beside(self, target: float) -> Trial:
        """A point with another intercept, and other weights as they follow it.

        Along He, e the intercept, the gradient is e's alone: the cut there says of the intercept
        what it can. P rises by more than errors may hide.
        """
        span, products = self._span, self.products
        intercept = products.unit(0) / products.free
        along = self._newton(intercept)
        # The intercept's own curvature, with other weights at their best, is 1/e·He.
        answer = products.intercept(along)
        if not answer > 0:
            # Where noise has spoiled H.
            along, answer = intercept, 1.0 / self._steepest
        bend = 1.0 / answer
        cut = self._cut(self._gradient_vector)
        rise = max(_RISE * cut.value_error, 2 * target * self.primal, self._open[1])
        shift = math.sqrt(2 * rise / bend)
        at = products.intercept(self._point)
        up = span.high - at >= at - span.low
        trial = self._at(along * (bend * (shift if up else -shift)), 1.0)
        return replace(trial, aside=True)

    def stay(self) -> Trial:
        """The point where it is."""
        self._trial = self._at(np.zeros(self.products.count), 1.0)
        return self._trial

    def at_centre(self) -> Trial:
        """The point from which scores are told: w = 0, but for an intercept."""
        self._trial = self._at(self._centre_point, 1.0)
        return self._trial

    def at_model(self) -> Trial:
        """The point that is the model."""
        point = self.products.padded(self._cut(self._model).point)
        return self._at(point - self.products.padded(self._point), 1.0)

    def shorten(self, share: float) -> Trial:
        """A shorter step in the same direction."""
        assert self._trial is not None
        before = self._trial
        moved = (
            self.products.padded(before.point) - self.products.padded(self._point)
        ) / before.step
        trial = self._at(moved, before.step * max(_SHORTEST, min(share, 0.7)))
        self._trial = replace(trial, aside=before.aside)
        return self._trial

    def _at(self, direction: Floats, step: float) -> Trial:
        errors, bounds = self.errors, self.errors.bounds
        scale = 2.0 ** (POINT_BITS - errors.widths.vector) / bounds.samples
        while True:
            wanted = self.products.padded(self._point) + step * direction
            factors = [round(value * scale) for value in wanted.tolist()]
            point = np.array([factor / scale for factor in factors])
            norm = self.products.longest(point) + errors.weights
            moved = (
                self.products.longest(point - self.products.padded(self._point)) + errors.weights
            )
            away = self.products.longest(point - self._centre_point) + errors.weights
            reach = self.offset + bounds.row_norm * away
            reach = min(reach, self._scores + bounds.row_norm * moved)
            small = max((abs(factor) for factor in factors), default=0) < 1 << 62
            if small and reach <= self._most_reach and self._slopes(moved) <= self._most_slopes:
                return Trial(factors, point, norm, step, reach, moved, away)
            step *= 0.5
            if step < 2.0**-40:
                raise ConfigError(
                    "no step is short enough for sealed training to hold its scores; scale the "
                    "columns (scaling = 'standard'), or train with mode = 'sums'"
                )

    @property
    def scores(self) -> float:
        """No score at the point is larger."""
        return self._scores

    @property
    def _most_reach(self) -> float:
        return MOST_SCORE if self.squared else self._longest

    def limit_reach(self, most: float) -> None:
        """Scores that a guard can still tell apart."""
        self._longest = most

    def _slopes(self, moved: float) -> float:
        """Above √(mean ωs²) after such a step, s the slopes of a squared loss."""
        if not self.squared:
            return 1.0
        bounds = self.errors.bounds
        return self._slope_size + math.sqrt(bounds.most_weight) * bounds.spread * moved

    @property
    def _slope_size(self) -> float:
        if not self._cuts:
            return math.sqrt(self.errors.bounds.label_square)
        cut = self._cut(self._gradient_vector)
        return math.sqrt(2 * max(cut.value + cut.value_error, 0.0))

    @property
    def _most_slopes(self) -> float:
        return SLACK * math.sqrt(self.errors.bounds.label_square) if self.squared else 1.0

    # ── taking it ─────────────────────────────────────────────────────────────────────────

    def refused(self, loss: float, series: AnySeries | None) -> float:
        """What share of the step to take instead of a point that is no better; zero: it is."""
        trial = self._trial
        assert trial is not None
        if not trial.moved or series is None:
            return 0.0
        if self.exponential and not self._has_room(self._tilted(loss, trial.point)):
            return 0.5
        start = self.products.padded(self._point)
        slope = self.products.dot(self._gradient, self.products.padded(trial.point) - start)
        if trial.aside:
            return 0.0
        now = self._objective(loss, trial)
        before = self._value + 0.5 * self.lam * self.products.held_dot(start, start)
        doubt = _LOSS_DOUBT * before + self.errors.loss_noise(series)
        doubt += 2 * self.products.dot_error(trial.point, self._labels)
        if now <= before + _ARMIJO * slope + doubt:
            return 0.0
        return 0.5 * -slope / max(now - before - slope, 1e-300)

    def _rounded(self, trial: Trial) -> float:
        """The norm of weights whose columns are rounded: with a centre, the constant one is not."""
        if not self.centre:
            return trial.norm
        return self.products.held_longest(trial.point) + self.errors.weights

    def _has_room(self, value: float) -> bool:
        """Whether slopes of a Poisson loss of such a mean do not wrap."""
        bounds = self.errors.bounds
        return bounds.counts_at(1.1 * value + 0.1) <= bounds.most_counts

    def _objective(self, loss: float, trial: Trial) -> float:
        square = self.products.held_dot(trial.point, trial.point)
        return self._tilted(loss, trial.point) + 0.5 * self.lam * square

    def _tilted(self, loss: float, point: Floats) -> float:
        """R from the mean of log 2cosh(z/2), less that of ½ y times offsets: labels add w·b_0."""
        return loss + self.products.dot(point, self._labels)

    def _value_error(
        self,
        point: Floats,
        norm: float,
        series: AnySeries | None,
        value: float,
        scores: float = math.inf,
    ) -> float:
        """How far R may be off, for products and rounding of the model."""
        errors = self.errors
        products = self.products.dot_error(point, self._labels)
        length = self.products.longest(self._labels) + self.lam * norm
        told = errors.loss(series, norm, value, scores)
        return told + products + length * errors.weights

    def begin(self, row: Floats, bits: Ints) -> None:
        """The first vector is there: b_0 at w = 0, where all scores are zero."""
        self._take(row, bits)
        start = self.start
        size = self.errors.residual_size(0.5 * self.errors.bounds.label_square)
        delta = self.errors.vector(None, size, 0.0)
        error = self.errors.loss(None, 0.0, start) if self.squared else 0.0
        self._point = np.zeros(1)
        self._cuts.append(Cut(start, error, np.zeros(1), 0.0, delta))
        self._prove()

    def accept(
        self, row: Floats, bits: Ints, loss: float, series: AnySeries | None, scores: float
    ) -> None:
        """The vector at the trial point is there; ``scores``: none is larger."""
        trial, self._trial = self._trial, None
        assert trial is not None
        self._take(row, bits)
        count = self.products.count
        newest = self.products.unit(count - 1)
        if self.squared:
            # R is quadratic: its value follows from the gradients at 0 and here.
            both = self._labels + newest
            half = 0.5 * self.products.dot(trial.point, both)
            value = self.start + half
            error = self._value_error(trial.point, trial.norm, series, value)
            error += 0.5 * self.products.dot_error(trial.point, both)
            size = self.errors.residual_size(value + error)
        else:
            value = self._tilted(loss, trial.point)
            error = self._value_error(trial.point, self._rounded(trial), series, value, scores)
            assert series is not None
            size = self.errors.slope_size(value + error, series, scores)
            if self.exponential and not self._has_room(value):
                raise ConfigError(_NO_ROOM)
        delta = self.errors.vector(series, size, self._rounded(trial), scores)
        self._cuts.append(Cut(value, error, trial.point, trial.norm, delta))
        reach = self.offset + self.errors.bounds.row_norm * trial.away
        self._scores_at[count - 1] = min(scores, reach)
        step = self.products.padded(trial.point) - self.products.padded(self._point)
        known = self._cuts[self._gradient_vector] is not None
        if known and trial.moved > 2 * self.errors.weights:
            old = self.products.unit(self._gradient_vector)
            self._pairs.append((step, newest - old))
            del self._pairs[:-_MEMORY]
        self._since = 0 if trial.aside else self._since + 1
        stays = self.squared or trial.aside
        if stays and self._is_worse(count - 1):
            # No better: but what the gradient changed by is known now, and so is another cut.
            self._prove()
            return
        self._point, self._gradient_vector = trial.point, count - 1
        self._scores = self._scores_at[count - 1]
        self._prove()


def factors_of(trials: list[Trial], vectors: int) -> NDArray[np.int64]:
    """(vectors × problems) whole coefficients."""
    out = np.zeros((vectors, len(trials)), np.int64)
    for problem, trial in enumerate(trials):
        out[: len(trial.factors), problem] = trial.factors
    return out
