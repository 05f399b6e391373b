"""Where scores of a party's samples were counted in earlier runs, as its own ledger remembers it.

Counts up to an edge are told of a set of samples. Where a later run has nearly the same model and
cuts the line elsewhere, or at the same edge with a few samples on its other side, the difference of
two counts is of these few; so it is where groups of another column differ in a few samples. So a
ledger remembers in which bucket, and in which group, each sample was counted.
"""

from __future__ import annotations

import numpy as np

from weft.array_types import Ints
from weft.guards.score_buckets import EarlierCounts
from weft.privacy.ledger.earlier_samples import Hashes, Memory, Places

#: Counts that are remembered; equal ones take one place, and groups of every column another.
_MOST = 32
#: More than there are leaves: groups are numbered in steps of it.
_STRIDE = 4096


class ScoreMemory(Memory):
    """Buckets of the last evaluations, by the leaf that they begin at, counted from 1, and groups.

    ``places`` has zero for who was not counted.
    """

    @staticmethod
    def place(starts: Ints, level: Ints) -> Places:
        """What is remembered of samples in buckets that begin at these leaves, and of a group."""
        return (starts + 1 + _STRIDE * level).astype(np.int32)

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
            there = row > 0
            starts, number = np.unique((row[there] - 1) % _STRIDE, return_inverse=True)
            bucket: Ints = np.zeros(len(row), np.int64)
            level: Ints = np.zeros(len(row), np.int64)
            bucket[there], level[there] = number + 1, (row[there] - 1) // _STRIDE
            left = np.zeros((int(level.max(initial=0)) + 1, len(starts) + 1), np.int64)
            np.add.at(left, (level[gone], bucket[gone]), 1)
            found.append(EarlierCounts(bucket[mine], level[mine], left))
        return found
