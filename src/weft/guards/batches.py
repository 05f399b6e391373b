"""``min_batch``: a sum must not change by a few samples' worth.

Holders of a feature see sums Σ a_i x_i of others' samples, one after the other. Where two of them
differ in a single sample, the difference is that sample's row; where they differ in a few, it is
close to it. So the samples that the same parties hold (an *atom*: a row cohort, or a group of it
that has sums of its own) change together or not at all: between any two dual vectors that others
see sums of, zero included, at least ``min_batch`` of them differ, or none.

Counting says nothing of sizes: one large change among nine tiny ones is a single row again. So the
*effective number* (Σ|d|)² / Σd² of the changes d since the last vector counts, which is the number
itself where all are of a size. Against older vectors it is the number of samples that differ.

What is too little is held back: those samples keep the values that they had last. That is a dual
vector like any other, and every bound that is computed from it holds. All holders of a sample
hold the same values back, since they decide from the same numbers.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Marks = NDArray[np.uint8]
Digests = NDArray[np.uint64]

_FAST = {"reassoc", "contract", "nsz"}
#: Rounding of the two sums.
_SLACK = 1.0 + 1e-9


class Batches:
    """The atoms of one party whose changes count.

    Parameters
    ----------
    atom
        The atom of every local row, −1 for those that nobody else sees a sum of.
    least
        ``min_batch``.
    """

    def __init__(self, atom: Ints, least: int) -> None:
        order = np.argsort(atom, kind="stable")
        self.rows: Ints = order[np.searchsorted(atom[order], 0) :]
        self.atoms, first = np.unique(atom[self.rows], return_index=True)
        self.start: Ints = np.append(first, len(self.rows)).astype(np.int64)
        self.least = least

    def hold_back(self, new: Floats, old: Floats) -> NDArray[np.bool_]:
        """Undo, in place, changes from ``old`` that are too few; returns which atoms."""
        held = np.zeros(len(self.atoms), bool)
        nothing = np.zeros((0, 0), np.uint8), np.zeros((0, 0), np.uint64)
        last = np.ascontiguousarray(old[self.rows].T)
        values = np.ascontiguousarray(new[self.rows].T)
        _admit(values, self.start, last, *nothing, 0, self.least, held)
        if held.any():
            new[self.rows] = values.T
        return held


class SeenBatches(Batches):
    """Atoms whose sums others keep: no two of them may differ in too few samples.

    Of every vector a byte per sample is kept, in which values that differ look the same once in
    256 times: too few are counted then, never too many. Whether any differs at all, a number per
    atom says, which is another one wherever a single sample is.

    Parameters
    ----------
    width
        Problems that are trained together, whose vectors lie side by side.
    """

    def __init__(self, atom: Ints, least: int, width: int) -> None:
        super().__init__(atom, least)
        self._last = np.zeros((width, len(self.rows)))
        #: The same for vectors that are no dual vectors: neither may stand for the other.
        self._last_other = np.zeros((width, len(self.rows)))
        self._marks: Marks = np.zeros((16, len(self.rows)), np.uint8)
        self._digests: Digests = np.zeros((16, len(self.atoms)), np.uint64)
        self._count = 0

    def rows_of(self, atom: int) -> Ints:
        """The local rows of an atom, by its place among those here."""
        return self.rows[self.start[atom] : self.start[atom + 1]]

    def lacking(self, vectors: Floats) -> NDArray[np.bool_]:
        """(atoms × columns) where vectors would differ in too few samples from one seen."""
        self._reserve(1)
        out = np.zeros((len(self.atoms), vectors.shape[1]), bool)
        values = np.ascontiguousarray(vectors[self.rows].T)
        _find_lacking(values, self.start, self._last, *self._seen, self._count, self.least, out)
        return out

    def fits(self, atom: int, column: int, values: Floats) -> bool:
        """Whether these values of one atom differ in enough samples from all vectors seen."""
        self._reserve(1)
        before = self._last[column % len(self._last)]
        return bool(_fits(values, self.start, before, *self._seen, self._count, self.least, atom))

    @property
    def _seen(self) -> tuple[Marks, Digests]:
        return self._marks, self._digests

    def _reserve(self, new: int) -> None:
        if self._count + new > len(self._marks):
            room = max(2 * len(self._marks), self._count + new)
            marks = np.zeros((room, len(self.rows)), np.uint8)
            marks[: self._count] = self._marks[: self._count]
            digests = np.zeros((room, len(self.atoms)), np.uint64)
            digests[: self._count] = self._digests[: self._count]
            self._marks, self._digests = marks, digests

    def admit(self, vectors: Floats, *, dual: bool = True) -> NDArray[np.bool_]:
        """Vectors that others will see sums of, side by side; changed in place.

        Where an atom would differ in too few samples from any vector seen, it keeps the values of
        the last vector of that problem and kind. Returns which atoms did.

        Parameters
        ----------
        dual
            Whether they are dual vectors, or products of the Hessian.
        """
        new = vectors.shape[1]
        held = np.zeros(len(self.atoms), bool)
        self._reserve(new)
        values = np.ascontiguousarray(vectors[self.rows].T)
        last = self._last if dual else self._last_other
        _admit(values, self.start, last, *self._seen, self._count, self.least, held)
        if held.any():
            vectors[self.rows] = values.T
        self._count += new
        return held


@numba.njit(cache=True)
def _admit(
    values: Floats,
    start: Ints,
    last: Floats,
    marks: Marks,
    digests: Digests,
    count: int,
    least: int,
    held: NDArray[np.bool_],
) -> None:
    """Columns of ``values``, one after the other, each a row here."""
    for column in range(len(values)):
        new, before = values[column], last[column % len(last)]
        for atom in range(len(start) - 1):
            begin, end = start[atom], start[atom + 1]
            changed = _judged(new, before, start, marks, digests, count + column, atom, least)
            if changed < 0:
                held[atom] = True
            if changed < 1:
                new[begin:end] = before[begin:end]
                if len(marks):
                    _write(marks, digests, count + column, atom, begin, before[begin:end])
            else:
                for i in range(begin, end):
                    before[i] = new[i]


@numba.njit(cache=True)
def _judged(
    new: Floats,
    before: Floats,
    start: Ints,
    marks: Marks,
    digests: Digests,
    at: int,
    atom: int,
    least: int,
) -> int:
    """As `_enough`, against all vectors seen; the marks of this one are left in row ``at``."""
    begin, end = start[atom], start[atom + 1]
    changed = _enough(new, before, begin, end, least)
    if changed == 1 and len(marks):
        _write(marks, digests, at, atom, begin, new[begin:end])
        if _too_close(marks, digests, at, atom, begin, end, least):
            return -1
    return changed


@numba.njit(cache=True)
def _fits(
    values: Floats,
    start: Ints,
    before: Floats,
    marks: Marks,
    digests: Digests,
    count: int,
    least: int,
    atom: int,
) -> bool:
    begin, end = start[atom], start[atom + 1]
    changed = _enough(values, before[begin:end], 0, end - begin, least)
    if changed < 1:
        return changed == 0
    _write(marks, digests, count, atom, begin, values)
    return not _too_close(marks, digests, count, atom, begin, end, least)


@numba.njit(cache=True)
def _find_lacking(
    values: Floats,
    start: Ints,
    last: Floats,
    marks: Marks,
    digests: Digests,
    count: int,
    least: int,
    out: NDArray[np.bool_],
) -> None:
    """The same question for every column by itself; row ``count`` of the marks is overwritten."""
    for column in range(len(values)):
        new, before = values[column], last[column % len(last)]
        for atom in range(len(start) - 1):
            changed = _judged(new, before, start, marks, digests, count, atom, least)
            out[atom, column] = changed < 0


@numba.njit(cache=True, fastmath=_FAST)
def _enough(new: Floats, before: Floats, begin: int, end: int, least: int) -> int:
    """1: enough samples changed, and enough are there at all; 0: none changed; −1: too few."""
    size = square = moved = moved_square = 0.0
    for i in range(begin, end):
        value = new[i]
        change = value - before[i]
        size += abs(value)
        square += value * value
        moved += abs(change)
        moved_square += change * change
    if moved == 0.0:
        return 0
    if moved * moved * _SLACK < least * moved_square or size * size * _SLACK < least * square:
        return -1
    return 1


@numba.njit(cache=True)
def _too_close(
    marks: Marks, digests: Digests, new: int, atom: int, begin: int, end: int, least: int
) -> bool:
    """Whether a vector seen before differs in some samples of an atom, but in too few."""
    for old in range(new):
        differ = 0
        for i in range(begin, end):
            if marks[old, i] != marks[new, i]:
                differ += 1
                if differ >= least:
                    break
        if differ < least and (differ or digests[old, atom] != digests[new, atom]):
            return True
    return False


@numba.njit(cache=True)
def _write(
    marks: Marks, digests: Digests, vector: int, atom: int, begin: int, values: Floats
) -> None:
    """Keep a byte of every value of an atom, and one number for all of them."""
    digest = np.uint64(0)
    for place in range(len(values)):
        mixed = _mixed(values[place])
        marks[vector, begin + place] = np.uint8(mixed >> np.uint64(56))
        # Each step can be undone: where one value differs, the number does.
        digest = (digest ^ mixed) * np.uint64(0x9E3779B97F4A7C15)
        digest ^= digest >> np.uint64(32)
    digests[vector, atom] = digest


@numba.njit(cache=True)
def _mixed(value: float) -> np.uint64:
    """The bits of a number, mixed well; different ones for different numbers."""
    x = np.float64(value + 0.0).view(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
