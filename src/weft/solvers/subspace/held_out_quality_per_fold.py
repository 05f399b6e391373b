"""Samples that folds left out, with the scores of a finished model, and how good those are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.losses import Loss
from weft.solvers.solver_settings import Scoring


@dataclass(frozen=True)
class HeldOut:
    """Samples that folds left out: local rows, folds, scores and labels (samples × classes)."""

    rows: Ints
    fold: Ints
    scores: Floats
    truth: Floats

    def per_fold(self, loss: Loss, folds: int, scoring: Scoring | None) -> Floats:
        """Per fold: how many samples, their losses, and how many are predicted rightly.

        For a regression the squared errors take the place of the last; for `auc` two more say how
        many pairs of samples are in the right order, and how many pairs there are.
        """
        out = np.zeros((folds, 5 if scoring == "auc" else 3))
        for fold in range(folds):
            mine = self.fold == fold
            scores, truth = self.scores[mine], self.truth[mine]
            if loss.task == "regression":
                good = ((loss.response(scores) - truth) ** 2).sum()
            elif scores.shape[1] == 1:
                good = ((scores >= 0) == (truth > 0)).sum()
            else:
                good = (scores.argmax(axis=1) == truth.argmax(axis=1)).sum()
            out[fold, :3] = len(scores), loss.value(scores, truth).sum(), good
            if scoring == "auc":
                out[fold, 3:] = ordered_pairs(loss.class_scores(scores), truth > 0)
        return out


def ordered_pairs(scores: Floats, positive: NDArray[np.bool_]) -> tuple[float, float]:
    """Pairs of a positive and a negative sample in the right order, ties by half, and all pairs."""
    right = pairs = 0.0
    for column in range(scores.shape[1]):
        above = scores[positive[:, column], column]
        below = np.sort(scores[~positive[:, column], column])
        sides = (np.searchsorted(below, above, side=side).sum() for side in ("left", "right"))
        right += 0.5 * float(sum(sides))
        pairs += float(len(above) * len(below))
    return right, pairs
