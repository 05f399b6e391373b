"""How folds have cut a party's samples in earlier runs, as its own ledger remembers it.

What a fold leaves out is the difference of two sums. Two runs with other folds show, besides, what
any two of them have in common, and with more runs that becomes a few samples. So samples that have
always been in the same folds count as one part, and no run may cut parts that are too small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.privacy.ledger.earlier_samples import MOST_RUNS, Hashes, Memory, Names, Places


@dataclass(frozen=True)
class FoldCut:
    """The folds of a party's samples in a run.

    Attributes
    ----------
    ids
        Of each sample that others see sums of.
    places
        The fold of each, counted from 1; others than that, where no fold leaves it out.
    group
        Its cohort and class: sums over each are known.
    """

    ids: Names
    places: Places
    group: Ints


class FoldMemory(Memory):
    """The folds of the last runs; ``places`` has zero for who took no part."""

    def remember(self, samples: Hashes, places: Places, began: str) -> None:
        """Take down the folds of a run; equal ones take one place."""
        everybody, cuts = self._with(samples, places)
        kept = [k for k in range(len(self.runs)) if (cuts[k] != cuts[-1]).any()][1 - MOST_RUNS :]
        self.runs = [*(self.runs[k] for k in kept), began]
        cuts = cuts[[*kept, -1]]
        known = cuts.any(axis=0)
        self.sample, self.places = everybody[known], cuts[:, known]

    def cut_apart(self, samples: Hashes, cut: FoldCut, at_least: int) -> int:
        """How many samples a run would put into parts of fewer than ``at_least``."""
        everybody, cuts = self._with(samples, cut.places)
        mine = np.vstack([cut.group, cuts[:, np.searchsorted(everybody, samples)]])
        # What earlier runs have shown already, with leave to do so, no refusal takes back.
        return int((_few(mine, at_least) & ~_few(mine[:-1], at_least)).sum())


def _few(marks: NDArray[np.int64], at_least: int) -> NDArray[np.bool_]:
    """Samples with whom fewer than ``at_least`` have all marks in common."""
    _, back, counts = np.unique(marks, axis=1, return_inverse=True, return_counts=True)
    few: NDArray[np.bool_] = counts[back.ravel()] < at_least
    return few
