"""L-BFGS in coefficients, for one problem: the coordinator knows inner products, and no vector.

Every vector is b_j = Xᵀα/N, the gradient of the mean loss R at a point w_j. Points, gradients and
directions are combinations of such vectors; inner products tell all that L-BFGS and the certificate
need. They carry noise, whose most is known and counts against the certificate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.errors import ConfigError
from weft.solvers.sealed.digit_widths import (
    MOST_SCORE,
    NOISE_RANGE,
    POINT_BITS,
    SLACK,
    Errors,
    largest_noise,
    product_noise,
    slope_size,
)
from weft.solvers.sealed.sine_series import Series
from weft.solvers.subspace.bundle_qp import Master

#: Pairs of steps and changes of the gradient that a direction comes from.
_MEMORY = 60
#: A step must bring this share of what the slope promises.
_ARMIJO = 1e-4
#: Share of P that noise may hide.
_LOSS_DOUBT = 1e-5
#: Steps are never made shorter than this at once.
_SHORTEST = 0.1


@dataclass(frozen=True)
class _Cut:
    """R(w) ≥ value + b·(w − point) at a point where a vector was made."""

    value: float
    value_error: float
    point: Floats
    norm: float
    vector_error: float


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
    """

    factors: list[int]
    point: Floats
    norm: float
    step: float
    reach: float
    moved: float


@dataclass
class Descent:
    """One class on all samples or without a fold: where it stands, and what is proved.

    P without a fold f is λ/2 ‖w‖² + 1/N_f Σ l; times N_f/N its sums are parts of all samples, as
    bounds and errors are, and λ is smaller by as much.

    Attributes
    ----------
    share
        N_f/N, of samples trained on.
    start
        The loss at w = 0, in parts of all samples.
    primal, dual
        Above P at the point, and below P*.
    proof
        P and D as they are certified, at the point with the smallest gap.
    """

    errors: Errors
    squared: bool
    lam: float
    share: float
    start: float
    primal: float = math.inf
    dual: float = 0.0
    proof: tuple[float, float] = (math.inf, 0.0)
    _gram: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    _gram_error: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    #: None: a vector that is no gradient.
    _cuts: list[_Cut | None] = field(default_factory=list)
    _pairs: list[tuple[Floats, Floats]] = field(default_factory=list)
    _point: Floats = field(default_factory=lambda: np.zeros(0))
    _gradient_vector: int = 0
    _scores: float = 0.0
    _trial: Trial | None = None
    _longest: float = 1.0
    _model: int = 0

    # ── algebra ───────────────────────────────────────────────────────────────────────────

    def _padded(self, a: Floats) -> Floats:
        return np.concatenate([a, np.zeros(len(self._gram) - len(a))])

    def _dot(self, a: Floats, b: Floats) -> float:
        return float(self._padded(a) @ self._gram @ self._padded(b))

    def _dot_error(self, a: Floats, b: Floats) -> float:
        return float(np.abs(self._padded(a)) @ self._gram_error @ np.abs(self._padded(b)))

    def _longest_norm(self, a: Floats) -> float:
        """Above ‖a‖."""
        return math.sqrt(max(self._dot(a, a), 0.0) + self._dot_error(a, a))

    def noise_bits(self) -> Ints:
        """Noise that products of the next vector with all others must carry.

        A vector is expected to be no longer than the last, or λw, which it is at the optimum.
        """
        errors, columns = self.errors, self.errors.columns
        most = largest_noise(errors.widths, columns)
        norms = np.sqrt(np.maximum(np.diag(self._gram), 0.0)) / errors.unit
        if not len(norms):
            return np.array([most])
        norm = self._trial.norm if self._trial is not None else 0.0
        last = max(number for number, cut in enumerate(self._cuts) if cut is not None)
        new = max(norms[last], self.lam * norm / errors.unit)
        bits = [product_noise(errors.widths, columns, max(new, old)) for old in [*norms, new]]
        return np.clip(bits, most - NOISE_RANGE, most)

    def most_noise_bits(self) -> Ints:
        """The same for a vector that may be as long as any."""
        most = largest_noise(self.errors.widths, self.errors.columns)
        return np.full(len(self._gram) + 1, most)

    @property
    def vectors(self) -> int:
        return len(self._gram)

    def tilt(self, model: int, vector: int) -> float:
        """The inner product of the point where a vector was made, and a vector."""
        return self._dot(self._cut(model).point, np.eye(1, len(self._gram), vector)[0])

    def _cut(self, number: int) -> _Cut:
        cut = self._cuts[number]
        assert cut is not None
        return cut

    # ── the next point ────────────────────────────────────────────────────────────────────

    @property
    def _gradient(self) -> Floats:
        unit = np.zeros(len(self._gram))
        unit[self._gradient_vector] = 1.0
        return unit + self.lam * self._padded(self._point)

    def _direction(self) -> Floats:
        """−H∇P by the two-loop recursion (Nocedal)."""
        q, stack = self._gradient, []
        for s, change in reversed(self._pairs):
            step = self._padded(s)
            y = self._padded(change) + self.lam * step
            curved = self._dot(step, y)
            if curved <= 1e-12 * self._dot(step, step):
                continue
            a = self._dot(step, q) / curved
            q = q - a * y
            stack.append((step, y, curved, a))
        if stack:
            step, y, curved, _ = stack[0]
            q = q * (curved / self._dot(y, y))
        else:
            smooth = 1.0 if self.squared else 0.25
            q = q / (smooth * self.errors.bounds.mean_square + self.lam)
        for step, y, curved, a in reversed(stack):
            q = q + (a - self._dot(y, q) / curved) * step
        return -q

    def propose(self) -> Trial:
        """The full step, or as much of it as nothing can wrap with."""
        self._trial = self._at(self._direction(), 1.0)
        return self._trial

    def stay(self) -> Trial:
        """The point where it is."""
        self._trial = self._at(np.zeros(len(self._gram)), 1.0)
        return self._trial

    def at_model(self) -> Trial:
        """The point that is the model."""
        point = self._padded(self._cut(self._model).point)
        return self._at(point - self._padded(self._point), 1.0)

    def shorten(self, share: float) -> Trial:
        """A shorter step in the same direction."""
        assert self._trial is not None
        before = self._trial
        moved = (self._padded(before.point) - self._padded(self._point)) / before.step
        self._trial = self._at(moved, before.step * max(_SHORTEST, min(share, 0.7)))
        return self._trial

    def _at(self, direction: Floats, step: float) -> Trial:
        errors, bounds = self.errors, self.errors.bounds
        scale = 2.0 ** (POINT_BITS - errors.widths.vector) / bounds.samples
        while True:
            wanted = self._padded(self._point) + step * direction
            factors = [round(value * scale) for value in wanted.tolist()]
            point = np.array([factor / scale for factor in factors])
            norm = self._longest_norm(point) + errors.weights
            moved = self._longest_norm(point - self._padded(self._point)) + errors.weights
            reach = bounds.row_norm * min(norm, math.inf)
            reach = min(reach, self._scores + bounds.row_norm * moved)
            small = max((abs(factor) for factor in factors), default=0) < 1 << 62
            if small and reach <= self._most_reach and self._slopes(moved) <= self._most_slopes:
                return Trial(factors, point, norm, step, reach, moved)
            step *= 0.5
            if step < 2.0**-40:
                raise ConfigError(
                    "no step is short enough for sealed training to hold its scores; scale the "
                    "columns (scaling = 'standard'), or train with mode = 'sums'"
                )

    @property
    def _most_reach(self) -> float:
        return MOST_SCORE if self.squared else self._longest

    def limit_reach(self, most: float) -> None:
        """Scores that a guard can still tell apart."""
        self._longest = most

    def _slopes(self, moved: float) -> float:
        """Above √(mean α²) after such a step."""
        if not self.squared:
            return 1.0
        return self._slope_size + self.errors.bounds.spread * moved

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

    def refused(self, loss: float, series: Series | None) -> float:
        """What share of the step to take instead of a point that is no better; zero: it is."""
        trial = self._trial
        assert trial is not None
        if not trial.moved or series is None:
            return 0.0
        start = self._padded(self._point)
        slope = self._dot(self._gradient, self._padded(trial.point) - start)
        now = self._objective(loss, trial)
        before = self._value + 0.5 * self.lam * self._dot(start, start)
        doubt = _LOSS_DOUBT * before + self.errors.loss_noise(series)
        doubt += 2 * self._dot_error(trial.point, np.eye(1, len(self._gram))[0])
        if now <= before + _ARMIJO * slope + doubt:
            return 0.0
        return 0.5 * -slope / max(now - before - slope, 1e-300)

    def _objective(self, loss: float, trial: Trial) -> float:
        return self._tilted(loss, trial.point) + 0.5 * self.lam * self._dot(
            trial.point, trial.point
        )

    def _tilted(self, loss: float, point: Floats) -> float:
        """R from the mean of log 2cosh(z/2): labels add w·b_0."""
        return loss + self._dot(point, np.eye(1, len(self._gram))[0])

    @property
    def _value(self) -> float:
        return self._cut(self._gradient_vector).value

    def _value_error(
        self, point: Floats, norm: float, series: Series | None, value: float
    ) -> float:
        """How far R may be off, for products and rounding of the model."""
        errors = self.errors
        first = np.eye(1, len(self._gram))[0]
        products = self._dot_error(point, first)
        length = self._longest_norm(first) + self.lam * norm
        told = errors.loss(series, norm, value)
        return told + products + length * errors.weights

    def begin(self, square: float, bits: Ints) -> None:
        """The first vector is there: b_0 at w = 0."""
        self._take(np.array([square]), bits)
        start = self.start
        size = math.sqrt(self.errors.bounds.label_square)
        delta = self.errors.vector(None, size, 0.0)
        error = self.errors.loss(None, 0.0, start) if self.squared else 0.0
        self._point = np.zeros(1)
        self._cuts.append(_Cut(start, error, np.zeros(1), 0.0, delta))
        self._prove()

    def _take(self, row: Floats, bits: Ints) -> None:
        """Inner products of a new vector with all before it, and with itself."""
        count = len(row)
        error = np.array([self.errors.product(int(each)) for each in bits])
        for name, values in (("_gram", row), ("_gram_error", error)):
            grown = np.zeros((count, count))
            grown[:-1, :-1] = getattr(self, name)
            grown[-1, :] = grown[:, -1] = values
            setattr(self, name, grown)

    def take_aside(self, row: Floats, bits: Ints) -> None:
        """A vector that is no gradient of this problem."""
        self._take(row, bits)
        self._cuts.append(None)

    def accept(
        self, row: Floats, bits: Ints, loss: float, series: Series | None, scores: float
    ) -> None:
        """The vector at the trial point is there; ``scores``: none is larger."""
        trial, self._trial = self._trial, None
        assert trial is not None
        self._take(row, bits)
        count = len(self._gram)
        newest = np.eye(1, count, count - 1)[0]
        if self.squared:
            # R is quadratic: its value follows from the gradients at 0 and here.
            first = np.eye(1, count)[0]
            half = 0.5 * self._dot(trial.point, first + newest)
            value = self.start + half
            error = self._value_error(trial.point, trial.norm, series, value)
            error += 0.5 * self._dot_error(trial.point, first + newest)
            size = math.sqrt(2 * max(value + error, 0.0))
        else:
            value = self._tilted(loss, trial.point)
            error = self._value_error(trial.point, trial.norm, series, value)
            size = slope_size(value + error)
        delta = self.errors.vector(series, size, trial.norm)
        self._cuts.append(_Cut(value, error, trial.point, trial.norm, delta))
        step = self._padded(trial.point) - self._padded(self._point)
        if trial.moved > 2 * self.errors.weights:
            old = np.eye(1, count, self._gradient_vector)[0]
            self._pairs.append((step, newest - old))
            del self._pairs[:-_MEMORY]
        if self.squared and self._at_point(count - 1) > self._at_point(self._gradient_vector):
            # No better: but what the gradient changed by is known now, and so is another cut.
            self._prove()
            return
        self._point, self._gradient_vector = trial.point, count - 1
        self._scores = min(scores, self.errors.bounds.row_norm * trial.norm)
        self._prove()

    def _at_point(self, number: int) -> float:
        cut = self._cut(number)
        return cut.value + 0.5 * self.lam * self._dot(cut.point, cut.point)

    # ── what is proved ────────────────────────────────────────────────────────────────────

    @property
    def model(self) -> int:
        """The number of the vector whose point is the model."""
        return self._model

    @property
    def model_norm(self) -> float:
        """Above the norm of its weights."""
        return self._cut(self._model).norm

    @property
    def gap(self) -> float:
        """(P − D)/P, from above."""
        primal, dual = self.proof
        return max(0.0, primal - dual) / primal if primal > 0 else 0.0

    def turn(self, lam: float) -> None:
        """Go on with another λ: all cuts hold, bounds begin anew."""
        lam *= self.share
        self.lam, self.dual, self.proof = lam, 0.0, (math.inf, 0.0)
        self._pairs.clear()
        self._prove()

    def _prove(self) -> None:
        """P at the point from above, and the best bound of P* from below."""
        cut = self._cut(self._gradient_vector)
        point = self._padded(cut.point)
        square = self._dot(point, point)
        doubt = cut.value_error + 0.5 * self.lam * self._dot_error(point, point)
        value = cut.value + 0.5 * self.lam * max(square, 0.0)
        self.primal = value + doubt
        slope = self._longest_norm(self._gradient) + cut.vector_error
        slope += self.lam * self.errors.weights
        # P is λ-strongly convex: P − P* ≤ ‖∇P‖²/(2λ).
        most = slope**2 / (2 * self.lam)
        self.dual = max(self.dual, value - doubt - most, self._bundle())
        # That bound holds whatever P is: beside the least that P can be, its doubt counts once.
        for proof in ((self.primal, self.dual), (value - doubt, value - doubt - most)):
            if _relative_gap(proof) <= _relative_gap(self.proof):
                self.proof, self._model = proof, self._gradient_vector

    def _bundle(self) -> float:
        """The minimum of the greatest of all cuts, and λ/2 ‖w‖².

        The optimum lies within a known distance of every point of a cut; by so much, at most, may
        an error of its vector move the cut there.
        """
        cuts = [(number, cut) for number, cut in enumerate(self._cuts) if cut is not None]
        if len(cuts) < 3:
            return 0.0
        far = math.sqrt(2 * max(self.primal, 0.0) / self.lam)
        heights = []
        for number, cut in cuts:
            above = self._at_point(number) + cut.value_error - self.dual
            above += self.lam * self._dot_error(cut.point, cut.point)
            near = math.sqrt(2 * max(above, 0.0) / self.lam)
            unit = np.eye(1, len(self._gram), number)[0]
            tilt = self._dot(unit, cut.point)
            doubt = cut.value_error + self._dot_error(unit, cut.point)
            doubt += cut.vector_error * min(near, far + cut.norm)
            heights.append(cut.value - tilt - doubt)
        master = Master(1)
        count, places = len(heights), [number for number, _ in cuts]
        gram = self._gram[np.ix_(places, places)]
        master.add(np.zeros((count, 0)), gram, np.array(heights), np.zeros(count, np.int64))
        weights = np.clip(master.solve(tolerance=1e-12, scale=1.0 / self.lam).mu, 0.0, None)
        weights /= max(1.0, weights.sum())
        mixed = np.zeros(len(self._gram))
        mixed[places] = weights
        square = self._dot(mixed, mixed) + self._dot_error(mixed, mixed)
        return float(weights @ np.array(heights) - square / (2 * self.lam))


def _relative_gap(proof: tuple[float, float]) -> float:
    primal, dual = proof
    return (primal - dual) / primal if 0 < primal < math.inf else math.inf


def factors_of(trials: list[Trial], vectors: int) -> NDArray[np.int64]:
    """(vectors × problems) whole coefficients."""
    out = np.zeros((vectors, len(trials)), np.int64)
    for problem, trial in enumerate(trials):
        out[: len(trial.factors), problem] = trial.factors
    return out
