"""Whether sums Σ x·y of columns tell labels y of a few rows, all combinations of them together.

A combination whose square some rows have all of but a part 4⁻ᵇ tells b binary digits about their
labels, since what others add is unknown, and no more than a sum has. The largest eigenvalues of the
projector on all combinations, over these rows, are their parts of as many combinations that say
different things: digits add up, and shall be half of those that the labels have.

Rows that are alike in all of these tell how many of each label there are among them and no more;
where combinations say only that, of rows that are alike, it is a column of two values, or several
levels: other rules see to it that they are enough.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.array_types import Floats, Ints
from weft.solvers.secret_sharing.column_combinations_of_few_rows import orthonormal_basis
from weft.solvers.secret_sharing.label_leak_of_uncommon_cells import (
    digits_of_counts,
    tells_beside_whole_numbers,
)

#: Below this, numbers in 64 bits are the same.
_SAME = 1e-9
#: A row that has less of all combinations, as a part of the largest, is none that they stand for:
#: by rounding of cells, and since sums have no digits for it. Either may hide what the other shows.
_LITTLE = 2.0**-12, 2.0**-24
#: Digits from which a combination is one that stands for its rows; those of others are few.
_STRONG = 4.0
#: Digits that usual columns tell of the half of the rows where they are largest.
_FEW = 2.0
#: Parts of squares in some rows that add up to less have none that tells as many digits.
_LEAST_PARTS = (1.0 - _SAME) * 4**_FEW / (4**_FEW + 1)
#: How often rows are chosen anew for combinations of those chosen before.
_ROUNDS = 3
#: Rows that a search starts from at most, of the largest leverage.
_STARTS = 1 << 7
#: Numbers that are in memory at once.
_AT_ONCE = 1 << 22
#: Products of numbers after which a search ends, and columns count as telling: some 15 seconds,
#: which tables take that have many rows far from the others.
_MOST = 1 << 35


def tells_labels(cells: Floats, bits: float, digits: float) -> bool:
    """Whether combinations of columns tell labels of some rows, at most nine tenths of all.

    Parameters
    ----------
    cells
        Rows × columns of one party.
    bits
        Digits that a sum has.
    digits
        Of a label.
    """
    if not cells.size:
        return False
    if any(tells_beside_whole_numbers(column, bits, digits) for column in cells.T):
        return True
    basis = orthonormal_basis(cells)
    leverages = (basis**2).sum(axis=1)
    order = np.argsort(leverages)[::-1]
    average = np.cumsum(leverages[order]) / np.arange(1, len(basis) + 1)
    # k rows have k·digits/2 told of them by combinations of at most `bits` each.
    least = (1.0 - _SAME) * digits / (2 * bits)
    first = _unlike(basis, order[leverages[order] > least])[:_STARTS]
    step, spent = max(1, _AT_ONCE // basis.size), 0
    for count in _counts(9 * len(basis) // 10):
        if average[count - 1] <= least:
            break
        for begin in range(0, len(first), step):
            some = first[begin : begin + step]
            spent += len(some) * basis.size * basis.shape[1]
            if spent > _MOST or _found(basis, some, count, bits, digits):
                return True
    return False


def _unlike(basis: Floats, rows: Ints) -> Ints:
    """The first of rows that are alike: a level has many, and they say the same."""
    _, places = np.unique(np.round(basis[rows], 9), axis=0, return_index=True)
    return rows[np.sort(places)]


def _counts(most: int) -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, …: rows of which only some count are looked at without the others."""
    count = 1
    while count < most:
        yield count
        if count > 1 and count + count // 2 < most:
            yield count + count // 2
        count *= 2
    if most:
        yield most


def _found(basis: Floats, first: Ints, count: int, bits: float, digits: float) -> bool:
    """Whether so many rows, found from each of the first ones, have labels that are told.

    A search takes the rows that have most of some combinations, and the combinations that have most
    in these, and again; it begins with the one that says most of its first row.
    """
    combinations = basis[first][:, :, None]
    leverages = (basis**2).sum(axis=1)
    for round_ in range(_ROUNDS):
        sizes = ((basis @ combinations) ** 2).sum(axis=2)
        rows = _different(
            np.argpartition(sizes, len(basis) - count, axis=1)[:, len(basis) - count :]
        )
        if round_ == _ROUNDS - 1:
            # What they come to by themselves takes most of the time.
            rows = rows[leverages[rows].sum(axis=1) >= _LEAST_PARTS]
        chosen = basis[rows]
        parts, vectors = np.linalg.eigh(chosen.transpose(0, 2, 1) @ chosen)
        told = _digits_of(parts, bits)
        if 2 * count > len(basis):
            told[told < _STRONG] = 0.0
        for search in np.flatnonzero(told.sum(axis=1) > 0.0):
            if _labels_told(chosen[search], told[search], vectors[search], digits):
                return True
        # Those that have more in these rows than elsewhere, and the largest in any case.
        kept = parts > 0.5
        kept[:, -1] = True
        combinations = np.where(kept[:, None, :], vectors, 0.0)
    return False


def _different(rows: Ints) -> Ints:
    """Each set of rows once: many searches come to the same, and go on alike from there."""
    rows = np.sort(rows, axis=1)
    return rows[list({found.tobytes(): place for place, found in enumerate(rows)}.values())]


def _digits_of(parts: Floats, bits: float) -> Floats:
    """What combinations with such parts of their squares in some rows tell about these."""
    inside = np.clip(parts, _SAME, 1.0 - 2.0**-52)
    told: Floats = np.clip(0.5 * np.log2(inside / (1.0 - inside)), 0.0, bits)
    # Rounding makes a part of one less; and every column has more in the rows where it is large.
    told[parts > 1.0 - _SAME] = bits
    told[told < _FEW] = 0.0
    return told


def _labels_told(chosen: Floats, told: Floats, vectors: Floats, digits: float) -> bool:
    strong = told >= _STRONG
    if not strong.any():
        return bool(told.sum() > 0.5 * digits * len(chosen))
    values = chosen @ vectors[:, strong]
    sizes = np.abs(values).max(axis=1) / np.abs(values).max()
    by_strong, by_others = float(told[strong].sum()), float(told[~strong].sum())
    for little in _LITTLE:
        some = values[sizes > little]
        enough = 0.5 * digits * len(some)
        # Which rows are alike only makes it less: to find out takes most of the time. And there are
        # more rows the less of the combinations they may have.
        if by_strong + by_others <= enough:
            return False
        rounded = np.round(some / np.abs(some).max() / (10 * _SAME))
        alike = np.unique(rounded, axis=0, return_counts=True)[1]
        if len(alike) <= strong.sum():
            continue
        if min(by_strong, float(digits_of_counts(alike).sum())) + by_others > enough:
            return True
    return False
