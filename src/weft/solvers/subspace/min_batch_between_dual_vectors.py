"""``min_batch`` for dual vectors: enough samples of a cohort change together, or none does."""

from __future__ import annotations

from typing import Self

import numpy as np

from weft.array_types import Flags, Floats, Ints
from weft.errors import ConfigError, ProtocolError
from weft.guards.distinct_pairs_with_counts import number_pairs
from weft.guards.min_batch_between_sums import SeenBatches
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.loss_points_and_directions_limit import may_tell_moments
from weft.solvers.subspace.party_sample_values import FACTORS, Rows
from weft.solvers.subspace.rounding_allowed_by_gap import in_few_digits
from weft.sums.party_contribution import Wire


class Guard:
    """Sees to it that no two sums of dual vectors that others get differ by a few samples.

    Vectors of all problems that are trained together count, one against the other.

    Where too few samples would change, more are let change along next to the kink of the loss,
    at little cost. Where that does not do, they keep the values of the last vector.

    Attributes
    ----------
    batches
        What others have seen sums of, group of samples by group.
    restrained
        Cohorts, of those whose losses are counted here, that were not free in the last vectors.
    """

    def __init__(
        self,
        batches: SeenBatches,
        context: PartyContext,
        settings: Settings,
        rows: Rows,
        grid: Wire,
    ) -> None:
        self.batches = batches
        self._counts = context.view.counts
        self._groups = settings.groups
        self._width = rows.width
        self._rows = rows
        self._grid = grid
        loss = settings.make_loss()
        self._kinks = not loss.smooth
        #: Columns of a dual vector that change together.
        self._classes = context.labels.shape[1] if loss.joint else 1
        self.restrained = 0

    @classmethod
    def of(cls, context: PartyContext, settings: Settings, rows: Rows, grid: Wire) -> Self | None:
        """The guard of a party; None: it has no samples that must change together.

        Where no other party sees sums of a cohort, the coordinator has inner products of them all
        the same. With a smooth loss, or a kink that may be rounded off, all samples move a little
        at every step, and keeping vectors apart there costs nothing; with kinks few do near the
        optimum, and it would end runs early.

        ``grid`` is what dual variables travel on.
        """
        view = context.view
        guarded = (view.guarded_cohort >= 0) & view.trained_rows
        every = rows.atoms(view.row_cohort)
        atom = np.where(guarded, every, -1)
        kind = rows.kinds_of_samples()
        _refuse_rare(atom, kind, view.min_batch, settings.groups)
        smooth = settings.make_loss().smooth
        # All holders of a cohort must come to the same vectors, so none may go by its own counts.
        if smooth or may_tell_moments(settings):
            told = np.where(view.trained_rows & ~guarded, every, -1)
            atom = np.maximum(atom, _large_enough(told, kind, view.min_batch))
        if not (atom >= 0).any():
            return None
        # Next to a kink few samples move, and by little: that takes all digits.
        short = smooth and in_few_digits(view.n_samples, settings)
        batches = SeenBatches(atom, view.min_batch, rows.width, kind, short=short)
        return cls(batches, context, settings, rows, grid)

    def keep(self, duals: Floats, shares: Floats | None) -> None:
        """Change, in place, new dual vectors that others will see sums of.

        ``shares`` of points (vectors × points × problems) say where they were taken; None:
        they are no slopes of the loss.
        """
        restrained = np.zeros(len(self.batches.atoms), bool)
        apart = None
        if shares is not None and self._kinks:
            lacking, apart = self.batches.lacking(duals)
            for atom, column in np.argwhere(lacking).tolist():
                vector, problem = divmod(column, self._width)
                self._soften(duals, atom, column, shares[vector, :, problem])
                # What lacks is known to be apart from none: `admit` judges it as it is now.
                restrained[atom] = True
        if shares is not None and self._classes > 1:
            restrained |= self._hold_classes(duals)
        restrained |= self.batches.admit(duals, apart, dual=shares is not None)
        cohorts = self.batches.atoms[restrained] // self._groups
        self.restrained = int(self._counts[cohorts].sum())

    def _hold_classes(self, duals: Floats) -> Flags:
        """Let single classes of a joint loss keep their last values, and the others make room.

        Values of some classes with older ones of others would be no dual variables. Returns which
        atoms were held back.
        """
        wanted = duals.copy()
        kept = np.zeros((len(self.batches.atoms), duals.shape[1]), bool)
        while True:
            tried = duals.copy()
            held = np.flatnonzero(self.batches.restrain(tried))
            for atom in held.tolist():
                rows = self.batches.rows_of(atom)
                kept[atom] |= (tried[rows] != duals[rows]).any(axis=0)
                last = self.batches.last_values(atom, duals.shape[1])
                for first in range(0, duals.shape[1], self._classes):
                    columns = slice(first, first + self._classes)
                    if (some := kept[atom, columns]).any():
                        duals[rows, columns] = self._rows.with_kept_classes(
                            rows, wanted[rows, columns], last[:, columns], some, self._grid
                        )
            if not len(held):
                return np.asarray(kept.any(axis=1))

    def note(self, duals: Floats) -> None:
        """Dual vectors that others have seen sums of already: what comes next keeps apart."""
        self.batches.note(duals)
        self.restrained = 0

    def _soften(self, duals: Floats, atom: int, column: int, shares: Floats) -> None:
        """Change as few more samples of an atom as it takes."""
        rows, least = self.batches.rows_of(atom), self.batches.least
        problem = column % self._width
        kinks, used = self._rows.kinks(rows, problem, shares), self._rows.trained(rows, problem)
        for factor in FACTORS:
            soft = np.where(used, kinks.soften(duals[rows, column], factor * least), 0.0)
            soft = self._grid.on_grid(soft)
            if self.batches.fits(atom, column, soft):
                duals[rows, column] = soft
                return


class ToldVectors:
    """Dual vectors of samples whose labels others have, as this party was told them.

    Whoever made them kept them apart; whoever carries them might choose among them.
    """

    def __init__(self, batches: SeenBatches) -> None:
        self._batches = batches

    @classmethod
    def of(cls, context: PartyContext, settings: Settings, rows: Rows) -> Self | None:
        """None: there are no such samples of which anybody else sees sums."""
        view = context.view
        guarded = (view.guarded_cohort >= 0) & ~rows.labelled
        if not guarded.any():
            return None
        atom = np.where(guarded, rows.atoms(view.row_cohort), -1)
        batches = SeenBatches(atom, view.min_batch, rows.width)
        batches.note(np.zeros((view.n_rows, 1)))
        return cls(batches)

    def take(self, told: Floats) -> None:
        """Refuse vectors that differ in too few samples from each other, or from earlier ones."""
        for column in np.split(told, told.shape[1], axis=1):
            if self._batches.hold_apart(column.copy(), np.zeros_like(column)).any():
                raise ProtocolError("a message brings dual vectors that are too close to others")
            self._batches.note(column)


def _large_enough(atom: Ints, kind: Ints, least: int) -> Ints:
    """Atoms of samples of whose kind enough are in theirs to change together; −1 for others."""
    if least == 1 or not (atom >= 0).any():
        return np.full_like(atom, -1)
    number, count = number_pairs(atom, kind)
    return np.where((count < least)[number], -1, atom)


def _refuse_rare(atom: Ints, kind: Ints, least: int, groups: int) -> None:
    """Refuse groups that cut a class into parts of too few samples, each with a sum of its own."""
    if groups == 1:
        return
    judged = atom >= 0
    if number_pairs(atom[judged], kind[judged])[1].min(initial=least) < least:
        raise ConfigError(
            f"groups = {groups} cuts a class into parts of fewer than min_batch = {least} samples; "
            "use fewer groups"
        )
