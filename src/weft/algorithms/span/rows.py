"""What a party knows about its samples: z, dual vectors and losses, where it has labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.algorithms.ground import Ground
from weft.algorithms.settings import Settings
from weft.algorithms.span.problems import Problems
from weft.algorithms.span.vectors import Vectors, add_scaled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Rows per band of a table of losses, so that a band stays in the processor's cache.
_BAND = 4096


class Rows:
    """z of the current point, the way to a target, and what lies on it.

    Everything here is zero in rows without a label: their holders learn dual vectors from
    others.
    """

    def __init__(self, ground: Ground, settings: Settings, problems: Problems) -> None:
        seat = ground.seat
        self._table = ground.table
        self._loss = settings.make_loss()
        self._problems = problems
        self._n_samples = seat.n_samples
        self._n_columns = seat.n_columns
        self.labelled: NDArray[np.bool_] = seat.labelled[seat.row_cohort]
        mine = np.flatnonzero(self.labelled[: seat.n_shared_rows]).astype(np.int32)
        #: Shared rows with a label here; None: all of them.
        self.labelled_shared = None if len(mine) == seat.n_shared_rows else mine
        self._classes = ground.labels
        self._labels = np.ascontiguousarray(ground.labels[:, problems.class_of])
        self._folds = ground.folds
        training = None if ground.folds is None else problems.training(ground.folds)
        if not self.labelled.all():
            known = np.repeat(self.labelled[:, None], problems.width, axis=1)
            training = known if training is None else training & known
        self._training = training
        self._chosen = seat.counted_rows
        self._counted = np.flatnonzero(seat.counted_rows)
        zeros = np.zeros((seat.n_rows, problems.width))
        self.vectors = Vectors(zeros)
        self._z = zeros.copy()
        self._way = zeros.copy()
        # Slots within a cohort are in no order that means anything, and the same to all its
        # holders: so every group has samples of every cohort.
        place = np.arange(seat.n_rows) - seat.cohort_start[seat.row_cohort]
        self._groups = settings.groups
        self._group = (place % settings.groups).astype(np.int32)
        self._of_group = [
            np.flatnonzero(self._group == g).astype(np.int32) for g in range(settings.groups)
        ]

    # ── where the run stands ──────────────────────────────────────────────────────────────

    def append(self, z: Floats) -> None:
        """Take Z of new vectors, side by side."""
        count = z.shape[1] // self._problems.width
        self.vectors.append([np.ascontiguousarray(p) for p in np.split(z, count, axis=1)])

    def fold(self, coefficients: Floats, keep: Ints) -> None:
        if len(self.vectors) == len(coefficients):
            self.vectors.fold(coefficients, keep)

    def adopt(self, z: Floats) -> None:
        """Start from z of the anchor."""
        self._z = z
        self.vectors = Vectors(z.copy())

    def aim(self, target: Floats) -> None:
        self._way = target - self._z

    def move(self, steps: Floats) -> None:
        """Go a share of the way to the target."""
        if steps.any():
            add_scaled(self._z, self._way, steps)
            self._way *= 1.0 - steps

    def _at(self, steps: Floats) -> Floats:
        z = self._z.copy()
        add_scaled(z, self._way, steps)
        return z

    # ── dual vectors ──────────────────────────────────────────────────────────────────────

    def duals_at(self, steps: Floats) -> Floats:
        """−l' at some steps along the way, side by side."""
        found = [self._trained(self._loss.u(self._at(some), self._labels)) for some in steps]
        return np.hstack(found) if found else np.zeros((len(self._z), 0))

    def bent(self, direction: Floats) -> Floats:
        """l'' · z of a direction: what the Hessian makes of it."""
        z = self.vectors.combine(direction)
        return self._trained(self._loss.curvature(self._z, self._labels) * z)

    def _trained(self, a: Floats) -> Floats:
        return a if self._training is None else np.where(self._training, a, 0.0)

    def offsets(self, duals: Floats) -> Floats:
        """−1/N Σ l*(−a) of every vector: (vectors × problems)."""
        width = self._problems.width
        out = np.zeros((self.sums_width(duals.shape[1]) // width, width))
        counted, labels = self._counted, self._labels[self._counted]
        for k, part in enumerate(np.split(duals[counted], duals.shape[1] // width, axis=1)):
            values = -self._loss.conjugate(part, labels) / self._n_samples
            for g in range(self._groups):
                mine = values if self._groups == 1 else values[self._group[counted] == g]
                out[k * self._groups + g] = mine.sum(axis=0)
        return out

    def cross(self, duals: Floats) -> Floats:
        """Inner products of the new b's with those held: b_j·b = Z_jᵀa/N."""
        width = self._problems.width
        parts = np.split(duals, duals.shape[1] // width, axis=1)
        return self.vectors.products(parts, self._chosen) / self._n_samples

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
        """1/N Σ l at every step along the way, over the rows counted here: (steps × problems)."""
        out = np.zeros((len(steps), self._problems.width))
        counted = self._counted
        for start in range(0, len(counted), _BAND):
            band = counted[start : start + _BAND]
            z, way, labels = self._z[band], self._way[band], self._labels[band]
            used = None if self._training is None else self._training[band]
            for k, step in enumerate(steps):
                losses = self._loss.value(z + step * way, labels)
                out[k] += losses.sum(axis=0) if used is None else (losses * used).sum(axis=0)
        return out / self._n_samples

    def losses_at(self, z: Floats) -> Floats:
        """1/N Σ l of a point measured afresh, over the rows counted here."""
        losses = self._loss.value(z[self._counted], self._labels[self._counted])
        if self._training is not None:
            losses = losses * self._training[self._counted]
        total: Floats = losses.sum(axis=0) / self._n_samples
        return total

    def training_sizes(self) -> Floats:
        """How many of the rows counted here each problem trains on."""
        if self._training is None:
            return np.full(self._problems.width, float(len(self._counted)))
        total: Floats = self._training[self._counted].sum(axis=0).astype(np.float64)
        return total

    def validation(self, z: Floats) -> Floats:
        """Per fold, over the samples left out: their number, their losses, and how many are
        predicted rightly (for a regression: the squared errors)."""
        classes, counted = self._problems.classes, self._counted
        out = np.zeros((self._problems.folds, 3))
        for fold in range(self._problems.folds):
            assert self._folds is not None
            rows = counted[self._folds[counted] == fold]
            scores = z[rows, (fold + 1) * classes : (fold + 2) * classes]
            truth = self._classes[rows]
            if self._loss.task == "regression":
                good = ((scores - truth) ** 2).sum()
            elif classes == 1:
                good = ((scores >= 0) == (truth > 0)).sum()
            else:
                good = (scores.argmax(axis=1) == truth.argmax(axis=1)).sum()
            out[fold] = len(rows), self._loss.value(scores, truth).sum(), good
        return out
