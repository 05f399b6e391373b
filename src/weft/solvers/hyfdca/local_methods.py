"""The local dual methods: which samples a party draws, and how far α moves at them.

Each object is built once at a party. A method is asked for the change of α at some local rows:
what the paper calls Δα_k. γ_t and the average over |B_i| are applied later, except in ``safe``,
where all holders take the same full step.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints, Slots
from weft.losses import Loss
from weft.matching.party_view import PartyView
from weft.protocol.declared_message_fields import malformed
from weft.solvers.run_settings import Settings
from weft.solvers.shared_sample_draws import cohort_draws, cohort_window, party_window

#: Times ``min_batch`` samples are drawn of a cohort at least: not all that are drawn change.
_ENLARGED = 10
#: The most of an exposed cohort that is drawn at once. If all its samples always moved, those at
#: an even speed would cancel in differences of differences of sums, and single ones stand out.
_MOST_DRAWN = 0.7


# ── how far α moves ───────────────────────────────────────────────────────────────────────


class LocalMethod(ABC):
    """Change of α at given rows, from their inner products z."""

    @abstractmethod
    def change(
        self, slots: Slots | None, alpha: Floats, z: Floats, y: Floats, gamma: float
    ) -> Floats:
        """Δα for rows whose current values are ``alpha``, ``z``, ``y``."""


class Practical(LocalMethod):
    """Algorithm 5: the dual step with curvature 1/(λN), as if ‖x_i‖ = 1 and nobody else moved."""

    def __init__(self, loss: Loss, lam: float, n_samples: int) -> None:
        self._loss = loss
        self._q = 1.0 / (lam * n_samples)

    def change(
        self, slots: Slots | None, alpha: Floats, z: Floats, y: Floats, gamma: float
    ) -> Floats:
        return self._loss.dual_step(alpha, z, y, self._q) - alpha


class Theory(LocalMethod):
    """Algorithm 3: a step towards u = −l'(z), as long as the theorems allow.

    s = argmax over [0, 1] of −l*(−(α + s d)) − s d z − (s d)²/(2λ) with d = cγ(u − α). In
    δ = s d this is the dual step with curvature 1/λ, and a concave function of one variable
    is largest, between 0 and d, at the point nearest to its free maximum.
    """

    def __init__(self, loss: Loss, lam: float, share: float) -> None:
        self._loss = loss
        self._q = 1.0 / lam
        self._share = share

    def change(
        self, slots: Slots | None, alpha: Floats, z: Floats, y: Floats, gamma: float
    ) -> Floats:
        direction = self._share * gamma * (self._loss.u(z, y) - alpha)
        free = self._loss.dual_step(alpha, z, y, self._q) - alpha
        limited = np.clip(free, np.minimum(direction, 0.0), np.maximum(direction, 0.0))
        return limited / gamma


class Safe(LocalMethod):
    """Ours: the dual step with curvature q_i = β_c ‖x_i‖² / (λN).

    β_c = 1 − (b_c − 1)/(n_c − 1) + (b_c/n_c) ω for a cohort of n_c samples of which b_c are
    drawn, with ω ≥ ‖X̃‖² for X̃ = the rows scaled to norm 1: the expected separable
    over-approximation of mini-batch dual ascent (Qu and Richtárik, 2016) for draws per cohort.
    β = 1 would be Algorithm 5's curvature, β = N that of Algorithm 3.
    """

    def __init__(
        self,
        loss: Loss,
        lam: float,
        n_samples: int,
        norms: Floats,
        drawn: Ints,
        sizes: Ints,
    ) -> None:
        self._loss = loss
        self._unit = norms / (lam * n_samples)
        self._drawn = drawn
        self._sizes = sizes
        self._q = self._unit
        self._omega = 0.0

    def set_omega(self, omega: float) -> None:
        """Use this bound ω; costs nothing while it stays the same."""
        if omega == self._omega:
            return
        self._omega = omega
        n, b = self._sizes, self._drawn
        beta = 1.0 - (b - 1) / np.maximum(n - 1, 1) + b / n * omega
        beta = np.where(b >= n, omega, beta)
        # With cohort bounds far above the norms ω can be tiny; a curvature of zero is no step rule.
        self._q = self._unit * np.repeat(np.maximum(beta, 1e-12), n)[:, None]

    def change(
        self, slots: Slots | None, alpha: Floats, z: Floats, y: Floats, gamma: float
    ) -> Floats:
        q = self._q if slots is None else self._q.take(slots, axis=0)
        return self._loss.dual_step(alpha, z, y, q) - alpha


# ── which samples ─────────────────────────────────────────────────────────────────────────


class Turn(msgspec.Struct, frozen=True):
    """The local rows of one iteration.

    Attributes
    ----------
    window
        Shared rows whose partial products are sent; None: all shared rows.
    want
        Shared rows whose totals are wanted back; None: all shared rows.
    drawn
        Rows that this party moves, shared ones first; None: all its rows.
    shared, private
        The two parts of ``drawn``.
    drawn_in_want
        Where the shared part lies among ``want``; None: it is ``want``.
    every
        Whether all rows are in play, for a certificate.
    """

    window: Slots | None
    want: Slots | None
    drawn: Slots | None
    shared: Slots
    private: Slots
    drawn_in_want: Slots | None
    every: bool


class Drawing(ABC):
    """Draws of one party, and what it must know of the others'."""

    def __init__(self, settings: Settings, party_view: PartyView) -> None:
        self._seed = settings.seed
        self._view = party_view
        labelled = np.flatnonzero(party_view.labelled[party_view.row_cohort]).astype(np.int32)
        #: Rows this party has labels for.
        self.labelled_rows: Slots = labelled
        self.private_rows: Slots = np.arange(
            party_view.n_shared_rows, party_view.n_rows, dtype=np.int32
        )
        self._all_labelled = len(labelled) == party_view.n_rows
        self._shared_labelled = labelled[labelled < party_view.n_shared_rows]
        if not self._all_labelled:
            self._position = np.full(party_view.n_shared_rows, -1, np.int32)
            self._position[self._shared_labelled] = np.arange(len(self._shared_labelled))

    #: Samples drawn per cohort and iteration.
    counts: Ints
    #: Whether every iteration draws everything.
    whole: bool

    @abstractmethod
    def _rows(self, iteration: int, ahead: int) -> tuple[Slots, Slots, Slots]:
        """Shared and private rows moved here; shared rows to send, the former first."""

    def turn(self, iteration: int, ahead: int, every: bool) -> Turn:
        """The rows of ``iteration``.

        Parameters
        ----------
        ahead
            Send partial products also for the draws of the next ``ahead`` − 1 iterations: if
            this party is absent then, its stored contribution is as fresh as can be.
        """
        if ahead < 1:
            # Compiled code would write beyond a window that has no room for what is drawn now.
            raise malformed("ahead", "is no number of iterations")
        if self.whole:
            return self._whole_turn(every)
        shared, private, window = self._rows(iteration, 1 if every else ahead)
        drawn = np.concatenate([shared, private]) if len(private) else shared
        if every:
            want = None if self._all_labelled else self._shared_labelled
            where = shared if self._all_labelled else self._position[shared]
            return Turn(None, want, drawn, shared, private, where, True)
        want = window if len(window) == len(shared) else shared
        return Turn(window, want, drawn, shared, private, None, False)

    def _whole_turn(self, every: bool) -> Turn:
        want = None if self._all_labelled else self._shared_labelled
        drawn = None if self._all_labelled else self.labelled_rows
        return Turn(None, want, drawn, self._shared_labelled, self.private_rows, None, every)


class CohortDrawing(Drawing):
    """``safe``: ⌈iic · size⌉ samples of every cohort, the same for all its holders."""

    def __init__(self, settings: Settings, party_view: PartyView) -> None:
        super().__init__(settings, party_view)
        drawn = np.ceil(settings.iic * party_view.sizes - 1e-9).astype(np.int64)
        self.counts = np.minimum(party_view.sizes, drawn)
        if party_view.exposed.any():
            # Of few samples too few would change for a guard to let them.
            more = np.maximum(self.counts, _ENLARGED * party_view.min_batch)
            most = np.maximum(party_view.sizes * _MOST_DRAWN, 1).astype(np.int64)
            self.counts = np.where(party_view.exposed, np.minimum(more, most), self.counts)
        self.whole = bool((self.counts == party_view.sizes).all())
        shared = party_view.cohort_start[:-1] < party_view.n_shared_rows
        self._movable = self._cohorts(shared & party_view.labelled)
        self._shared = self._cohorts(shared)
        self._private = self._cohorts(~shared)
        self._alone = len(self._movable) == len(self._shared)
        #: Shared rows drawn here, and by anybody, in one iteration.
        self._moved, self._in_window = int(self._movable[:, 3].sum()), int(self._shared[:, 3].sum())

    def _cohorts(self, which: NDArray[np.bool_]) -> Ints:
        party_view = self._view
        columns = (party_view.cohort, party_view.cohort_start[:-1], party_view.sizes, self.counts)
        return np.stack([column[which] for column in columns], axis=1)

    def _rows(self, iteration: int, ahead: int) -> tuple[Slots, Slots, Slots]:
        private = _NONE
        if len(self._private):
            private = cohort_draws(self._seed, iteration, self._private)
        others, more = self._shared, ahead * self._in_window
        if ahead == 1 and self._alone:
            # What is drawn here is the window.
            others, more = self._shared[:0], 0
        shared, window = np.empty(self._moved, np.int32), np.empty(self._moved + more, np.int32)
        end = cohort_window(
            self._seed,
            iteration,
            ahead,
            self._movable,
            others,
            self._view.n_shared_rows,
            shared,
            window,
        )
        return shared, private, window[:end]


class PartyDrawing(Drawing):
    """``practical`` and ``theory``: H samples per party, as in the paper."""

    def __init__(self, settings: Settings, party_view: PartyView) -> None:
        super().__init__(settings, party_view)
        everyone = np.append(party_view.other_rows, len(self.labelled_rows))
        h = math.ceil(settings.iic * party_view.n_samples / party_view.n_parties - 1e-9)
        drawn = np.minimum(everyone, h)
        if party_view.min_batch > 1:
            # Whose samples are exposed only they know themselves: so this is for all parties.
            drawn = np.minimum(drawn, np.maximum(everyone * _MOST_DRAWN, 1).astype(np.int64))
        self._h = int(drawn[-1])
        columns = (
            party_view.other_party,
            party_view.other_rows,
            drawn[:-1],
            party_view.other_offset,
            party_view.other_size,
            party_view.other_start,
        )
        self._others = np.stack(columns, axis=1)
        _, first = np.unique(party_view.other_party, return_index=True)
        #: Shared rows that are drawn in one iteration, at most.
        self._most = self._h + int(drawn[:-1][first].sum())
        self.counts = np.minimum(party_view.sizes, self._h)
        self.whole = bool((everyone == drawn).all())

    def _rows(self, iteration: int, ahead: int) -> tuple[Slots, Slots, Slots]:
        rows, window = np.empty(self._h, np.int32), np.empty(self._most * ahead, np.int32)
        shared, end = party_window(
            self._seed,
            iteration,
            ahead,
            self._view.party,
            self.labelled_rows,
            self._h,
            self._view.n_shared_rows,
            self._others,
            rows,
            window,
        )
        return rows[:shared], rows[shared:], window[:end]


_NONE = np.zeros(0, np.int32)


def drawing_of(settings: Settings, party_view: PartyView) -> Drawing:
    """The drawing that goes with the local method."""
    return (CohortDrawing if settings.local == "safe" else PartyDrawing)(settings, party_view)
