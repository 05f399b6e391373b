"""Where scores of a party's samples were counted in earlier runs, as its own ledger remembers it.

Counts up to an edge are told of a set of samples. Where a later run has nearly the same model and
cuts the line elsewhere, or at the same edge with a few samples on its other side, the difference of
two counts is of these few. So a ledger remembers in which bucket each sample was counted.
"""

from __future__ import annotations

import numpy as np

from weft.array_types import Ints
from weft.guards.score_buckets import EarlierCounts
from weft.privacy.ledger.earlier_samples import Hashes, Memory, Places

#: Counts that are remembered; equal ones take one place.
_MOST = 32


class ScoreMemory(Memory):
    """Buckets of the last evaluations, by the leaf that they begin at, counted from 1.

    ``places`` has zero for who was not counted.
    """

    def remember(self, samples: Hashes, places: Places, began: str) -> None:
        """Take down the buckets of an evaluation."""
        everybody, rows = self._with(samples, places)
        kept = [k for k in range(len(self.runs)) if (rows[k] != rows[-1]).any()][1 - _MOST :]
        self.runs = [*(self.runs[k] for k in kept), began]
        rows = rows[[*kept, -1]]
        known = rows.any(axis=0)
        self.sample, self.places = everybody[known], rows[:, known]

    def earlier(self, samples: Hashes) -> list[EarlierCounts]:
        """All that is remembered, as it concerns these samples."""
        everybody, rows = self._with(samples, np.zeros(len(samples), np.int32))
        mine = np.searchsorted(everybody, samples)
        gone = np.ones(len(everybody), bool)
        gone[mine] = False
        found = []
        for row in rows[:-1]:
            # Starts of buckets as numbers without gaps: in which bucket of this evaluation.
            starts, number = np.unique(row[row > 0], return_inverse=True)
            bucket: Ints = np.zeros(len(row), np.int64)
            bucket[row > 0] = number + 1
            left = np.bincount(bucket[gone], minlength=len(starts) + 1)
            found.append(EarlierCounts(bucket[mine], left))
        return found
