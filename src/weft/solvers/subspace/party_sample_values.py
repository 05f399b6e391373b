"""What a party knows about its samples: z, dual vectors and losses, where it has labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.arrays_outside_heap import lasting_zeros
from weft.fast_small_array_operations import side_by_side
from weft.losses import Softmax
from weft.solvers.label_classes_for_guards import kinds_of_classes
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.cap_sample_share_of_moments import levelled, spread_weights, unsteady
from weft.solvers.subspace.class_fold_problems import ALWAYS, Problems
from weft.solvers.subspace.dual_ascent_with_approximate_gram import ascended
from weft.solvers.subspace.held_out_quality_per_fold import HeldOut
from weft.solvers.subspace.party_mixtures_of_dual_vectors import DualMixtures
from weft.solvers.subspace.rounding_allowed_by_gap import in_few_digits
from weft.solvers.subspace.slopes_at_kinks_for_min_batch import Kinks
from weft.solvers.subspace.vectors_kept_by_party import Vectors, add_scaled, padded
from weft.sums.party_contribution import Wire

#: How many times the samples that must change may change along, at first and at most.
FACTORS = (1.0, 1.5, 2.0, 3.0, 5.0)
#: A probability below which there is none to share out.
_NOTHING = 1e-9
#: The largest loss in a table.
_LARGEST = 2.0**40


class Rows:
    """z of the current point, the way to a target, and what lies on it.

    Everything here is zero in rows without a label: their holders learn dual vectors from
    others.
    """

    def __init__(self, context: PartyContext, settings: Settings, problems: Problems) -> None:
        view = context.view
        self._table = context.table
        self._loss = settings.make_loss()
        self._problems = problems
        self.width = problems.width
        self._n_samples = view.n_samples
        self._n_columns = view.n_columns
        self._cohort_start = view.cohort_start
        self.labelled: NDArray[np.bool_] = view.labelled[view.row_cohort]
        mine = np.flatnonzero(self.labelled[: view.n_shared_rows]).astype(np.int32)
        #: Shared rows with a label here; None: all of them.
        self.labelled_shared = None if len(mine) == view.n_shared_rows else mine
        self._classes = context.labels
        self._labels = context.labels
        if problems.folds:
            self._labels = np.ascontiguousarray(context.labels[:, problems.class_of])
        #: The same as problems × classes, where all classes have one loss.
        self._truth = problems.by_class(self._labels)
        self._folds = context.folds
        training = None if context.folds is None else problems.training(context.folds)
        if not view.trained_rows.all():
            known = np.repeat(view.trained_rows[:, None], problems.width, axis=1)
            training = known if training is None else training & known
        self._training = training
        #: What is added to z of every row, and how often its loss counts; None: 0 and 1.
        self._offset: Floats | None = None
        self._weight: Floats | None = None
        if context.given is not None:
            there = self.labelled[:, None]
            self._offset = np.where(there, context.given.offset, 0.0)
            self._weight = np.where(there, context.given.weight, 1.0)
        self._chosen = view.counted_rows
        counted = np.flatnonzero(view.counted_rows)
        self._count = len(counted)
        #: A range, where they are one: what is chosen by it is no copy.
        self._counted: Ints | slice = counted
        if self._count and int(counted[-1] - counted[0]) + 1 == self._count:
            self._counted = slice(int(counted[0]), int(counted[-1]) + 1)
        # Vectors where the run begins: most runs only read them, and then they take no memory.
        zeros = lasting_zeros((view.n_rows, problems.width))
        #: Widths over which kinks are rounded off, per problem; None: they are not.
        self.rounding: Floats | None = None
        self._least = view.min_batch
        self.vectors = Vectors(zeros, short=in_few_digits(view.n_samples, settings))
        #: The constant column, where the intercept is free.
        self._constant: Floats | None = None
        if context.bias is not None and settings.frees_intercept(True):
            there = self.labelled & ~view.left_out
            self._constant = np.where(there[:, None], context.bias, zeros)
            self.vectors.append([self._constant])
        self._z = self.scores(zeros.copy())
        self._target = zeros
        #: z of further points at which dual vectors are made.
        self._beside: list[Floats] = []
        self._groups = settings.groups
        #: The group of every row; None: they are all in one.
        self.group: NDArray[np.int32] | None = None
        self._of_group: list[NDArray[np.int32]] = []
        if settings.groups > 1:
            # Slots within a cohort are in no order that means anything, and the same to all its
            # holders: so every group has samples of every cohort.
            place = np.arange(view.n_rows) - view.cohort_start[view.row_cohort]
            self.group = (place % settings.groups).astype(np.int32)
            self._of_group = [
                np.flatnonzero(self.group == g).astype(np.int32) for g in range(settings.groups)
            ]
        self.mixtures = DualMixtures(settings, zeros, self.group, alike=context.given is None)

    def atoms(self, row_cohort: NDArray[np.int32]) -> Ints:
        """A number per row for its cohort and group, from its cohort."""
        atoms = row_cohort.astype(np.int64)
        return atoms if self.group is None else atoms * self._groups + self.group

    def kinds_of_samples(self) -> Ints:
        """A number per row, equal where samples weigh the same at w = 0 in all problems."""
        kind = kinds_of_classes(self._classes, self._loss)
        if self._folds is None:
            return kind
        return kind * (self._problems.folds - ALWAYS) + (self._folds.astype(np.int64) - ALWAYS)

    # ── where the run stands ──────────────────────────────────────────────────────────────

    def append(self, z: Floats) -> None:
        """Take Z of new vectors, side by side."""
        parts = side_by_side(z, self._problems.width)
        self.vectors.append([np.ascontiguousarray(part) for part in parts])

    def fold(self, coefficients: Floats, keep: Ints) -> None:
        """Drop vectors; those of a mixture in use are never among them."""
        if len(self.vectors) == len(coefficients):
            self.vectors.fold(coefficients, keep)
        self.mixtures.drop(keep)

    def adopt(self, z: Floats) -> None:
        """Go on from z of the anchor, measured afresh."""
        self._z = self.scores(z)
        self.vectors.renew(z)

    def aim(self, target: Floats, beside: Sequence[Floats] = ()) -> None:
        """Look at the way to a target, and at points beside it, by their z."""
        self._target = self.scores(target)
        self._beside = [self.scores(point) for point in beside]

    def scores(self, z: Floats) -> Floats:
        """z = Xw with the offsets of the rows."""
        return z if self._offset is None else z + self._offset

    @property
    def unlike(self) -> bool:
        """Whether losses of some samples count more often than those of others."""
        weight = None if self._weight is None else self._weight[self.labelled]
        return weight is not None and bool((weight != weight[:1]).any())

    def _weighed(self, a: Floats) -> Floats:
        return a if self._weight is None else a * self._weight

    def move(self, shares: Floats) -> None:
        """Mix the point with the target and points beside: the shares of each, per problem."""
        if (shares[0] != 1.0).any() or shares[1:].any():
            self._z = self._mixed(shares)

    def _mixed(self, shares: Floats) -> Floats:
        z = np.zeros_like(self._z)
        for point, share in zip(self._points, shares, strict=False):
            if share.any():
                add_scaled(z, point, share)
        return z

    @property
    def points(self) -> int:
        """The point, the target, and points beside."""
        return 2 + len(self._beside)

    @property
    def _points(self) -> list[Floats]:
        """z of the point, of the target, and of the points beside."""
        return [self._z, self._target, *self._beside]

    # ── dual vectors ──────────────────────────────────────────────────────────────────────

    def duals_at(self, shares: Floats) -> Floats:
        """−l' at mixtures of points (mixtures × points × problems), side by side.

        Shares are of the point, of the target, and of points beside, where there are any.
        """
        found = [self._trained(self._weighed(self._slopes(self._mixed(s)))) for s in shares]
        return np.hstack(found) if found else np.zeros((len(self._z), 0))

    def _slopes(self, z: Floats) -> Floats:
        if self.rounding is not None:
            return self._loss.rounded_slope(z, self._labels, self.rounding)
        slopes = self._loss.u(self._problems.by_class(z), self._truth)
        return slopes.reshape(z.shape)

    def inside(self, duals: Floats) -> Floats:
        """Dual vectors that were rounded, within the domain of a loss of all classes."""
        if not isinstance(self._loss, Softmax):
            return duals
        parts = []
        for part in side_by_side(duals, self.width):
            scaled = part if self._weight is None else part / self._weight
            likely = self._loss.likeliest(self._problems.by_class(scaled), self._truth)
            a = self._problems.by_class(part)
            parts.append(np.where(likely, a - a.sum(axis=-1, keepdims=True), a).reshape(part.shape))
        return np.hstack(parts)

    def with_kept_classes(
        self, rows: Ints, new: Floats, last: Floats, kept: NDArray[np.bool_], grid: Wire
    ) -> Floats:
        """Dual variables of some rows in which some classes have their last values.

        What is left of the probability goes to the other classes as in ``new``; both are
        (rows × classes), of one problem.
        """
        if kept.sum() + 1 >= len(kept):
            return last
        times = np.ones((len(rows), 1)) if self._weight is None else self._weight[rows]
        mine = np.where(self._classes[rows] > 0, 1.0, 0.0)
        likely, before = mine - new / times, mine - last / times
        others = np.where(kept, 0.0, likely)
        room = 1.0 - np.where(kept, before, 0.0).sum(axis=1, keepdims=True)
        share = others.sum(axis=1, keepdims=True)
        shared = (share > _NOTHING) & (room > _NOTHING)
        others = others * np.where(shared, room / np.where(shared, share, 1.0), 0.0)
        found = np.where(kept, last, grid.on_grid(times * (mine - others)))
        # Rounding goes to the likeliest of the others.
        first = np.arange(len(kept)) == np.where(kept, -1.0, others).argmax(axis=1)[:, None]
        found = np.where(first, found - found.sum(axis=1, keepdims=True), found)
        there = mine.any(axis=1, keepdims=True) & new.any(axis=1, keepdims=True)
        return np.where(shared & there, found, np.where(there, last, 0.0))

    def kinks(self, rows: Ints, problem: int, shares: Floats) -> Kinks:
        """Some rows by their distance to the kink of the loss, in one problem.

        ``shares`` of point, target and points beside say where.
        """
        z = np.zeros(len(rows))
        for point, share in zip(self._points, shares.tolist(), strict=False):
            if share:
                z += share * point[rows, problem]
        return Kinks(self._loss, z, self._labels[rows, problem])

    def trained(self, rows: Ints, problem: int) -> NDArray[np.bool_] | bool:
        """Which rows a problem trains on."""
        return True if self._training is None else self._training[rows, problem]

    def combined(self, coefficients: Floats) -> Floats:
        """z of a combination of vectors, of which the latest may not have come here yet."""
        return self.vectors.combine(padded(coefficients, len(self.vectors)))

    def ascended(self, curvature: Floats) -> Floats:
        """A step of coordinate ascent in all samples at once, from α and its last change on.

        Far too long a step to take; but as one more vector to mix, it points where single
        samples want to go, which subgradients at their kinks cannot say.
        """
        ahead = self.mixtures.ahead
        return self._mine(self._loss.dual_step(ahead, self._target, self._labels, curvature))

    def ascended_in_cohorts(self, curvature: Floats, basis: Floats, overlap: float) -> Floats:
        """Ascent from α in every cohort, by what the newest vectors tell of how samples overlap."""
        used = np.repeat(self.labelled[:, None], self.width, axis=1)
        found = ascended(
            self._loss,
            self.mixtures.alpha,
            self._target,
            self._labels,
            used if self._training is None else used & self._training,
            self._cohort_start,
            self.vectors.newest(len(basis)),
            basis,
            curvature,
            overlap,
            self._least,
        )
        return self._mine(found)

    def _mine(self, a: Floats) -> Floats:
        """Zero where others have the label: they tell what α is there, and it is added."""
        return self._trained(np.where(self.labelled[:, None], a, 0.0))

    def bent(self, direction: Floats) -> Floats:
        """l'' · z of a direction: what the Hessian makes of it."""
        by_class, z = self._problems.by_class, self.vectors.combine(direction)
        found = self._loss.hessian_product(by_class(self._z), self._truth, by_class(z))
        return self._trained(self._weighed(found.reshape(z.shape)))

    def moments(self, step: Floats) -> Floats:
        """1/N Σ l'' Z_j Z_k over the rows counted here, for all pairs j ≤ k: (pairs × problems).

        l'' is that at a step on the way from the point to the target, where ``min_batch`` samples
        for every moment have as much of it, times numbers that are others in every search, and none
        weighs much more than others in any direction. Samples weigh the same otherwise.
        """
        held, counted = len(self.vectors), self._counted
        found = np.zeros((held, held, self.width))
        if self._count:
            z = self._mixed(np.stack([1.0 - step, step]))[counted]
            width = np.ones(self.width) if self.rounding is None else self.rounding
            used = self._trained(np.ones_like(self._z))[counted] > 0.0
            least = 0 if self._least == 1 else self._least * held * (held + 1) // 2
            weights = spread_weights(self._loss, z, self._labels[counted], width, used, least)
            for p in range(self.width):
                columns, weight = self.vectors.columns(p, counted), weights[:, p]
                if least:
                    weight = unsteady(columns, z[:, p], weight)
                    columns, weight = levelled(columns, weight, self._least)
                found[:, :, p] = columns.T @ (columns * weight[:, None])
        return found[np.triu_indices(held)] / self._n_samples

    def _trained(self, a: Floats) -> Floats:
        return a if self._training is None else np.where(self._training, a, 0.0)

    def offsets(self, duals: Floats) -> Floats:
        """−1/N Σ l*(−a) of every vector: (vectors × problems)."""
        width = self._problems.width
        out = np.zeros((self.sums_width(duals.shape[1]) // width, self._problems.count))
        counted, labels = self._counted, self._truth[self._counted]
        for k, part in enumerate(side_by_side(duals[counted], width)):
            values = -self._conjugates(part, labels) / self._n_samples
            for g in range(self._groups):
                mine = values if self.group is None else values[self.group[counted] == g]
                out[k * self._groups + g] = mine.sum(axis=0)
        return out

    def _conjugates(self, a: Floats, labels: Floats) -> Floats:
        """Conjugates of ω l(z + o), of the rows counted here: ω l*(−a/ω) + a o."""
        by_class = self._problems.by_class
        if self._weight is None or self._offset is None:
            return self._loss.conjugate_inside(by_class(a), labels)
        weight, offset = self._weight[self._counted], self._offset[self._counted]
        found = self._loss.conjugate_inside(by_class(a / weight), labels)
        return weight * found + self._problems.summed(a * offset)

    def entries(self, duals: Floats) -> Floats | None:
        """Entries of the new b's at a free intercept (vectors × problems); None: it is not.

        As exact as α, where b itself has the digits of its sums.
        """
        if self._constant is None:
            return None
        chosen = self._constant[self._chosen]
        parts = side_by_side(duals[self._chosen], self._problems.width)
        return np.stack([(part * chosen).sum(axis=0) for part in parts]) / self._n_samples

    def cross(self, duals: Floats) -> Floats:
        """Inner products of the new b's with those held: b_j·b = Z_jᵀa/N."""
        parts = side_by_side(duals, self._problems.width)
        products = self.vectors.products(parts, self._chosen)
        return self._problems.summed(products) / self._n_samples

    def sums_width(self, width: int) -> int:
        """Columns of the feature sums of ``width`` columns of dual vectors."""
        return width * self._groups

    def feature_sums(self, duals: Floats) -> Floats:
        """Xᵀa over this party's cells, for every vector and group of rows."""
        if self._groups == 1:
            out = np.zeros((self._n_columns, duals.shape[1]))
            self._table.accumulate(None, duals, out)
            return out
        width = self._problems.width
        count = duals.shape[1] // width
        sums = np.zeros((self._n_columns, count, self._groups, width))
        for g, slots in enumerate(self._of_group):
            part = np.zeros((self._n_columns, duals.shape[1]))
            self._table.accumulate(slots, duals[slots], part)
            sums[:, :, g] = part.reshape(-1, count, width)
        return sums.reshape(self._n_columns, -1)

    # ── losses ────────────────────────────────────────────────────────────────────────────

    def losses_along(self, steps: Floats) -> Floats:
        """1/N Σ l at mixtures of the point with one other, over the rows counted here.

        From (steps × points × problems) to (steps × problems).
        """
        by_class = self._problems.by_class
        used: Any = self._in_problems
        if self._weight is not None:
            used = np.repeat(self._weight, self._problems.count, axis=1)
            used = used if self._in_problems is None else used * self._in_problems
        chosen = self._counted if self._count < len(self._z) else slice(None)
        z, labels = by_class(self._z[chosen]), self._truth[chosen]
        used = None if used is None else used[chosen]
        losses = np.zeros((len(steps), self._problems.count))
        # To stay is a step on the way to the target.
        other = steps[:, 1:].any(axis=2).argmax(axis=1)
        for k in np.unique(other).tolist():
            towards = by_class(self._points[1 + k][chosen])
            some = by_class(steps[other == k][:, [0, 1 + k]])
            losses[other == k] = self._loss.table(z, towards, labels, some, used)
        # Far off the way a loss may be too large to be added; it only has to be large.
        return np.minimum(losses / self._n_samples, _LARGEST)

    def losses_at(self, z: Floats) -> Floats:
        """1/N Σ l of a point measured afresh, over the rows counted here."""
        z = self.scores(z)
        losses = self._loss.value(self._problems.by_class(z), self._truth)
        losses = self._weighed(losses)[self._counted]
        if self._in_problems is not None:
            losses = losses * self._in_problems[self._counted]
        total: Floats = losses.sum(axis=0) / self._n_samples
        return total

    def training_sizes(self) -> Floats:
        """How many of the rows counted here each problem trains on."""
        if self._in_problems is None:
            return np.full(self._problems.count, float(self._count))
        total: Floats = self._in_problems[self._counted].sum(axis=0).astype(np.float64)
        return total

    @property
    def _in_problems(self) -> NDArray[np.bool_] | None:
        """Per row and problem, whether the row is trained on; None: all are, always."""
        if self._training is None or not self._problems.joint:
            return self._training
        return self._training[:, :: self._problems.classes]

    def held_out(self, z: Floats) -> HeldOut:
        """The rows counted here that some fold leaves out, with scores of that fold's model."""
        assert self._folds is not None
        rows = np.flatnonzero(self._chosen & (self._folds >= 0))
        fold = self._folds[rows].astype(np.int64)
        classes = self._problems.classes
        column = (fold[:, None] + 1) * classes + np.arange(classes)
        scores = np.take_along_axis(self.scores(z)[rows], column, axis=1)
        return HeldOut(rows, fold, scores, self._classes[rows])
