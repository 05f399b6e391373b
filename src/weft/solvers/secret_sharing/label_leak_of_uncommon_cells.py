"""Whether a sum Σ x·y tells labels y of the few rows whose cells no others have.

Cells of most columns are whole numbers of some unit: years, counts, codes. What rows with such
cells add to a sum is a whole number of it; the rest is what the other rows add. These are few where
ages of some have months, and their labels are then as well told as if their column had no others,
but for the digits that the whole number has. It is the same with codes of any values: how many of
each there are are whole numbers too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from weft.array_types import Flags, Floats, Ints

#: Cells that differ by less, as a part of the column's size, are the same.
_SAME = 1e-11
#: By how much cells may be off multiples of a unit, in theirs and as a part of it: cells travel
#: with 18 binary digits, and columns that were scaled before have five decimals or more.
_OFF, _NEAR = 2.0**-16, 1e-6
#: Or by so much of it, where it is known from one step alone, and then from those that are near.
_NEARLY = 1e-3, 1e-4, 1e-5
#: The smallest unit, as a multiple of what cells may be off: others are everywhere.
_SMALLEST = 64
#: Halves, quarters, months and hundredths are units, too, if some rows have them.
_PARTS = 1, 2, 4, 12, 100
#: Rows that have a value in common from which on it may be a code.
_SHARED = 10


def tells_beside_whole_numbers(column: Floats, bits: float, digits: float) -> bool:
    """Whether labels of rows that are not as others are told, of half of all at most.

    They are if more than half of their digits are.

    Parameters
    ----------
    column
        Of one party.
    bits
        Digits that a sum has, whose cells are about one.
    digits
        Of a label.
    """
    values, counts = np.unique(np.round(column / _SAME), return_counts=True)
    values = (values - values[counts.argmax()]) * _SAME if len(values) else values
    if len(values) < 2:
        return False
    bits = min(bits, _digits_of_all(values, counts))
    for unit in (*_units(values, counts), None):
        groups = _Groups.of(values, counts, unit)
        few = groups.rows < _SHARED
        others = int(groups.rows[few].sum())
        if not 0 < 2 * others <= len(column):
            continue
        # What cells are off by, over unknown labels, hides digits of the sum.
        hidden = bits + np.log2(max(groups.off, 1e-300) / np.sqrt(len(column)))
        left = bits - max(hidden, 0.0) - groups.charged(~few)
        told = min(left, float(digits_of_counts(groups.rows[few]).sum()))
        if told > 0.5 * digits * others:
            return True
    return False


def _digits_of_all(values: Floats, counts: Ints) -> float:
    """Of a sum, where all values are multiples of one unit."""
    unit = _divisor(np.diff(values))
    if not unit:
        return np.inf
    multiples = values / _refined(unit, values, counts)
    far = multiples - np.average(multiples, weights=counts)
    return float(_digits_of_sums(np.array([counts @ far**2]))[0])


@dataclass(frozen=True)
class _Groups:
    """Values that differ by whole numbers of a unit, or that are the same where there is none.

    Attributes
    ----------
    rows
        By group: how many rows.
    digits
        By group: of what these add to a sum.
    off
        Deviation of a sum by what cells are off multiples.
    """

    rows: Ints
    digits: Floats
    off: float

    @staticmethod
    def of(values: Floats, counts: Ints, unit: float | None) -> _Groups:
        each = digits_of_counts(counts)
        if unit is None:
            return _Groups(counts, each, 0.0)
        unit = _refined(unit, values, counts)
        multiples, near = values / unit, max(_NEAR, _OFF / unit)
        # Half a step further, so that those that are a little below are with those above.
        rests = np.mod(multiples + 0.5, 1.0)
        order = np.argsort(rests)
        apart = np.append(0, np.diff(rests[order]) > 2 * near)
        group = np.empty(len(values), np.int64)
        group[order] = np.cumsum(apart)
        number = int(group.max()) + 1
        if rests[order[0]] + 1.0 - rests[order[-1]] <= 2 * near:
            group[group == number - 1], number = 0, max(number - 1, 1)
        rows = np.bincount(group, weights=counts, minlength=number).astype(np.int64)

        def about_mean(given: Floats) -> Floats:
            return given - (np.bincount(group, counts * given, number) / rows)[group]

        far = about_mean(multiples) ** 2
        spread = np.bincount(group, counts * far, number).astype(np.float64)
        by_sum = _digits_of_sums(spread) + digits_of_counts(rows)
        first = rests[np.unique(group, return_index=True)[1]]
        off = about_mean(np.mod(rests - first[group] + 0.5, 1.0)) * unit
        digits = np.minimum(by_sum, np.bincount(group, each, number))
        return _Groups(rows, digits, 0.5 * float(np.sqrt(counts @ off**2)))

    def charged(self, which: Flags) -> float:
        """Digits of all that these add; the sum of all labels is known, and so how many of the
        largest group, given those of others."""
        known = digits_of_counts(self.rows[which]).max(initial=0.0)
        return float(self.digits[which].sum() - known)


def _units(values: Floats, counts: Ints) -> Iterator[float]:
    """What values that most rows share may be multiples of: steps between them, and divisors."""
    order = np.argsort(counts, kind="stable")[::-1]
    half = int(np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2)) + 1
    # Two at least, so that there is a step; and all that a code may be.
    most = max(half, 2, int((counts >= _SHARED).sum()))
    steps = np.unique(np.round(np.diff(np.sort(values[order[:most]])) / _SAME)) * _SAME
    found = {float(steps[0]), float(np.median(steps)), _divisor(steps)}
    parts = {unit / part for unit in found for part in _PARTS}
    for unit in sorted(unit for unit in parts if unit > _SMALLEST * _OFF):
        near = np.abs(values / unit - np.round(values / unit)) < _NEARLY[0]
        # Units of which hardly any rows have multiples are none.
        if 10 * counts[near].sum() > counts.sum():
            yield unit


def _refined(unit: float, values: Floats, counts: Ints) -> float:
    """By all values that are nearly multiples of it: one step has too few digits."""
    for near in _NEARLY:
        multiples, close = values / unit, max(near, _OFF / unit)
        whole = np.round(multiples) * (np.abs(multiples - np.round(multiples)) < close)
        if whole.any():
            unit = float((counts * whole) @ values / ((counts * whole) @ whole))
    return unit


def _divisor(steps: Floats) -> float:
    """Of all steps, or zero."""
    found = float(steps[0])
    for step in steps[1:].tolist():
        found = _common_divisor(max(step, found), min(step, found))
        if not found:
            break
    return found


def _common_divisor(larger: float, smaller: float) -> float:
    """Euclid's, of numbers that are not quite exact; zero if there is none."""
    while smaller > _SMALLEST * _OFF:
        rest = larger % smaller
        if min(rest, smaller - rest) <= max(_NEAR * smaller, 2 * _OFF):
            return smaller
        larger, smaller = smaller, rest
    return 0.0


def _digits_of_sums(spread: Floats) -> Floats:
    """Of a sum of whole numbers over labels of two classes, by their squares about the mean."""
    digits: Floats = 0.5 * np.log2(2 * np.pi * np.e * (spread / 4 + 1 / 12))
    return digits


def digits_of_counts(rows: Ints | Floats) -> Floats:
    """What it tells, on average, how many of so many labels are of one of two classes."""
    normal = 0.5 * np.log2(2 * np.pi * np.e * (rows / 4 + 1 / 12))
    least: Floats = np.minimum(np.log2(rows + 1.0), normal)
    return least
