"""Whether a sum Σ x·y tells labels y of the few rows whose cells are no multiples of a unit.

Cells of most columns are whole numbers of some unit: years, counts, codes. What rows with such
cells add to a sum is a whole number of it; the rest is what the other rows add. These are few where
ages of some have months, and their labels are then as well told as if their column had no others,
but for the digits that the whole number has.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.array_types import Floats, Ints

#: Cells that differ by less, as a part of the column's size, are the same.
_SAME = 1e-11
#: Multiples of a unit are off by less, as a part of it.
_NEAR = 1e-6
#: Or by less, where the unit is known from one step alone, and then from those that are near.
_NEARLY = 1e-3, 1e-4, 1e-5
#: Rows that have a value in common from which on it may be a code.
_SHARED = 10
#: The smallest unit, as a part of the column's size: multiples of a smaller one are everywhere.
_SMALLEST = 1e-4


def tells_beside_whole_numbers(column: Floats, bits: float, digits: float) -> bool:
    """Whether labels of the rows beside multiples of a unit, half of all at most, are told.

    They are if more than half of their digits are.

    Parameters
    ----------
    column
        Of one party.
    bits
        Digits that a sum has.
    digits
        Of a label.
    """
    centred = column - np.median(column)
    size = float(np.abs(centred).max(initial=0.0))
    if size == 0.0:
        return False
    values, counts = np.unique(np.round(centred / size / _SAME), return_counts=True)
    values = (values - values[counts.argmax()]) * _SAME
    for unit in _units(values, counts):
        multiples = values / _refined(unit, values, counts)
        beside = np.abs(multiples - np.round(multiples)) > _NEAR
        others = int(counts[beside].sum())
        if not 0 < 2 * others <= len(column):
            continue
        rests = np.round(np.mod(multiples[beside], 1.0) / _NEAR)
        alike = np.bincount(np.unique(rests, return_inverse=True)[1], weights=counts[beside])
        whole = _digits_of_whole(multiples[~beside], counts[~beside])
        told = min(bits - whole, float(digits_of_counts(alike).sum()))
        if told > 0.5 * digits * others:
            return True
    return False


def _units(values: Floats, counts: Ints) -> Iterator[float]:
    """What values that most rows share may be multiples of: steps between them, and divisors."""
    order = np.argsort(counts, kind="stable")[::-1]
    half = int(np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2)) + 1
    # Two at least, so that there is a step; and all that a code may be.
    most = max(half, 2, int((counts >= _SHARED).sum()))
    steps = np.unique(np.round(np.diff(np.sort(values[order[:most]])) / _SAME)) * _SAME
    divisor = float(steps[0])
    for step in steps[1:].tolist():
        divisor = _common_divisor(step, divisor)
    found = {float(steps[0]), float(np.median(steps)), divisor}
    yield from sorted(unit for unit in found if unit > _SMALLEST)


def _refined(unit: float, values: Floats, counts: Ints) -> float:
    """By all values that are nearly multiples of it: one step has too few digits."""
    for near in _NEARLY:
        multiples = values / unit
        whole = np.round(multiples) * (np.abs(multiples - np.round(multiples)) < near)
        if whole.any():
            unit = float((counts * whole) @ values / ((counts * whole) @ whole))
    return unit


def _common_divisor(larger: float, smaller: float) -> float:
    """Euclid's, of numbers that are not quite exact; zero if there is none."""
    while smaller > _SMALLEST:
        rest = larger % smaller
        if min(rest, smaller - rest) <= _NEAR * smaller:
            return smaller
        larger, smaller = smaller, rest
    return 0.0


def _digits_of_whole(multiples: Floats, counts: Ints) -> float:
    """What a sum of multiples of the unit over labels of two classes has, or their counts have."""
    variance = float(counts @ multiples**2) / 4
    sum_ = 0.5 * np.log2(2 * np.pi * np.e * (variance + 1 / 12))
    return float(min(sum_, digits_of_counts(counts).sum()))


def digits_of_counts(rows: Ints | Floats) -> Floats:
    """What it tells, on average, how many of so many labels are of one of two classes."""
    normal = 0.5 * np.log2(2 * np.pi * np.e * (rows / 4 + 1 / 12))
    least: Floats = np.minimum(np.log2(rows + 1.0), normal)
    return least
