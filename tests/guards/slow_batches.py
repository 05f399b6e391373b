"""The rule of ``min_batch`` once more, slow and plain, to hold the fast one against.

Not a test itself. All vectors are kept as they are, every question is asked anew, and nothing is
carried from one call to the next but the vectors that were admitted.
"""

from __future__ import annotations

import numpy as np


def bytes_of(values: np.ndarray) -> np.ndarray:
    """What is compared of a value: the topmost byte of its bits, mixed."""
    x = (values + 0.0).view(np.uint64)
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x >> np.uint64(56)


def worth(change: np.ndarray, least: int) -> bool:
    """Whether (Σ|d|)² / Σd² is at least ``least``, up to rounding."""
    return np.abs(change).sum() ** 2 * (1.0 + 1e-9) >= least * (change**2).sum()


class SlowBatches:
    """What `weft.guards.min_batch.SeenBatches` promises, of one party."""

    def __init__(self, atom: np.ndarray, least: int, width: int) -> None:
        self.atoms = np.unique(atom[atom >= 0])
        self._atom, self._least, self._width = atom, least, width
        self._last = {kind: np.zeros((len(atom), width)) for kind in (True, False)}
        #: All vectors that were admitted, of either kind.
        self.seen = np.zeros((len(atom), 0))

    def rows_of(self, place: int) -> np.ndarray:
        return np.flatnonzero(self._atom == self.atoms[place])

    def _lacks(self, place: int, values: np.ndarray, last: np.ndarray, seen: np.ndarray) -> bool:
        rows, least = self.rows_of(place), self._least
        change = values - last[rows]
        if not change.any():
            return False
        if not (worth(change, least) and worth(values, least)):
            return True
        old, new = seen[rows], values[:, None]
        few = (bytes_of(old) != bytes_of(new)).sum(axis=0) < least
        return bool((few & (old != new).any(axis=0)).any())

    def fits(self, place: int, column: int, values: np.ndarray) -> bool:
        last = self._last[True][:, column % self._width]
        return not self._lacks(place, values, last, self.seen)

    def lacking(self, vectors: np.ndarray) -> np.ndarray:
        """Every column by itself, against what was admitted in earlier calls."""
        return np.array(
            [
                [
                    not self.fits(place, column, vectors[self.rows_of(place), column])
                    for column in range(vectors.shape[1])
                ]
                for place in range(len(self.atoms))
            ],
            bool,
        ).reshape(len(self.atoms), vectors.shape[1])

    def admit(self, vectors: np.ndarray, *, dual: bool = True) -> np.ndarray:
        """One column after the other, each against those before it in the same call too."""
        held = np.zeros(len(self.atoms), bool)
        for column in range(vectors.shape[1]):
            last = self._last[dual][:, column % self._width]
            for place in range(len(self.atoms)):
                rows = self.rows_of(place)
                if self._lacks(place, vectors[rows, column], last, self.seen):
                    held[place] = True
                    vectors[rows, column] = last[rows]
            last[:] = vectors[:, column]
            self.seen = np.hstack([self.seen, vectors[:, column : column + 1]])
        return held
