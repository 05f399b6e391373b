"""Whether a combination of columns stands for a few rows: then moments of columns tell of these.

Without its column a level is what the constant column has left when all other levels are taken off:
whoever has second moments has those of all combinations. Let P be the projector on combinations of
columns and the constant one. The most that k rows S can have of the square of a combination is the
largest eigenvalue of P over S, and that is 1 where the combination is zero elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.array_types import Floats, Ints
from weft.solvers.secret_sharing.digit_widths import CELL_BITS

#: Below this part of the largest, a singular value is rounding of numbers in 64 bits.
_RANK = 1e-9
#: How often rows are chosen anew for a combination of those chosen before.
_ROUNDS = 4
#: Rows that a search for nearly empty combinations starts from at most, of the largest leverage.
_STARTS = 1 << 10
#: Numbers of a projector that are in memory at once.
_AT_ONCE = 1 << 22


def stands_for_few(cells: Floats, least: int, weights: Floats | None = None) -> bool:
    """Whether k < ``least`` rows have so much of some combination's square that it tells of them.

    ``weights`` are those of rows in a matrix Σ w x xᵀ; None: one each.

    That is more than k / (k + 1): on average each of them more than all other rows together. One
    row may have half. A combination that is even over n rows and zero elsewhere has k / n in k of
    them: it is found if n is below ``least``; if n is larger it is not, but for small differences.
    Numbers k that double, and the largest, are tried.
    """
    basis = orthonormal_basis(cells, weights)
    leverages = (basis**2).sum(axis=1)
    most = np.cumsum(np.sort(leverages)[::-1])
    # Where a combination has that part in k rows, one of them has a leverage of 1 / (k + 1).
    first = np.flatnonzero(leverages > 1.0 / (least + 1))
    for count in _counts(least):
        part = count / (count + 1) + _RANK
        # The eigenvalues of P over some rows add up to their leverages.
        if most[min(count, len(most)) - 1] <= part:
            continue
        step = max(1, _AT_ONCE // len(basis))
        for begin in range(0, len(first), step):
            if _largest_part(basis, first[begin : begin + step], count) > part:
                return True
    return False


def largest_part(cells: Floats) -> float:
    """The most that one row has of the square of some combination."""
    return float((orthonormal_basis(cells) ** 2).sum(axis=1).max(initial=0.0))


def spanned_by(cells: Floats) -> int:
    """How many columns and the constant one say different things."""
    return int(orthonormal_basis(cells).shape[1])


def _counts(least: int) -> Iterator[int]:
    count = 1
    while count < least - 1:
        yield count
        count *= 2
    yield least - 1


def orthonormal_basis(cells: Floats, weights: Floats | None = None) -> Floats:
    """Orthonormal columns that span those of the table as it is shared, and the constant one."""
    columns = np.column_stack([np.round(cells * 2.0**CELL_BITS), np.ones(len(cells))])
    if weights is not None:
        columns = np.sqrt(weights)[:, None] * columns
    columns = columns[:, columns.any(axis=0)]
    left, triangle = np.linalg.qr(columns / np.linalg.norm(columns, axis=0))
    turned, sizes, _ = np.linalg.svd(triangle)
    free = sizes > _RANK * sizes[0]
    basis: Floats = left if free.all() else left @ turned[:, free]
    return basis


def _largest_part(basis: Floats, first: Ints, count: int) -> float:
    """The largest part of a combination's square that was found in so many rows.

    A search starts from each of the first rows with the combination that says most of it: take the
    rows where a combination is largest, and the combination that is largest in these, and again.
    """
    best, combinations = 0.0, basis[first]
    count = min(count, len(basis))
    for _ in range(_ROUNDS):
        sizes = np.abs(combinations @ basis.T)
        rows = np.argpartition(sizes, len(basis) - count, axis=1)[:, len(basis) - count :]
        chosen = basis[rows]
        turned = chosen.transpose(0, 2, 1)
        by_rows = count < basis.shape[1]
        # Both products have the same largest eigenvalue.
        values, vectors = np.linalg.eigh(chosen @ turned if by_rows else turned @ chosen)
        best, largest = max(best, float(values[:, -1].max())), vectors[:, :, -1]
        combinations = np.einsum("ik,ikd->id", largest, chosen) if by_rows else largest
    return best
