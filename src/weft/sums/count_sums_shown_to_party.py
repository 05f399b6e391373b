"""Counts the sums over samples that a party was shown, and those that show its own products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Slots

Integers = NDArray[np.int64]


class Count:
    """An integer per row; blocks of all rows are counted once for all of them."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._all = 0
        self._some: Integers | None = None
        #: No row has more than this.
        self.most = 0

    def add(self, slots: Slots | None, width: int) -> None:
        """So many sums of these rows; None: of all."""
        self.most += width
        if slots is None:
            self._all += width
            return
        if self._some is None:
            self._some = np.zeros(self._rows, np.int64)
        # No block names a row twice.
        self._some[slots] += width

    @property
    def rows(self) -> Integers:
        """Per row, how many there were."""
        if self._some is None:
            return np.full(self._rows, self._all, np.int64)
        return self._some + self._all


class SumCounter:
    """What one party was shown of its shared rows in a run, and what it showed.

    A sum over samples, minus its own part, tells a party a combination of the others' columns.
    After as many of them as there are such columns, these are known up to an invertible map: so
    they are counted, per sample. What counts are the columns of blocks of the kind ``z``, whatever
    they belong to: every class, λ and fold has one of its own, and norms of rows count as one too.

    A block that says nothing new is not counted (`News`): one that equals the last of its kind bit
    by bit, such as the answer to a question that was asked again, or one of zeros where all began
    at zero.

    Parameters
    ----------
    read
        Per shared row, whether another party has its label and so gets its sums.
    whole
        Whether the cipher sends blocks as a whole, so that a receiver could open all of its rows.

    Attributes
    ----------
    booking
        Called before anything is shown and before anything that was opened is used, with the
        counts as they are then.
    """

    def __init__(self, read: NDArray[np.bool_], *, whole: bool = False) -> None:
        rows = len(read)
        #: Rows whose sums another party gets.
        self.read = np.ones(rows, bool) if whole else read
        self._whole = whole
        self.opened = Count(rows)
        self._to_labels = Count(rows)
        self._to_holders = Count(rows)
        self.booking: Callable[[], None] | None = None

    @property
    def received(self) -> Integers:
        """Per shared row, the sums that this party opened."""
        return self.opened.rows

    @property
    def shown(self) -> Integers:
        """Per shared row, the sums with this party's products that others could open."""
        counted: Integers = np.where(self.read, self._to_labels.rows, 0) + self._to_holders.rows
        return counted

    @property
    def reach(self) -> NDArray[np.bool_]:
        """Rows whose sums with this party's products anybody gets, as far as is known."""
        return self.read | bool(self._to_holders.most)

    @property
    def most_shown(self) -> int:
        """No row was shown in more sums than this."""
        return self._to_labels.most * bool(self.read.any()) + self._to_holders.most

    def receive(self, slots: Slots | None, width: int) -> None:
        """Sums were opened."""
        self.opened.add(None if self._whole else slots, width)
        self._book()

    def show(self, slots: Slots | None, width: int, *, everyone: bool) -> None:
        """Products are about to be sent, to holders with labels or to every holder."""
        (self._to_holders if everyone else self._to_labels).add(slots, width)
        self._book()

    def _book(self) -> None:
        if self.booking is not None:
            self.booking()


class News:
    """Tells whether a block says something that the last one did not."""

    def __init__(self) -> None:
        self._last: int | None = None

    def __call__(self, slots: Slots | None, values: NDArray[Any]) -> bool:
        """Whether these values are new; what comes first is, unless it is zero."""
        if self._last is None and not np.count_nonzero(values):
            return False
        where = None if slots is None else slots.tobytes()
        mark = hash((where, values.shape, values.tobytes()))
        new, self._last = mark != self._last, mark
        return new
