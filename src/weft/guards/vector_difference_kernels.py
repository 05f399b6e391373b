"""Loops of ``min_batch``: which groups of samples differ in too little from vectors seen."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.numba_options import INNER, OUTER

#: Vectors seen: float32, or, of many samples, int16, whole numbers of a unit per atom.
Seen = NDArray[Any]
Digests = NDArray[np.uint64]

_FAST = {"reassoc", "contract", "nsz"}
#: Rounding of the two sums.
_SLACK = 1.0 + 1e-9
#: Samples that are compared at a time: without a branch in between, many at once.
_BLOCK = 128
#: What is kept of a vector per atom: its largest entry; Σ|e| and √Σe² of what keeping it in few
#: digits takes from its entries; and the unit of these.
_LARGEST, _LOST, _LOST_NORM, _UNIT = range(4)
#: How many figures that is.
SIZES = 4
#: The largest whole number that is kept of an entry.
_MOST = 32767.0
#: Added and taken off again, it leaves a whole number.
_TO_WHOLE = 1.5 * 2.0**52


@numba.njit(**OUTER)
def admit(
    values: Floats,
    start: Ints,
    last: Floats,
    kept: Seen,
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
                write(kept, digests, sizes, at, atom, start, before)


@numba.njit(**OUTER)
def find_lacking(
    values: Floats,
    start: Ints,
    last: Floats,
    kept: Seen,
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
    # With a type: for a constant the compiler would compile anew what it is passed on to.
    none: Any = numba.int64(0)
    for column in range(len(values)):
        at, problem = count + column, column % len(last)
        _find_usual(values[column], some, some_start, usual)
        for atom in range(len(start) - 1):
            new = values[column, start[atom] : start[atom + 1]]
            before = last[problem, start[atom] : start[atom + 1]]
            kinds = kind[start[atom] : start[atom + 1]]
            changed = _judge(
                new, before, kinds, usual, kept, digests, sizes, at, none, count, atom, start, least
            )
            if changed == 1:
                apart[atom, column] = count
            out[atom, column] = changed < 0


@numba.njit(**OUTER)
def fits(
    values: Floats,
    start: Ints,
    before: Floats,
    kept: Seen,
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
    for i in range(len(values)):
        whole[start[atom] + i] = values[i]
    usual = np.zeros(len(some_start) - 1)
    none: Any = numba.int64(0)
    _find_usual(whole, some, some_start, usual)
    at = len(kept) - 1
    changed: int = _judge(
        values, mine, kinds, usual, kept, digests, sizes, at, none, count, atom, start, least
    )
    return changed >= 0


@numba.njit(**INNER)
def _find_usual(values: Floats, some: Ints, some_start: Ints, usual: Floats) -> None:
    """The value that most samples of each kind have, if most have the same."""
    for number in range(len(usual)):
        begin, end = some_start[number], some_start[number + 1]
        few = np.empty(end - begin)
        for i in range(begin, end):
            few[i - begin] = values[some[i]]
        usual[number] = _middle(few)


@numba.njit(**INNER)
def _middle(few: Floats) -> float:
    """The entry in the middle of them in order, by Hoare's selection; they change places.

    The compiler takes a second over a sort.
    """
    first, last, middle = 0, len(few) - 1, len(few) // 2
    while first < last:
        pivot, low, high = few[middle], first, last
        while low <= high:
            while few[low] < pivot:
                low += 1
            while pivot < few[high]:
                high -= 1
            if low <= high:
                few[low], few[high] = few[high], few[low]
                low += 1
                high -= 1
        if high < middle:
            first = low
        if middle < low:
            last = high
    found: float = few[middle]
    return found


@numba.njit(**INNER)
def _judge(
    new: Floats,
    before: Floats,
    kinds: NDArray[np.int32],
    usual: Floats,
    kept: Seen,
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
    changed: int = _enough(new, before, least)
    if changed == 1 and not _apart_from_usual(new, kinds, usual, least):
        return -1
    if changed == 1 and len(kept):
        if not known:
            write(kept, digests, sizes, at, atom, start, new)
        if too_close(new, kept, digests, sizes, at, known, stop, atom, start, least):
            return -1
    return changed


@numba.njit(**INNER, fastmath=_FAST)
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


@numba.njit(**INNER, fastmath=_FAST)
def _apart_from_usual(new: Floats, kinds: NDArray[np.int32], usual: Floats, least: int) -> bool:
    """Whether what differs from the usual values of all kinds is enough, or nothing at all."""
    moved = moved_square = 0.0
    for i in range(len(new)):
        change = new[i] - usual[kinds[i]]
        moved += abs(change)
        moved_square += change * change
    return moved == 0.0 or moved * moved * _SLACK >= least * moved_square


@numba.njit(**OUTER)
def too_close(
    mine: Floats,
    kept: Seen,
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
        lost, unit = sizes[old, atom, _LOST], sizes[old, atom, _UNIT]
        # (Σ|d|)² ≥ n Σd² wherever Σ|d| ≥ n · max|d|: most often that shows after some samples.
        plenty = least * (sizes[old, atom, _LARGEST] + sizes[new, atom, _LARGEST]) + lost
        moved = moved_square = 0.0
        for begin in range(0, len(mine), _BLOCK):
            end = min(begin + _BLOCK, len(mine))
            some, squared = _differences(mine[begin:end], other[begin:end], unit)
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


@numba.njit(**INNER, fastmath=_FAST)
def _differences(some: Floats, others: Seen, unit: float) -> tuple[float, float]:
    moved = square = 0.0
    for i in range(len(some)):
        change = some[i] - others[i] * unit
        moved += abs(change)
        square += change * change
    return moved, square


@numba.njit(**OUTER)
def write(
    kept: Seen,
    digests: Digests,
    sizes: Floats,
    vector: int,
    atom: int,
    start: Ints,
    values: Floats,
) -> None:
    """Keep the values of an atom, one number for all of them, and how large they are."""
    mine = kept[vector, start[atom] : start[atom + 1]]
    unit, whole = 1.0, 0.0
    largest = _largest_of(values)
    if kept.itemsize == 2:
        whole = _TO_WHOLE
        unit = largest / _MOST if largest > 0.0 else 1.0
    digest, units = np.uint64(0), 1.0 / unit
    for place in range(len(values)):
        mine[place] = (values[place] * units + whole) - whole
        # Each step can be undone: where one value differs, its term does, and so the sum. The
        # place makes terms of equal values different ones. A sum can be taken many at a time.
        term = (_mixed(values[place]) ^ np.uint64(place)) * np.uint64(0x9E3779B97F4A7C15)
        digest += term ^ (term >> np.uint64(32))
    digests[vector, atom] = digest
    lost, square = _differences(values, mine, unit)
    sizes[vector, atom, _LARGEST] = largest
    sizes[vector, atom, _LOST] = lost
    sizes[vector, atom, _LOST_NORM] = np.sqrt(square)
    sizes[vector, atom, _UNIT] = unit


@numba.njit(**INNER, fastmath=_FAST)
def _largest_of(values: Floats) -> float:
    largest = 0.0
    for i in range(len(values)):
        size = abs(values[i])
        largest = size if size > largest else largest
    return largest


@numba.njit(**INNER)
def _mixed(value: float) -> np.uint64:
    """The bits of a number, mixed well; different ones for different numbers."""
    x = np.float64(value + 0.0).view(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
