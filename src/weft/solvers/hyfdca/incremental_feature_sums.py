"""The totals of all parties' feature sums, and the weights that each party opens from them.

An iteration moves a few samples, whose rows of a sparse table name few of up to a million columns:
only these are added up and opened anew. The numbers are those of a pass over all columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints, Slots
from weft.numba_options import INNER, OUTER
from weft.sums.party_table_products import LocalTable, SparsePiece

Integers = NDArray[np.int64]


class FeatureTotals:
    """Totals by shared column.

    Parameters
    ----------
    totals
        In fixed point; changed in place.
    columns
        Per party, where its shared columns lie among all.
    tables
        The parties' tables.
    """

    def __init__(
        self, totals: Integers, columns: Sequence[Ints], tables: Sequence[LocalTable]
    ) -> None:
        self._totals, self._columns = totals, columns
        self._pieces: list[Sequence[Any]] = [table._pieces for table in tables]
        #: When each total last changed, and when each party last looked.
        self._changed, self._clock = np.zeros(len(totals), np.int64), 0
        self._opened = [-1] * len(columns)
        #: Per party, rows that moved since it last told its sums; None: take all columns.
        self._moved: list[list[Slots] | None] = [
            [] if all(isinstance(piece, SparsePiece) for piece in pieces) else None
            for pieces in self._pieces
        ]
        self._sparse = [moved is not None for moved in self._moved]

    def moved(self, k: int, slots: Slots | None) -> None:
        """Note that α of rows changed; None: any feature sum may have."""
        moved = self._moved[k]
        if slots is None:
            self._moved[k] = None
        elif moved is not None:
            moved.append(slots)

    def add(self, k: int, own: Floats, scale: float, limit: float, sent: Integers) -> bool:
        """Add what changed in a party's sums since it was sent; False where a value is too large.

        Parameters
        ----------
        own
            The party's sums by local column.
        scale, limit
            Of the fixed point.
        sent
            What the party has sent so far; brought up to date.
        """
        if not len(self._columns[k]):
            return True
        self._clock += 1
        moved, self._moved[k] = self._moved[k], [] if self._sparse[k] else None
        book: tuple[Any, ...] = (sent, self._columns[k], self._totals, self._changed, self._clock)
        told: tuple[Any, ...] = (own, scale, limit, *book)
        if moved is None:
            return bool(_add_all(*told))
        for slots in moved:
            for piece in self._pieces[k]:
                rows: tuple[Any, ...] = (piece.start, piece.columns, piece._rows(slots))
                if not _add_rows(*rows, *told):
                    return False
        return True

    def open_weights(self, k: int, unit: float, lam: float, weights: Floats) -> None:
        """Bring a party's weights of shared columns up to date."""
        since, self._opened[k] = self._opened[k], self._clock
        _open_changed(self._totals, self._columns[k], self._changed, since, unit, lam, weights)

    def restore(self, totals: Integers) -> None:
        """Go on with other totals; parties open all of them again."""
        self._totals = totals
        self._opened = [-1] * len(self._opened)


@numba.njit(**INNER)
def _add_column(
    r: int,
    own: Any,
    scale: float,
    limit: float,
    sent: Any,
    columns: Any,
    totals: Any,
    changed: Any,
    now: int,
) -> bool:
    for c in range(sent.shape[1]):
        scaled = np.rint(own[r, c] * scale)
        # Written so that NaN fails too.
        if not (abs(scaled) <= limit):
            return False
        difference = np.int64(scaled) - sent[r, c]
        if difference != 0:
            totals[columns[r], c] += difference
            sent[r, c] += difference
            changed[columns[r]] = now
    return True


@numba.njit(**OUTER)
def _add_all(
    own: Any,
    scale: float,
    limit: float,
    sent: Any,
    columns: Any,
    totals: Any,
    changed: Any,
    now: int,
) -> bool:
    for r in range(columns.shape[0]):
        if not _add_column(r, own, scale, limit, sent, columns, totals, changed, now):
            return False
    return True


@numba.njit(**OUTER)
def _add_rows(
    start: Any,
    of_entry: Any,
    rows: Any,
    own: Any,
    scale: float,
    limit: float,
    sent: Any,
    columns: Any,
    totals: Any,
    changed: Any,
    now: int,
) -> bool:
    """The columns of some rows; one that comes again has nothing left to add."""
    shared = columns.shape[0]
    for n in range(rows.shape[0]):
        i = rows[n]
        if i < 0:
            continue
        for at in range(start[i], start[i + 1]):
            r = of_entry[at]
            if r >= shared:
                continue
            if not _add_column(r, own, scale, limit, sent, columns, totals, changed, now):
                return False
    return True


@numba.njit(**OUTER)
def _open_changed(
    totals: Any, columns: Any, changed: Any, since: int, unit: float, lam: float, weights: Any
) -> None:
    for r in range(columns.shape[0]):
        if changed[columns[r]] > since:
            for c in range(weights.shape[1]):
                weights[r, c] = np.float64(totals[columns[r], c]) * unit / lam
