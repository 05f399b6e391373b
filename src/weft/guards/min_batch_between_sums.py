"""``min_batch``: a sum must not change by a few samples' worth.

Holders of a feature see sums Σ a_i x_i of others' samples, one after the other. Where two of them
differ in a single sample, the difference is that sample's row; where they differ in a few, it is
close to it. So the samples that the same parties hold (an *atom*: a row cohort, or a group of it
that has sums of its own) change together or not at all: between any two dual vectors that others
see sums of, of whichever problems, zero included, nothing differs, or the difference d has an
*effective number* (Σ|d|)² / Σd² of samples of at least ``min_batch``. That is the number itself
where all are of a size; one large change among nine tiny ones is a single row, and counts as one.

Others also know sums in which all samples of a kind (a class, or the part of it in a fold) weigh
the same, from scaling and from the first vectors. So what is left of a vector without the value
that most of each kind have must be worth as many samples, too, or nothing.

What is too little is held back: those samples keep the values that they had last. That is a dual
vector like any other, and every bound that is computed from it holds. All holders of a sample
hold the same values back, since they decide from the same numbers.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.arrays_outside_heap import HUGE, LARGE, lasting_zeros, shared
from weft.guards.distinct_pairs_with_counts import number_pairs
from weft.guards.vector_difference_kernels import (
    SIZES,
    Digests,
    Seen,
    admit,
    find_lacking,
    fits,
    too_close,
    write,
)

_T = TypeVar("_T", bound=np.generic)

#: Rounding of the two sums.
_SLACK = 1.0 + 1e-9
#: Vectors that large arrays have room for beyond those that come next.
_SPARE = 8


class MinBatch:
    """The atoms of one party whose changes count.

    Parameters
    ----------
    atom
        The atom of every local row, −1 for those that nobody else sees a sum of.
    least
        ``min_batch``.
    kind
        The kind of every local row, a number from 0 on; None: they are all of one kind.
    """

    def __init__(self, atom: Ints, least: int, kind: Ints | None = None) -> None:
        order = np.argsort(atom, kind="stable")
        rows: Ints = order[np.searchsorted(atom[order], 0) :]
        self.atoms, first = np.unique(atom[rows], return_index=True)
        self.start: Ints = np.append(first, len(rows)).astype(np.int64)
        self.least = least
        #: The rows as a range, where they are one: that is far cheaper to read and to keep.
        self._range: slice | None = None
        self._rows: Ints | None = rows
        if len(rows) and (np.diff(rows) == 1).all():
            self._range = slice(int(rows[0]), int(rows[-1]) + 1)
            self._rows = None
        self._kinds = _Kinds.of(
            np.zeros(len(atom), np.int64) if kind is None else kind, rows, self.start, least
        )

    @property
    def rows(self) -> Ints:
        """The local rows of the atoms, one atom after the other."""
        if self._range is not None:
            return np.arange(self._range.start, self._range.stop)
        assert self._rows is not None
        return self._rows

    def _values(self, vectors: Floats) -> Floats:
        """(columns × samples), atom by atom; it may share the memory of ``vectors``."""
        if self._rows is None:
            return np.ascontiguousarray(vectors[self._range].T)
        return np.ascontiguousarray(vectors.take(self._rows, axis=0).T)

    def _put_back(self, vectors: Floats, values: Floats) -> None:
        vectors[self._range if self._rows is None else self._rows] = values.T

    def hold_back(self, new: Floats, old: Floats) -> NDArray[np.bool_]:
        """Undo, in place, changes from ``old`` that are too few; returns which atoms."""
        held = np.zeros(len(self.atoms), bool)
        nothing = np.zeros((0, 0), np.float32), np.zeros((0, 0), np.uint64), np.zeros((0, 0, SIZES))
        apart = np.zeros((len(self.atoms), new.shape[1]), np.int64)
        # What was admitted is kept as the last vector, and the old ones are not ours to change.
        last, values = self._values(old).copy(), self._values(new)
        admit(values, self.start, last, *nothing, 0, self.least, *self._kinds.parts, apart, held)
        if held.any():
            self._put_back(new, values)
        return held

    def differs(self, some: Floats, others: Floats) -> NDArray[np.bool_]:
        """Per atom, whether anything differs; both have the rows of the atoms only."""
        differs = np.logical_or.reduceat(some != others, self.start[:-1], axis=0)
        return np.asarray(differs.any(axis=1))

    def differs_in_few(self, some: Floats, others: Floats) -> NDArray[np.bool_]:
        """Per atom, whether something differs, but in too few samples."""
        change = np.abs(some - others)
        moved = np.add.reduceat(change, self.start[:-1], axis=0)
        square = np.add.reduceat(change * change, self.start[:-1], axis=0)
        few = (moved > 0) & (moved * moved * _SLACK < self.least * square)
        return np.asarray(few.any(axis=1))


class _Kinds:
    """Of which kind each sample of the atoms is, and some of each from which to tell its value.

    Where fewer than ``least`` samples of a kind differ from the rest, more than half of any
    2·least − 1 of them have the value of the rest: it is the median of these.
    """

    def __init__(self, kind: NDArray[np.int32], some: Ints, start: Ints) -> None:
        self.parts = (kind, some, start)

    @classmethod
    def of(cls, kind: Ints, rows: Ints, start: Ints, least: int) -> _Kinds:
        atom = np.repeat(np.arange(len(start) - 1), np.diff(start))
        numbers, sizes = number_pairs(atom, kind[rows])
        number: NDArray[np.int32] = shared(numbers.astype(np.int32))
        order = np.argsort(number, kind="stable")
        ends = np.cumsum(sizes)
        taken = [
            order[end - size : end][: 2 * least - 1]
            for size, end in zip(sizes.tolist(), ends.tolist(), strict=True)
        ]
        some = np.concatenate([np.zeros(0, np.int64), *taken]).astype(np.int64)
        lengths = np.array([len(part) for part in taken], np.int64)
        return cls(number, some, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


class SeenBatches(MinBatch):
    """Atoms whose sums others keep: no two of them may differ in too little.

    Vectors are kept in few digits, and what that leaves open counts against them: a difference is
    never taken for more than it is. Whether anything differs at all, a number per atom says, which
    is another one wherever a single sample is.

    Parameters
    ----------
    width
        Problems that are trained together, whose vectors lie side by side.
    short
        Keep two bytes of an entry instead of single precision. Vectors whose entries differ by
        less than 1/65,534 of the largest are then held back.
    """

    def __init__(
        self, atom: Ints, least: int, width: int, kind: Ints | None = None, *, short: bool = False
    ) -> None:
        super().__init__(atom, least, kind)
        samples = int(self.start[-1])
        self._last = lasting_zeros((width, samples))
        #: The same for vectors that are no dual vectors: neither may stand for the other.
        self._last_other: Floats | None = None
        self._kept: Seen = np.zeros((0, samples), np.int16 if short else np.float32)
        self._digests: Digests = np.zeros((0, len(self.atoms)), np.uint64)
        self._sizes: Floats = np.zeros((0, len(self.atoms), SIZES))
        self._count = 0

    def rows_of(self, atom: int) -> Ints:
        """The local rows of an atom, by its place among those here."""
        begin, end = int(self.start[atom]), int(self.start[atom + 1])
        if self._range is not None:
            return np.arange(self._range.start + begin, self._range.start + end)
        return self.rows[begin:end]

    def last_values(self, atom: int, columns: int) -> Floats:
        """(samples × columns) what an atom had in the last dual vector, for so many columns."""
        last = self._last[:, self.start[atom] : self.start[atom + 1]].T
        return np.tile(last, (1, columns // last.shape[1]))

    def lacking(self, vectors: Floats) -> tuple[NDArray[np.bool_], Ints]:
        """(atoms × columns) where vectors would differ in too little from one seen.

        Every column is judged by itself. The second table is for `admit`, to which the same
        vectors go next: from how many of the vectors seen each is known to be apart. Whoever
        changes an atom of a column in between sets its number there to 0.
        """
        self._reserve(vectors.shape[1])
        out = np.zeros((len(self.atoms), vectors.shape[1]), bool)
        apart = np.zeros(out.shape, np.int64)
        values, seen = self._values(vectors), (*self._seen, self._count)
        kinds = self._kinds.parts
        find_lacking(values, self.start, self._last, *seen, self.least, *kinds, out, apart)
        return out, apart

    def fits(self, atom: int, column: int, values: Floats) -> bool:
        """Whether these values of one atom differ in enough from all vectors seen."""
        self._reserve(0)
        before = self._last[column % len(self._last)]
        seen, kinds = (*self._seen, self._count), self._kinds.parts
        return bool(fits(values, self.start, before, *seen, self.least, *kinds, atom))

    @property
    def _seen(self) -> tuple[Seen, Digests, Floats]:
        return self._kept, self._digests, self._sizes

    def _reserve(self, new: int) -> None:
        """Room for new vectors, and for one more, the last, to try values in."""
        if self._count + new + 1 > len(self._kept):
            # Little more than it takes: of a large table, every vector kept is worth sparing.
            room = self._count + new + 1 + self._count // 16
            if LARGE <= _bytes_of(self._kept, room) < HUGE:
                # Pages of its own cost nothing before they are used, and spare a copy.
                room += _SPARE + room // 4
            self._kept = _longer(self._kept, room, self._count)
            self._digests = _longer(self._digests, room, self._count)
            self._sizes = _longer(self._sizes, room, self._count)

    def admit(
        self, vectors: Floats, apart: Ints | None = None, *, dual: bool = True
    ) -> NDArray[np.bool_]:
        """Vectors that others will see sums of, side by side; changed in place.

        Where an atom would differ in too little from any vector seen, it keeps the values of
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
        last = self._last if dual else self._others()
        seen, kinds = (*self._seen, self._count), self._kinds.parts
        admit(values, self.start, last, *seen, self.least, *kinds, apart, held)
        if held.any():
            self._put_back(vectors, values)
        self._count += new
        return held

    def _others(self) -> Floats:
        if self._last_other is None:
            self._last_other = np.zeros_like(self._last)
        return self._last_other

    def restrain(self, vectors: Floats) -> NDArray[np.bool_]:
        """As `admit`, but nothing is kept: nobody has seen sums of these vectors yet."""
        self._reserve(vectors.shape[1])
        held = np.zeros(len(self.atoms), bool)
        apart = np.zeros((len(self.atoms), vectors.shape[1]), np.int64)
        values, last = self._values(vectors), self._last.copy()
        seen, kinds = (*self._seen, self._count), self._kinds.parts
        admit(values, self.start, last, *seen, self.least, *kinds, apart, held)
        if held.any():
            self._put_back(vectors, values)
        return held

    def hold_apart(self, new: Floats, old: Floats) -> NDArray[np.bool_]:
        """Undo, in place, changes from ``old`` that come too close to a vector seen.

        Nothing is kept of ``new``. Returns which atoms were changed back.
        """
        self._reserve(0)
        scratch = len(self._kept) - 1
        held = np.zeros(len(self.atoms), bool)
        values, before = self._values(new), self._values(old)
        for atom in range(len(self.atoms)):
            part = slice(self.start[atom], self.start[atom + 1])
            for mine, last in zip(values[:, part], before[:, part], strict=True):
                if held[atom] or not (mine != last).any():
                    continue
                write(*self._seen, scratch, atom, self.start, mine)
                held[atom] = too_close(
                    mine, *self._seen, scratch, 0, self._count, atom, self.start, self.least
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
                write(*self._seen, self._count, atom, self.start, mine)
            self._last[column % len(self._last)] = values
            self._count += 1


def _bytes_of(kept: NDArray[Any], vectors: int) -> int:
    """What so many vectors take where these are kept."""
    return vectors * kept.itemsize * math.prod(kept.shape[1:])


def _longer(kept: NDArray[_T], room: int, count: int) -> NDArray[_T]:
    """An array with room for more vectors."""
    size = _bytes_of(kept, room)
    if kept.flags.owndata and not LARGE <= size < HUGE:
        # Where it lies, if there is room: a copy would be of all vectors so far.
        kept.resize((room, *kept.shape[1:]), refcheck=False)
        return kept
    made = lasting_zeros if size < HUGE else np.zeros
    longer: NDArray[_T] = made((room, *kept.shape[1:]), kept.dtype)
    longer[:count] = kept[:count]
    return longer
