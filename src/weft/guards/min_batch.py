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

from typing import TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints

Singles = NDArray[np.float32]
Digests = NDArray[np.uint64]
_T = TypeVar("_T", bound=np.generic)

_FAST = {"reassoc", "contract", "nsz"}
#: Rounding of the two sums.
_SLACK = 1.0 + 1e-9
#: Samples that are compared at a time: without a branch in between, many at once.
_BLOCK = 128
#: What is kept of a vector per atom: its largest entry; Σ|e| and √Σe² of what single precision
#: takes from its entries.
_LARGEST, _LOST, _LOST_NORM = range(3)


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
        self.rows: Ints = order[np.searchsorted(atom[order], 0) :]
        self.atoms, first = np.unique(atom[self.rows], return_index=True)
        self.start: Ints = np.append(first, len(self.rows)).astype(np.int64)
        self.least = least
        #: The rows as a range, where they are one: that is far cheaper to read.
        self._range: slice | None = None
        if len(self.rows) and (np.diff(self.rows) == 1).all():
            self._range = slice(int(self.rows[0]), int(self.rows[-1]) + 1)
        self._kinds = _Kinds.of(
            np.zeros(len(atom), np.int64) if kind is None else kind, self.rows, self.start, least
        )

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
        nothing = np.zeros((0, 0), np.float32), np.zeros((0, 0), np.uint64), np.zeros((0, 0, 3))
        apart = np.zeros((len(self.atoms), new.shape[1]), np.int64)
        # What was admitted is kept as the last vector, and the old ones are not ours to change.
        last, values = self._values(old).copy(), self._values(new)
        _admit(values, self.start, last, *nothing, 0, self.least, *self._kinds.parts, apart, held)
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
        _, back = np.unique(np.stack([atom, kind[rows]]), axis=1, return_inverse=True)
        number: NDArray[np.int32] = back.ravel().astype(np.int32)
        order = np.argsort(number, kind="stable")
        sizes = np.bincount(number) if len(number) else np.zeros(0, np.int64)
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

    Vectors are kept in single precision, and what that leaves open counts against them: a
    difference is never taken for more than it is. Whether anything differs at all, a number per
    atom says, which is another one wherever a single sample is.

    Parameters
    ----------
    width
        Problems that are trained together, whose vectors lie side by side.
    """

    def __init__(self, atom: Ints, least: int, width: int, kind: Ints | None = None) -> None:
        super().__init__(atom, least, kind)
        self._last = np.zeros((width, len(self.rows)))
        #: The same for vectors that are no dual vectors: neither may stand for the other.
        self._last_other = np.zeros((width, len(self.rows)))
        self._kept: Singles = np.zeros((16, len(self.rows)), np.float32)
        self._digests: Digests = np.zeros((16, len(self.atoms)), np.uint64)
        self._sizes: Floats = np.zeros((16, len(self.atoms), 3))
        self._count = 0

    def rows_of(self, atom: int) -> Ints:
        """The local rows of an atom, by its place among those here."""
        return self.rows[self.start[atom] : self.start[atom + 1]]

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
        _find_lacking(values, self.start, self._last, *seen, self.least, *kinds, out, apart)
        return out, apart

    def fits(self, atom: int, column: int, values: Floats) -> bool:
        """Whether these values of one atom differ in enough from all vectors seen."""
        self._reserve(0)
        before = self._last[column % len(self._last)]
        seen, kinds = (*self._seen, self._count), self._kinds.parts
        return bool(_fits(values, self.start, before, *seen, self.least, *kinds, atom))

    @property
    def _seen(self) -> tuple[Singles, Digests, Floats]:
        return self._kept, self._digests, self._sizes

    def _reserve(self, new: int) -> None:
        """Room for new vectors, and for one more, the last, to try values in."""
        if self._count + new + 1 > len(self._kept):
            room = max(2 * len(self._kept), self._count + new + 1)
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
        last = self._last if dual else self._last_other
        seen, kinds = (*self._seen, self._count), self._kinds.parts
        _admit(values, self.start, last, *seen, self.least, *kinds, apart, held)
        if held.any():
            self._put_back(vectors, values)
        self._count += new
        return held

    def restrain(self, vectors: Floats) -> NDArray[np.bool_]:
        """As `admit`, but nothing is kept: nobody has seen sums of these vectors yet."""
        self._reserve(vectors.shape[1])
        held = np.zeros(len(self.atoms), bool)
        apart = np.zeros((len(self.atoms), vectors.shape[1]), np.int64)
        values, last = self._values(vectors), self._last.copy()
        seen, kinds = (*self._seen, self._count), self._kinds.parts
        _admit(values, self.start, last, *seen, self.least, *kinds, apart, held)
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
                _write(*self._seen, scratch, atom, self.start, mine)
                held[atom] = _too_close(
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
                _write(*self._seen, self._count, atom, self.start, mine)
            self._last[column % len(self._last)] = values
            self._count += 1


def _longer(kept: NDArray[_T], room: int, count: int) -> NDArray[_T]:
    """An array with room for more vectors."""
    longer = np.zeros((room, *kept.shape[1:]), kept.dtype)
    longer[:count] = kept[:count]
    return longer


@numba.njit(cache=True)
def _admit(
    values: Floats,
    start: Ints,
    last: Floats,
    kept: Singles,
    digests: Digests,
    sizes: Floats,
    count: int,
    least: int,
    kind: NDArray[np.int32],
    some: Ints,
    some_start: Ints,
    apart: Ints,
    held: NDArray[np.bool_],
) -> None:
    """Columns of ``values``, one after the other, each a row here."""
    usual = np.zeros(len(some_start) - 1)
    for column in range(len(values)):
        at, problem = count + column, column % len(last)
        _find_usual(values[column], some, some_start, usual)
        for atom in range(len(start) - 1):
            new = values[column, start[atom] : start[atom + 1]]
            before = last[problem, start[atom] : start[atom + 1]]
            kinds = kind[start[atom] : start[atom + 1]]
            known = apart[atom, column]
            changed = _judge(
                new, before, kinds, usual, kept, digests, sizes, at, known, at, atom, start, least
            )
            # Loops: over an assignment of slices the compiler takes seconds.
            if changed == 1:
                for i in range(len(new)):
                    before[i] = new[i]
                continue
            if changed < 0:
                held[atom] = True
                for i in range(len(new)):
                    new[i] = before[i]
            if len(kept):
                _write(kept, digests, sizes, at, atom, start, before)


@numba.njit(cache=True)
def _find_lacking(
    values: Floats,
    start: Ints,
    last: Floats,
    kept: Singles,
    digests: Digests,
    sizes: Floats,
    count: int,
    least: int,
    kind: NDArray[np.int32],
    some: Ints,
    some_start: Ints,
    out: NDArray[np.bool_],
    apart: Ints,
) -> None:
    """The same question for every column by itself; it is left where it belongs."""
    usual = np.zeros(len(some_start) - 1)
    for column in range(len(values)):
        at, problem = count + column, column % len(last)
        _find_usual(values[column], some, some_start, usual)
        for atom in range(len(start) - 1):
            new = values[column, start[atom] : start[atom + 1]]
            before = last[problem, start[atom] : start[atom + 1]]
            kinds = kind[start[atom] : start[atom + 1]]
            changed = _judge(
                new, before, kinds, usual, kept, digests, sizes, at, 0, count, atom, start, least
            )
            if changed == 1:
                apart[atom, column] = count
            out[atom, column] = changed < 0


@numba.njit(cache=True)
def _fits(
    values: Floats,
    start: Ints,
    before: Floats,
    kept: Singles,
    digests: Digests,
    sizes: Floats,
    count: int,
    least: int,
    kind: NDArray[np.int32],
    some: Ints,
    some_start: Ints,
    atom: int,
) -> bool:
    mine = before[start[atom] : start[atom + 1]]
    kinds = kind[start[atom] : start[atom + 1]]
    whole = np.zeros(start[-1])
    whole[start[atom] : start[atom + 1]] = values
    usual = np.zeros(len(some_start) - 1)
    _find_usual(whole, some, some_start, usual)
    at = len(kept) - 1
    changed = _judge(
        values, mine, kinds, usual, kept, digests, sizes, at, 0, count, atom, start, least
    )
    return changed >= 0


@numba.njit(cache=True)
def _find_usual(values: Floats, some: Ints, some_start: Ints, usual: Floats) -> None:
    """The value that most samples of each kind have, if most have the same."""
    for number in range(len(usual)):
        begin, end = some_start[number], some_start[number + 1]
        few = np.empty(end - begin)
        for i in range(begin, end):
            few[i - begin] = values[some[i]]
        few.sort()
        usual[number] = few[(end - begin) // 2]


@numba.njit(cache=True)
def _judge(
    new: Floats,
    before: Floats,
    kinds: NDArray[np.int32],
    usual: Floats,
    kept: Singles,
    digests: Digests,
    sizes: Floats,
    at: int,
    known: int,
    stop: int,
    atom: int,
    start: Ints,
    least: int,
) -> int:
    """1: an atom may change so; 0: it does not change; −1: too few samples would differ.

    It is written down at ``at``, unless it is known to be apart from the first ``known`` vectors
    seen: then it is there already. It is compared with those from there to ``stop``.
    """
    changed = _enough(new, before, least)
    if changed == 1 and not _apart_from_usual(new, kinds, usual, least):
        return -1
    if changed == 1 and len(kept):
        if not known:
            _write(kept, digests, sizes, at, atom, start, new)
        if _too_close(new, kept, digests, sizes, at, known, stop, atom, start, least):
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


@numba.njit(cache=True, fastmath=_FAST)
def _apart_from_usual(new: Floats, kinds: NDArray[np.int32], usual: Floats, least: int) -> bool:
    """Whether what differs from the usual values of all kinds is enough, or nothing at all."""
    moved = moved_square = 0.0
    for i in range(len(new)):
        change = new[i] - usual[kinds[i]]
        moved += abs(change)
        moved_square += change * change
    return moved == 0.0 or moved * moved * _SLACK >= least * moved_square


@numba.njit(cache=True)
def _too_close(
    mine: Floats,
    kept: Singles,
    digests: Digests,
    sizes: Floats,
    new: int,
    first: int,
    stop: int,
    atom: int,
    start: Ints,
    least: int,
) -> bool:
    """Whether a vector from ``first`` to ``stop`` differs in an atom, but in too little."""
    for old in range(first, stop):
        if digests[old, atom] == digests[new, atom]:
            continue
        other = kept[old, start[atom] : start[atom + 1]]
        lost = sizes[old, atom, _LOST]
        # (Σ|d|)² ≥ n Σd² wherever Σ|d| ≥ n · max|d|: most often that shows after some samples.
        plenty = least * (sizes[old, atom, _LARGEST] + sizes[new, atom, _LARGEST]) + lost
        moved = moved_square = 0.0
        for begin in range(0, len(mine), _BLOCK):
            end = min(begin + _BLOCK, len(mine))
            some, squared = _differences(mine[begin:end], other[begin:end])
            moved += some
            moved_square += squared
            if moved * _SLACK >= plenty:
                break
        if moved * _SLACK >= plenty:
            continue
        moved -= lost
        length = np.sqrt(moved_square) + sizes[old, atom, _LOST_NORM]
        if moved <= 0.0 or moved * moved * _SLACK < least * length * length:
            return True
    return False


@numba.njit(cache=True, fastmath=_FAST)
def _differences(some: Floats, others: Singles) -> tuple[float, float]:
    moved = square = 0.0
    for i in range(len(some)):
        change = some[i] - others[i]
        moved += abs(change)
        square += change * change
    return moved, square


@numba.njit(cache=True)
def _write(
    kept: Singles,
    digests: Digests,
    sizes: Floats,
    vector: int,
    atom: int,
    start: Ints,
    values: Floats,
) -> None:
    """Keep the values of an atom, one number for all of them, and how large they are."""
    mine = kept[vector, start[atom] : start[atom + 1]]
    digest = np.uint64(0)
    for place in range(len(values)):
        mine[place] = values[place]
        # Each step can be undone: where one value differs, its term does, and so the sum. The
        # place makes terms of equal values different ones. A sum can be taken many at a time.
        term = (_mixed(values[place]) ^ np.uint64(place)) * np.uint64(0x9E3779B97F4A7C15)
        digest += term ^ (term >> np.uint64(32))
    digests[vector, atom] = digest
    largest, lost, square = _sizes_of(values, mine)
    sizes[vector, atom, _LARGEST] = largest
    sizes[vector, atom, _LOST] = lost
    sizes[vector, atom, _LOST_NORM] = np.sqrt(square)


@numba.njit(cache=True, fastmath=_FAST)
def _sizes_of(values: Floats, kept: Singles) -> tuple[float, float, float]:
    largest = lost = square = 0.0
    for i in range(len(values)):
        size = abs(values[i])
        largest = size if size > largest else largest
        error = values[i] - kept[i]
        lost += abs(error)
        square += error * error
    return largest, lost, square


@numba.njit(cache=True)
def _mixed(value: float) -> np.uint64:
    """The bits of a number, mixed well; different ones for different numbers."""
    x = np.float64(value + 0.0).view(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
