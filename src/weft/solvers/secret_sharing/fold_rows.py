"""Folds of a sealed run: by row numbers that all parties share, so that nobody tells a word.

Every party zeroes its shares of slopes in rows that a fold leaves out, held by it or not. So folds
cannot follow from ids, as in sums: a fold is a set of row numbers, drawn from what the parties
share and the coordinator lacks. It reads losses of whole folds, and would have an equation about
single samples from every fold if it knew who is in which. The draw is the same in all runs of the
same groups of samples, whatever their seed: losses of other folds would be further equations. To
whoever submitted a run no fold's loss is told, but the total of all: a party knows folds.
Each class of a fold is one more column of weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from weft.array_types import Flags, Floats, Ints
from weft.crypto.primitives.seeded_words import Words
from weft.errors import ConfigError
from weft.solvers.secret_sharing.supported_losses import EXPONENTIAL_LOSSES
from weft.solvers.secret_sharing.table_bounds import rounded_off
from weft.solvers.subspace.class_fold_problems import Problems


def fold_of_rows(row_sizes: Ints, folds: int, draw: Words) -> Ints:
    """The fold of every row: those of every cohort are spread evenly, in the order of a draw."""
    if not folds:
        return np.zeros(int(row_sizes.sum()), np.int64)
    cohort = np.repeat(np.arange(len(row_sizes)), row_sizes)
    order = np.lexsort((draw, cohort))
    found = np.empty(len(cohort), np.int64)
    found[order] = np.arange(len(cohort)) % folds
    return found


def draw_label(row_sizes: Ints, folds: int) -> str:
    """Under which folds are drawn: by how many samples there are of each cohort, and of folds."""
    return f"{folds} folds of {row_sizes.tolist()}"


def rows_of_folds(rows: int, folds: int) -> Ints:
    """How many rows every fold has, whatever the draw."""
    return np.bincount(np.arange(rows) % max(folds, 1), minlength=folds)[:folds]


def with_fold(layout: Problems, problems: Ints) -> Ints:
    """Places of the problems that leave a fold out."""
    return np.flatnonzero(layout.fold_of[problems] >= 0)


def refuse_small(sizes: Sequence[float], least: int) -> None:
    """Refuse folds of so few samples that what is told of them tells of single ones."""
    if min(sizes, default=least) < least:
        raise ConfigError(
            f"folds = {len(sizes)} leaves out fewer than min_batch = {least} samples at once, and "
            "the coordinator reads their losses; use fewer folds"
        )


def refuse_small_classes(sizes: Floats | Ints, folds: int, least: int) -> None:
    """The same by class: a class that a fold does not have at all is none of its."""
    if ((sizes > 0) & (sizes < least)).any():
        raise ConfigError(
            f"folds = {folds} leaves out fewer than min_batch = {least} samples of a class at "
            "once, and the coordinator reads losses by class; use fewer folds, or train with "
            "mode = 'sums'"
        )


#: The same whatever it is that a lone label holder objects to.
FOLDS_UNSAID = (
    "refuses these folds, being the only one with labels: they would leave out too few samples of "
    "a class at once, or others were judged before over these samples; train without folds, or "
    "agree on allow_lone_labels = true"
)


#: What parties tell of the labels that folds leave out, beside their number, see `FoldRows.totals`.
ToldOfLabels = Literal["squares", "classes", "nothing"]


def told_of_labels(loss: str) -> ToldOfLabels:
    if loss == "squared":
        return "squares"
    return "nothing" if loss in EXPONENTIAL_LOSSES else "classes"


def told_of_folds(problems: Problems, told: ToldOfLabels) -> int:
    """How many numbers a party tells of folds, see `FoldRows.totals`."""
    more = {"squares": 1, "classes": _kinds(problems), "nothing": 0}[told]
    return problems.folds * (1 + more)


def _kinds(problems: Problems) -> int:
    """Classes that samples have."""
    return max(2, problems.classes)


@dataclass(frozen=True)
class FoldRows:
    """Which rows every problem trains on, and which its fold leaves out."""

    problems: Problems
    fold: Ints

    @classmethod
    def of(cls, problems: Problems, row_sizes: Ints, draw: Words) -> FoldRows:
        """``draw`` has a random number of every row that all parties know, and nobody else."""
        return cls(problems, fold_of_rows(row_sizes, problems.folds, draw))

    def left_out(self, problems: Ints) -> Flags:
        """(problems × rows) those that a problem's fold leaves out."""
        out: Flags = self.problems.fold_of[problems][:, None] == self.fold[None, :]
        return out

    def totals(self, counted: Ints, labels: Floats, least: int, also: ToldOfLabels) -> list[float]:
        """Per fold, how many of its rows are counted here, and what else is told of them.

        Of a squared loss that is Σy², of counts nothing, else how many are of which class,
        ``least`` for more: whether there are so many in all is all that the coordinator needs to
        know.
        """
        folds = self.problems.folds
        if not folds:
            return []
        of = self.fold[counted]
        told = np.bincount(of, minlength=folds).tolist()
        if also == "squares":
            squares = np.bincount(of, (labels**2).sum(axis=1), minlength=folds)
            told += [rounded_off(square) for square in squares.tolist()]
        elif also == "classes":
            told += np.minimum(self._of_classes(of, labels), least).tolist()
        return [float(value) for value in told]

    def refuse_unsaid(self, counted: Ints, labels: Floats, own: int) -> None:
        """Refuse folds of fewer than ``own`` samples, or of a class, without saying of which.

        ``counted`` are rows with a label, all of which are this party's.
        """
        folds = self.problems.folds
        of = self.fold[counted]
        try:
            refuse_small(np.bincount(of, minlength=folds).tolist(), own)
            refuse_small_classes(self._of_classes(of, labels), folds, own)
        except ConfigError:
            raise ConfigError(FOLDS_UNSAID) from None

    def untold(self, least: int) -> list[float]:
        """In the place of totals, where a lone label holder has judged its classes by itself."""
        folds = self.problems.folds
        rows = rows_of_folds(len(self.fold), folds).tolist()
        return [float(value) for value in rows + [least] * folds * _kinds(self.problems)]

    def _of_classes(self, of: Ints, labels: Floats) -> Ints:
        """How many samples every fold has of every class."""
        kinds = _kinds(self.problems)
        kind = labels[:, 0] > 0 if labels.shape[1] == 1 else labels.argmax(axis=1)
        return np.bincount(of * kinds + kind, minlength=self.problems.folds * kinds)


@dataclass(frozen=True)
class FoldSizes:
    """What the coordinator knows of folds, per problem.

    Attributes
    ----------
    rows, samples
        Rows that a problem leaves out, and samples among them.
    squares
        Σy² of these, of a squared loss.
    """

    rows: Floats
    samples: Floats
    squares: Floats

    @classmethod
    def of(
        cls,
        problems: Problems,
        rows: Ints,
        totals: Sequence[float],
        least: int,
        also: ToldOfLabels,
    ) -> FoldSizes:
        """From the rows of every fold, and totals over all parties, see `FoldRows.totals`."""
        classes, count = problems.classes, problems.folds
        samples, others = np.array(totals[:count]), np.array(totals[count:])
        squares = others if also == "squares" else np.zeros(count)
        refuse_small(samples.tolist(), least)
        if also == "classes":
            refuse_small_classes(others, count, least)

        def spread(values: Floats) -> Floats:
            return np.concatenate([np.zeros(classes), np.repeat(values, classes)])

        return cls(spread(rows.astype(np.float64)), spread(samples), spread(squares))
