"""Lower bounds of P* from cuts: R(w) ≥ value + b·(w − point), at every point with a vector.

The minimum of the greatest of all cuts and λ/2 ‖w‖² is below P*. What the coordinator knows of a
cut is off by little; by so much it is lowered, at the farthest that the optimum can be from it.

Where λ does not hold the intercept β back, a mixture of cuts bounds P* only if its entry s at the
intercept is zero: in general by D + s β at the best β. So mixtures are sought whose entries cancel.
What rounding leaves, and how far entries may be off, is paid for with how far the best intercept
can be. That is known from the same cuts: where their minimum over all other weights is above a P
that was measured, the best intercept is not, nor anywhere beyond.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from weft.array_types import Floats
from weft.solvers.secret_sharing.gram_matrix_with_error_bounds import VectorProducts
from weft.solvers.subspace.bundle_qp import Master
from weft.solvers.subspace.lower_bound_free_intercept import HOLD, balanced

#: Cuts from which on they are worth mixing.
_FEWEST = 3
#: Of small programs, absolute.
_TOLERANCE = 1e-12
#: Distances at which the best intercept is looked for first, and how often others are tried.
_NEAREST, _FARTHER, _MOST_TRIES = 1.0, 4.0, 8
_MOST_HALVINGS = 3


@dataclass(frozen=True)
class Cut:
    """R(w) ≥ value + b·(w − point) at a point where a vector was made."""

    value: float
    value_error: float
    point: Floats
    norm: float
    vector_error: float


@dataclass
class Span:
    """Where the best intercept can be; everywhere at first."""

    low: float = -math.inf
    high: float = math.inf

    def farthest(self, intercept: float) -> float:
        """How far the best one can be from some other."""
        return max(self.high - intercept, intercept - self.low, 0.0)

    def price(self, entry: float) -> float:
        """What a bound D + s β loses at most for an s that is not zero."""
        return 0.0 if entry == 0.0 else max(-entry * self.low, -entry * self.high)


class CutBounds:
    """All cuts of a problem at one λ.

    Parameters
    ----------
    cuts
        By vector; None: a vector that is no gradient.
    dual
        A bound of P* that is known already.
    """

    def __init__(
        self, products: VectorProducts, cuts: list[Cut | None], lam: float, dual: float
    ) -> None:
        self._lam = lam
        known = [(number, cut) for number, cut in enumerate(cuts) if cut is not None]
        self._places = places = np.array([number for number, _ in known])
        points = np.array([products.padded(cut.point) for _, cut in known])
        value, error, norm, self._off = np.array(
            [(cut.value, cut.value_error, cut.norm, cut.vector_error) for _, cut in known]
        ).T
        gram, gram_error = products.held_gram, products.held_gram_error
        self._gram = gram[np.ix_(places, places)]
        self._gram_error = gram_error[np.ix_(places, places)]
        turned, doubt = points @ gram, np.abs(points) @ gram_error
        above = value + error + 0.5 * lam * _most_squares(points, gram, gram_error)
        #: Above P at the best of all points, and so above P*.
        self.primal = float(above.min())
        self._best = int(above.argmin())
        near = np.sqrt(2 * np.maximum(above - dual, 0.0) / lam)
        far = math.sqrt(2 * max(self.primal, 0.0) / lam)
        rows = np.arange(len(places))
        tilt = turned[rows, places] + doubt[rows, places]
        known_at_points = value - error - tilt
        self._heights: Floats = known_at_points - self._off * np.minimum(near, far + norm)
        # Not at the optimum alone, but anywhere between it and the best point.
        apart = np.sqrt(_most_squares(points - points[self._best], gram, gram_error))
        distance = np.minimum(np.maximum(near, apart), far + norm)
        self._lower_heights: Floats = known_at_points - self._off * distance
        #: Of a free intercept: entries of vectors, and where points have it.
        self._free = bool(products.free)
        self._entries = products.entries[places]
        self._entry_off = products.entry_errors[places] + self._off
        self._intercepts: Floats = points @ products.entries
        self._intercept_off = np.abs(points) @ products.entry_errors

    def lower(self, span: Span) -> float:
        """The best bound of P* that these cuts give together; zero: none, which holds too."""
        if len(self._places) < _FEWEST:
            return 0.0
        if not self._free:
            return self._mixed(self._master(self._heights), self._heights)
        self._narrow(span)
        if not math.isfinite(span.high - span.low):
            return 0.0
        far = np.maximum(span.high - self._intercepts, self._intercepts - span.low)
        heights = self._heights - self._entries * self._intercepts
        heights -= self._entry_doubt(np.maximum(far, 0.0))
        master = Master(1)
        gram = self._gram + HOLD * np.outer(self._entries, self._entries)
        self._fill(master, gram, heights)
        centre, entries = self._intercepts[[self._best]], -self._entries[:, None]
        found = balanced(master, entries, heights, self._lam, centre, _TOLERANCE)
        weights = _at_most_one(found.mu)
        return self._value(weights, heights) - span.price(float(weights @ self._entries))

    # ── where the best intercept can be ───────────────────────────────────────────────────

    def _narrow(self, span: Span) -> None:
        """Leave out intercepts at which P is above one that was measured."""
        centre = float(self._intercepts[self._best])
        master = self._master(self._lower_heights)
        span.high = min(span.high, centre + self._edge(master, centre, span.high - centre, 1.0))
        span.low = max(span.low, centre - self._edge(master, centre, centre - span.low, -1.0))

    def _edge(self, master: Master, centre: float, known: float, side: float) -> float:
        """A distance beyond which the best intercept is not; infinite: none was found."""
        if known <= 4 * float(self._intercept_off[self._best]):
            return known
        if not math.isfinite(known):
            for power in range(_MOST_TRIES):
                distance = _NEAREST * _FARTHER**power
                if self._too_far(master, centre + side * distance):
                    return distance
            return math.inf
        for _ in range(_MOST_HALVINGS):
            if not self._too_far(master, centre + side * known / 2):
                break
            known /= 2
        return known

    def _too_far(self, master: Master, intercept: float) -> bool:
        """Whether P is above the best one that was measured, whatever the other weights.

        If the best intercept were there or beyond, P would be no larger on the way to it from the
        best point: cuts must hold on that way.
        """
        away = intercept - self._intercepts
        heights = self._lower_heights + self._entries * away - self._entry_doubt(np.abs(away))
        master.lift(heights)
        return self._mixed(master, heights) > self.primal

    def _entry_doubt(self, far: Floats) -> Floats:
        """What errors of entries, and of intercepts, may take off cuts at such a distance."""
        doubt: Floats = self._entry_off * far + np.abs(self._entries) * self._intercept_off
        return doubt

    # ── mixtures ──────────────────────────────────────────────────────────────────────────

    def _master(self, heights: Floats) -> Master:
        master = Master(1)
        self._fill(master, self._gram, heights)
        return master

    def _fill(self, master: Master, gram: Floats, heights: Floats) -> None:
        count = len(heights)
        master.add(np.zeros((count, 0)), gram, heights, np.zeros(count, np.int64))

    def _mixed(self, master: Master, heights: Floats) -> float:
        """The greatest value of a mixture."""
        found = master.solve(tolerance=_TOLERANCE, scale=1.0 / self._lam).mu
        return self._value(_at_most_one(found), heights)

    def _value(self, weights: Floats, heights: Floats) -> float:
        square = weights @ (self._gram + self._gram_error) @ weights
        return float(weights @ heights - square / (2 * self._lam))


def _most_squares(points: Floats, gram: Floats, gram_error: Floats) -> Floats:
    """Above ‖a‖² of every combination."""
    sizes = np.abs(points)
    squares = ((points @ gram) * points + (sizes @ gram_error) * sizes).sum(axis=1)
    return np.asarray(np.maximum(squares, 0.0))


def _at_most_one(weights: Floats) -> Floats:
    """Weights of a mixture, whatever rounding has made of them: R is at least zero besides."""
    found: Floats = np.clip(weights, 0.0, None)
    return found / max(1.0, float(found.sum()))
