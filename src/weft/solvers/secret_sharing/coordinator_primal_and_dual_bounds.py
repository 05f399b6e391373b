"""What is proved of one problem: P at its points from above, and P* from below."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from weft.array_types import Floats, Ints
from weft.solvers.secret_sharing.digit_widths import Errors
from weft.solvers.secret_sharing.gram_matrix_with_error_bounds import VectorProducts
from weft.solvers.secret_sharing.lower_bound_from_cuts import Cut, CutBounds, Span
from weft.sums.gap_certificate import MeasuredLoss

#: A gap above which it says little of which point is the best: P is known to 1e-5 of itself only.
_SAYS_LITTLE = 0.1
#: Above this, as errors leave it at a small λ, gaps that are so much alike say nothing either.
_NOT_SMALL, _ALIKE = 2e-3, 1.1


class _Measured(NamedTuple):
    """A point: (‖∇P‖ + δ)²/(2λ), its vector, above P, below P, and how far P can be above P*.

    The last is above ‖∇P‖, the entry at a free intercept among the others.
    """

    steepness: float
    number: int
    primal: float
    least: float
    most: float
    slope: float


class ReleasedPoint(NamedTuple):
    """What is known of a model of one problem.

    Attributes
    ----------
    norm
        Of its weights at most.
    scores
        None is farther from the centre, of a Poisson model.
    value
        Its mean loss at most.
    """

    norm: float
    scores: float
    value: float


@dataclass
class CertifiedPoints:
    """One class on all samples or without a fold: its vectors, the point in hand, the best proof.

    P without a fold f is λ/2 ‖w‖² + 1/N_f Σ l; times N_f/N its sums are parts of all samples, as
    bounds and errors are, and λ is smaller by as much.

    Attributes
    ----------
    share
        N_f/N, of samples trained on.
    start
        The loss at w = 0, in parts of all samples.
    products
        Inner products of all vectors; those know of a free intercept.
    offset
        No score is larger at w = 0.
    exponential
        Whether the loss is that of a Poisson model.
    centre
        Of a free intercept, how much of its vector the point has from which scores are told.
    primal, dual
        Above P at the point, and below P*.
    proof
        P and D as they are certified, at the point with the smallest gap; where that says little,
        as for a small λ, at the one with the smallest gradient.
    """

    errors: Errors
    squared: bool
    lam: float
    share: float
    start: float
    products: VectorProducts = field(default_factory=VectorProducts)
    offset: float = 0.0
    exponential: bool = False
    centre: float = 0.0
    primal: float = math.inf
    dual: float = 0.0
    proof: tuple[float, float] = (math.inf, 0.0)
    #: None: a vector that is no gradient.
    _cuts: list[Cut | None] = field(default_factory=list)
    _point: Floats = field(default_factory=lambda: np.zeros(0))
    #: No score is larger, at every point with a vector.
    _scores_at: dict[int, float] = field(default_factory=dict)
    _gradient_vector: int = 0
    _model: int = 0
    #: Of a free intercept: where the best one can be, and what that leaves of the gap, and what all
    #: other weights leave of it.
    _span: Span = field(default_factory=Span)
    _open: tuple[float, float] = (0.0, 0.0)
    _measured: list[_Measured] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._cuts += [None] * self.products.first
        self._gradient_vector = self._model = self.products.first

    # ── vectors ───────────────────────────────────────────────────────────────────────────

    @property
    def vectors(self) -> int:
        return self.products.count

    def tilt(self, model: int, vector: int) -> float:
        """The inner product of the point where a vector was made, and a vector."""
        return self.products.dot(self._cut(model).point, self.products.unit(vector))

    @property
    def _centre_point(self) -> Floats:
        """Nothing but an intercept: scores are bounded by how far they are from those here."""
        if not self.centre:
            return np.zeros(self.products.count)
        return self.centre * self.products.unit(0)

    def _cut(self, number: int) -> Cut:
        cut = self._cuts[number]
        assert cut is not None
        return cut

    @property
    def _gradient(self) -> Floats:
        return self._gradient_at(self._gradient_vector)

    def _gradient_at(self, number: int) -> Floats:
        """∇P at the point of a vector."""
        products = self.products
        return products.unit(number) + self.lam * products.held(self._cut(number).point)

    @property
    def _labels(self) -> Floats:
        """b_0, the first vector: what labels add to the slopes, the gradient at scores of zero."""
        return self.products.unit(self.products.first)

    @property
    def _value(self) -> float:
        return self._cut(self._gradient_vector).value

    def _take(self, row: Floats, bits: Ints) -> None:
        """Inner products of a new vector with all before it, and with itself."""
        error = np.array([self.errors.product(int(each)) for each in bits])
        self.products.take(row, error)

    def take_aside(self, row: Floats, bits: Ints) -> None:
        """A vector that is no gradient of this problem."""
        self._take(row, bits)
        self._cuts.append(None)

    def _at_point(self, number: int) -> float:
        cut = self._cut(number)
        return cut.value + 0.5 * self.lam * self.products.held_dot(cut.point, cut.point)

    def _is_worse(self, number: int) -> bool:
        """Whether P at the point of a vector is above that at the point in hand.

        Of a squared loss P changes by ½ (∇P + ∇P')·(w' − w), in which noise is as small as the
        step: that of P itself hides all that the last steps bring. What noise hides of the change,
        too, the lengths of both gradients tell.
        """
        if not self.squared:
            return self._at_point(number) > self._at_point(self._gradient_vector)
        products, here, there = self.products, self._gradient, self._gradient_at(number)
        step = products.padded(self._cut(number).point) - products.padded(self._point)
        change = products.dot(step, here + there)
        if abs(change) > products.dot_error(step, here + there):
            return change > 0
        return products.dot(there, there) > products.dot(here, here)

    @property
    def hidden(self) -> bool:
        """Whether noise may be all that is seen of ∇P at the point in hand, of a squared loss."""
        here = self._gradient
        return self.squared and self.products.dot(here, here) <= self.products.dot_error(here, here)

    # ── what is proved ────────────────────────────────────────────────────────────────────

    @property
    def model(self) -> int:
        """The number of the vector whose point is the model."""
        return self._model

    @property
    def released(self) -> ReleasedPoint:
        """What is known of it."""
        cut = self._cut(self._model)
        norm = cut.norm
        if self.centre:
            # The constant column is not rounded.
            norm = self.products.held_longest(cut.point) + self.errors.weights
        scores = self._scores_at.get(self._model, math.inf)
        return ReleasedPoint(norm, scores, cut.value + cut.value_error)

    @property
    def gap(self) -> float:
        """(P − D)/P, from above."""
        primal, dual = self.proof
        return max(0.0, primal - dual) / primal if primal > 0 else 0.0

    @property
    def measured(self) -> MeasuredLoss:
        """The mean loss at the model, which bounds of P are above and below, and its slope."""
        cut = self._cut(self._model)
        slopes = [point.slope for point in self._measured if point.number == self._model]
        return MeasuredLoss(cut.value, cut.value_error, min(slopes, default=math.inf))

    def turn(self, lam: float) -> None:
        """Go on with another λ: all cuts hold, bounds begin anew."""
        lam *= self.share
        self.lam, self.dual, self.proof = lam, 0.0, (math.inf, 0.0)
        self._measured.clear()
        self._span = Span()
        self._prove()

    def _prove(self) -> None:
        """P at the point from above, and the best bound of P* from below."""
        cut, products = self._cut(self._gradient_vector), self.products
        point = products.padded(cut.point)
        square = products.held_dot(point, point)
        doubt = cut.value_error + 0.5 * self.lam * products.held_error(point, point)
        value = cut.value + 0.5 * self.lam * max(square, 0.0)
        self.primal = value + doubt
        bundle = CutBounds(products, self._cuts, self.lam, self.dual).lower(self._span)
        slope = products.held_longest(self._gradient) + cut.vector_error
        slope += self.lam * self.errors.weights
        # P is λ-strongly convex: P − P* ≤ ‖∇P‖²/(2λ), but for a free intercept.
        others = slope**2 / (2 * self.lam)
        self._open = self._intercept_price(cut), others
        most = sum(self._open)
        self.dual = max(self.dual, value - doubt - most, bundle)
        # That bound holds whatever P is: beside the least that P can be, its doubt counts once.
        for proof in ((self.primal, self.dual), (value - doubt, value - doubt - most)):
            if _relative_gap(proof) <= _relative_gap(self.proof):
                self.proof, self._model = proof, self._gradient_vector
        at = self._gradient_vector
        # The vector's own error is in the slope of all weights that λ holds back.
        whole = slope + abs(float(products.entries[at])) + float(products.entry_errors[at])
        self._measured.append(_Measured(others, at, self.primal, value - doubt, most, whole))
        if self.gap > _NOT_SMALL:
            flat = min(self._measured)
            proofs = (flat.primal, self.dual), (flat.least, flat.least - flat.most)
            proof = min(proofs, key=_relative_gap)
            if self.gap > _SAYS_LITTLE or _relative_gap(proof) <= _ALIKE * self.gap:
                self.proof, self._model = proof, flat.number

    def _intercept_price(self, cut: Cut) -> float:
        """How far P may be above P* because a free intercept is not the best one: s(β − β*)."""
        products, span = self.products, self._span
        if not products.free:
            return 0.0
        at, intercept = self._gradient_vector, products.intercept(cut.point)
        entry = float(products.entries[at])
        doubt = abs(entry) * products.intercept_error(cut.point)
        off = cut.vector_error + float(products.entry_errors[at])
        known = max(0.0, entry * intercept + span.price(entry))
        return known + doubt + off * span.farthest(intercept)


def _relative_gap(proof: tuple[float, float]) -> float:
    primal, dual = proof
    return (primal - dual) / primal if 0 < primal < math.inf else math.inf
