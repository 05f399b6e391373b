"""When a gradient at a released model tells its readers labels: puzzles of sums, and who objects.

Whoever has all columns knows scores, and the gradient then is Σ x over samples of one class, or
Σ x·y of counts: a puzzle of whole numbers, which lattices solve where it has one solution. So
labels must have more digits than it tells, all of them, those of each party and those of the rows
that a column stands for.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from weft.array_types import Floats
from weft.matching.party_view import PartyView
from weft.solvers.secret_sharing.label_leak_of_few_rows import tells_labels
from weft.solvers.secret_sharing.second_moment_guard import undivided
from weft.solvers.secret_sharing.table_positions import WholeTable

#: Digits that a gradient tells of each column, in its noise, whose cells are about one: a label is
#: one binary digit.
_GRADIENT_BITS = 24


def digits_told(table: WholeTable, problems: int, largest: float = 1.0) -> float:
    """Of labels by a gradient; ``largest`` of one's own columns, see `column_size`: noise does not
    grow with them."""
    return _bits(largest) * table.n_columns * problems


def _bits(largest: float) -> float:
    return _GRADIENT_BITS + max(0.0, math.log2(max(largest, 1.0)))


def tells_gradient(
    table: WholeTable, samples: int, problems: int, digits: float = 1.0, *, largest: float = 1.0
) -> bool:
    """Whether labels of so many ``digits`` have twice those that a gradient tells, and as many by
    table, since readers with labels of their own take those off."""
    told = digits_told(table, problems, largest)
    fewest = min((len(place.rows) for place in table.places), default=0)
    return digits * samples >= 2 * told and digits * fewest >= told


def column_size(view: PartyView, cells: Floats) -> float:
    """The largest column of this party's, as the root of its mean square."""
    whole = undivided(view, cells)
    return math.sqrt(float((whole**2).mean(axis=0).max(initial=0.0))) if len(whole) else 0.0


def tells_of_few(view: PartyView, cells: Floats, digits: float) -> bool:
    """Whether one's own columns stand for rows whose labels, of so many ``digits``, they tell."""
    return tells_labels(undivided(view, cells), _bits(column_size(view, cells)), digits)


def label_digits(labels: Floats, holders: int) -> float:
    """Binary digits of (rows × problems) labels, of which most being alike makes fewer.

    By how often each value is there: a class, a count or an amount. Half of them where nobody else
    has any, who would have as many.
    """
    if not len(labels):
        return math.inf
    counts = [np.unique(column, return_counts=True)[1] for column in labels.T]
    most = max(
        (float(scipy.special.entr(many / len(labels)).sum()) for many in counts), default=0.0
    )
    each = most / math.log(2.0)
    return len(labels) * each / (2.0 if holders == 1 else 1.0)
