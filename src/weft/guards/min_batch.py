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

from weft.array_types import Floats, Ints

Marks = NDArray[np.uint8]
Digests = NDArray[np.uint64]

_FAST = {"reassoc", "contract", "nsz"}
#: Rounding of the two sums.
_SLACK = 1.0 + 1e-9
#: Samples that are compared at a time: without a branch in between, many at once.
_BLOCK = 32


class MinBatch:
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
        #: The rows as a range, where they are one: that is far cheaper to read.
        self._range: slice | None = None
        if len(self.rows) and (np.diff(self.rows) == 1).all():
            self._range = slice(int(self.rows[0]), int(self.rows[-1]) + 1)

    def _values(self, vectors: Floats) -> Floats:
        """(columns × samples), atom by atom; it may share the memory of ``vectors``."""
        if self._range is None:
            return np.ascontiguousarray(vectors.take(self.rows, axis=0).T)
        return np.ascontiguousarray(vectors[self._range].T)

    def _put_back(self, vectors: Floats, values: Floats) -> None:
        vectors[self.rows if self._range is None else self._range] = values.T

    def hold_back(self, new: Floats, old: Floats) -> NDArray[np.bool_]:
        """Undo, in place, changes from ``old`` that are too few; returns which atoms."""
        held = np.zeros(len(self.atoms), bool)
        nothing = np.zeros((0, 0), np.uint8), np.zeros((0, 0), np.uint64)
        apart = np.zeros((len(self.atoms), new.shape[1]), np.int64)
        # What was admitted is kept as the last vector, and the old ones are not ours to change.
        last, values = self._values(old).copy(), self._values(new)
        _admit(values, self.start, last, *nothing, 0, self.least, apart, held)
        if held.any():
            self._put_back(new, values)
        return held


class SeenBatches(MinBatch):
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

    def lacking(self, vectors: Floats) -> tuple[NDArray[np.bool_], Ints]:
        """(atoms × columns) where vectors would differ in too few samples from one seen.

        Every column is judged by itself. The second table is for `admit`, to which the same
        vectors go next: from how many of the vectors seen each is known to be apart. Whoever
        changes an atom of a column in between sets its number there to 0.
        """
        self._reserve(vectors.shape[1])
        out = np.zeros((len(self.atoms), vectors.shape[1]), bool)
        apart = np.zeros(out.shape, np.int64)
        values, seen = self._values(vectors), (*self._seen, self._count)
        _find_lacking(values, self.start, self._last, *seen, self.least, out, apart)
        return out, apart

    def fits(self, atom: int, column: int, values: Floats) -> bool:
        """Whether these values of one atom differ in enough samples from all vectors seen."""
        self._reserve(0)
        before = self._last[column % len(self._last)]
        return bool(_fits(values, self.start, before, *self._seen, self._count, self.least, atom))

    @property
    def _seen(self) -> tuple[Marks, Digests]:
        return self._marks, self._digests

    def _reserve(self, new: int) -> None:
        """Room for new vectors, and for one more, the last, to try values in."""
        if self._count + new + 1 > len(self._marks):
            room = max(2 * len(self._marks), self._count + new + 1)
            marks = np.zeros((room, len(self.rows)), np.uint8)
            marks[: self._count] = self._marks[: self._count]
            digests = np.zeros((room, len(self.atoms)), np.uint64)
            digests[: self._count] = self._digests[: self._count]
            self._marks, self._digests = marks, digests

    def admit(
        self, vectors: Floats, apart: Ints | None = None, *, dual: bool = True
    ) -> NDArray[np.bool_]:
        """Vectors that others will see sums of, side by side; changed in place.

        Where an atom would differ in too few samples from any vector seen, it keeps the values of
        the last vector of that problem and kind. Returns which atoms did.

        Parameters
        ----------
        apart
            What `lacking` said of these vectors, just before, so that it need not be found again.
        dual
            Whether they are dual vectors, or products of the Hessian.
        """
        new = vectors.shape[1]
        held = np.zeros(len(self.atoms), bool)
        if apart is None:
            self._reserve(new)
            apart = np.zeros((len(self.atoms), new), np.int64)
        values = self._values(vectors)
        last = self._last if dual else self._last_other
        _admit(values, self.start, last, *self._seen, self._count, self.least, apart, held)
        if held.any():
            self._put_back(vectors, values)
        self._count += new
        return held

    def hold_apart(self, new: Floats, old: Floats) -> NDArray[np.bool_]:
        """Undo, in place, changes from ``old`` that come too close to a vector seen.

        Nothing is kept of ``new``. Returns which atoms were changed back.
        """
        self._reserve(0)
        scratch = len(self._marks) - 1
        held = np.zeros(len(self.atoms), bool)
        values, before = self._values(new), self._values(old)
        for atom in range(len(self.atoms)):
            part = slice(self.start[atom], self.start[atom + 1])
            for mine, last in zip(values[:, part], before[:, part], strict=True):
                if held[atom] or not (mine != last).any():
                    continue
                _write(*self._seen, scratch, atom, self.start, mine)
                held[atom] = _too_close(
                    *self._seen, scratch, 0, self._count, atom, self.start, self.least
                )
            if held[atom]:
                values[:, part] = before[:, part]
        if held.any():
            self._put_back(new, values)
        return held

    def note(self, vectors: Floats) -> None:
        """Dual vectors that others have seen sums of already, as they are, side by side."""
        self._reserve(vectors.shape[1])
        for column, values in enumerate(self._values(vectors)):
            for atom in range(len(self.atoms)):
                mine = values[self.start[atom] : self.start[atom + 1]]
                _write(*self._seen, self._count, atom, self.start, mine)
            self._last[column % len(self._last)] = values
            self._count += 1


@numba.njit(cache=True)
def _admit(
    values: Floats,
    start: Ints,
    last: Floats,
    marks: Marks,
    digests: Digests,
    count: int,
    least: int,
    apart: Ints,
    held: NDArray[np.bool_],
) -> None:
    """Columns of ``values``, one after the other, each a row here."""
    for column in range(len(values)):
        at, problem = count + column, column % len(last)
        for atom in range(len(start) - 1):
            new = values[column, start[atom] : start[atom + 1]]
            before = last[problem, start[atom] : start[atom + 1]]
            known = apart[atom, column]
            changed = _judge(new, before, marks, digests, at, known, at, atom, start, least)
            # Loops: over an assignment of slices the compiler takes seconds.
            if changed == 1:
                for i in range(len(new)):
                    before[i] = new[i]
                continue
            if changed < 0:
                held[atom] = True
                for i in range(len(new)):
                    new[i] = before[i]
            if len(marks):
                _write(marks, digests, at, atom, start, before)


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
    apart: Ints,
) -> None:
    """The same question for every column by itself; its marks are left where they belong."""
    for column in range(len(values)):
        at, problem = count + column, column % len(last)
        for atom in range(len(start) - 1):
            new = values[column, start[atom] : start[atom + 1]]
            before = last[problem, start[atom] : start[atom + 1]]
            changed = _judge(new, before, marks, digests, at, 0, count, atom, start, least)
            if changed == 1:
                apart[atom, column] = count
            out[atom, column] = changed < 0


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
    mine = before[start[atom] : start[atom + 1]]
    scratch = len(marks) - 1
    return _judge(values, mine, marks, digests, scratch, 0, count, atom, start, least) >= 0


@numba.njit(cache=True)
def _judge(
    new: Floats,
    before: Floats,
    marks: Marks,
    digests: Digests,
    at: int,
    known: int,
    stop: int,
    atom: int,
    start: Ints,
    least: int,
) -> int:
    """1: an atom may change so; 0: it does not change; −1: too few samples would differ.

    Its marks are written at ``at``, unless it is known to be apart from the first ``known``
    vectors seen: then they are there already. It is compared with those from there to ``stop``.
    """
    changed = _enough(new, before, least)
    if changed == 1 and len(marks):
        if not known:
            _write(marks, digests, at, atom, start, new)
        if _too_close(marks, digests, at, known, stop, atom, start, least):
            return -1
    return changed


@numba.njit(cache=True, fastmath=_FAST)
def _enough(new: Floats, before: Floats, least: int) -> int:
    """1: enough samples changed, and enough are there at all; 0: none changed; −1: too few."""
    size = square = moved = moved_square = 0.0
    for i in range(len(new)):
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
    marks: Marks,
    digests: Digests,
    new: int,
    first: int,
    stop: int,
    atom: int,
    start: Ints,
    least: int,
) -> bool:
    """Whether a vector from ``first`` to ``stop`` differs in some samples of an atom, but in too
    few."""
    mine = marks[new, start[atom] : start[atom + 1]]
    for old in range(first, stop):
        other = marks[old, start[atom] : start[atom + 1]]
        differ = 0
        for begin in range(0, len(mine), _BLOCK):
            end = min(begin + _BLOCK, len(mine))
            differ += _differing(mine[begin:end], other[begin:end])
            if differ >= least:
                break
        if differ < least and (differ or digests[old, atom] != digests[new, atom]):
            return True
    return False


@numba.njit(cache=True)
def _differing(some: Marks, others: Marks) -> int:
    count = 0
    for i in range(len(some)):
        count += some[i] != others[i]
    return count


@numba.njit(cache=True)
def _write(
    marks: Marks, digests: Digests, vector: int, atom: int, start: Ints, values: Floats
) -> None:
    """Keep a byte of every value of an atom, and one number for all of them."""
    kept = marks[vector, start[atom] : start[atom + 1]]
    digest = np.uint64(0)
    for place in range(len(values)):
        mixed = _mixed(values[place])
        kept[place] = np.uint8(mixed >> np.uint64(56))
        # Each step can be undone: where one value differs, its term does, and so the sum. The
        # place makes terms of equal values different ones. A sum can be taken many at a time.
        term = (mixed ^ np.uint64(place)) * np.uint64(0x9E3779B97F4A7C15)
        digest += term ^ (term >> np.uint64(32))
    digests[vector, atom] = digest


@numba.njit(cache=True)
def _mixed(value: float) -> np.uint64:
    """The bits of a number, mixed well; different ones for different numbers."""
    x = np.float64(value + 0.0).view(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
