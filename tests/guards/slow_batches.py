"""The rule of ``min_batch`` once more, slow and plain, to hold the fast one against.

Not a test itself. All vectors are kept as they are, every question is asked anew, and nothing is
carried from one call to the next but the vectors that were admitted.
"""

from __future__ import annotations

import numpy as np


def worth(change: np.ndarray, least: int) -> bool:
    """Whether (Σ|d|)² / Σd² is at least ``least``, up to rounding."""
    return np.abs(change).sum() ** 2 * (1.0 + 1e-9) >= least * (change**2).sum()


def apart(new: np.ndarray, old: np.ndarray, least: int) -> bool:
    """The same of two vectors, of which the older is known in single precision only.

    What that leaves open counts against them.
    """
    kept = old.astype(np.float32).astype(np.float64)
    change, lost = new - kept, old - kept
    enough = least * (np.abs(new).max() + np.abs(old).max()) + np.abs(lost).sum()
    if np.abs(change).sum() * (1.0 + 1e-9) >= enough:
        return True
    moved = np.abs(change).sum() - np.abs(lost).sum()
    length = np.sqrt((change**2).sum()) + np.sqrt((lost**2).sum())
    return moved > 0 and moved**2 * (1.0 + 1e-9) >= least * length**2


def without_usual(values: np.ndarray, kind: np.ndarray, least: int) -> np.ndarray:
    """What is left of values without the one that most of each kind have."""
    rest = values.copy()
    for number in np.unique(kind):
        some = np.sort(values[kind == number][: 2 * least - 1])
        rest[kind == number] -= some[len(some) // 2]
    return rest


class SlowBatches:
    """What `weft.guards.min_batch_between_sums.SeenBatches` promises, of one party."""

    def __init__(
        self, atom: np.ndarray, least: int, width: int, kind: np.ndarray | None = None
    ) -> None:
        self.atoms = np.unique(atom[atom >= 0])
        self._atom, self._least, self._width = atom, least, width
        self._kind = np.zeros(len(atom), int) if kind is None else kind
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
        if not worth(without_usual(values, self._kind[rows], least), least):
            return True
        return any((old != values).any() and not apart(values, old, least) for old in seen[rows].T)

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
