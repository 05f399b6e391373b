"""Counts the sums over samples that a party was shown, and those that show its own products."""

from __future__ import annotations

from collections.abc import Callable
from secrets import randbits
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Slots
from weft.numba_options import OUTER

Integers = NDArray[np.int64]

#: Bytes from which a block is looked at in machine code; a shorter one is hashed sooner.
_LONG = 1 << 16


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
        #: Nobody else can find two blocks that are taken for one.
        self._key = np.uint64(randbits(64))

    def __call__(self, slots: Slots | None, values: NDArray[Any]) -> bool:
        """Whether these values are new; what comes first is, unless it is zero."""
        if self._last is None and not np.count_nonzero(values):
            return False
        where = None if slots is None else slots.tobytes()
        content = values.tobytes() if values.nbytes < _LONG else self._folded(values)
        mark = hash((where, values.shape, content))
        new, self._last = mark != self._last, mark
        return new

    def _folded(self, values: NDArray[Any]) -> int:
        words = np.ascontiguousarray(values).reshape(-1).view(np.uint64)
        return int(folded(words, self._key))


@numba.njit(**OUTER)
def folded(words: Any, key: Any) -> Any:
    """One word that is another one, for nearly every key, where any of the words is.

    Four lanes, since each step of a lane waits for the one before.
    """
    a, b = key, key ^ np.uint64(0x9E3779B97F4A7C15)
    c, d = key ^ np.uint64(0xBF58476D1CE4E5B9), key ^ np.uint64(0x94D049BB133111EB)
    factor, half = np.uint64(0xFF51AFD7ED558CCD), np.uint64(32)
    whole = words.shape[0] // 4 * 4
    for i in range(0, whole, 4):
        a = (a ^ words[i]) * factor
        a ^= a >> half
        b = (b ^ words[i + 1]) * factor
        b ^= b >> half
        c = (c ^ words[i + 2]) * factor
        c ^= c >> half
        d = (d ^ words[i + 3]) * factor
        d ^= d >> half
    for i in range(whole, words.shape[0]):
        a = (a ^ words[i]) * factor
        a ^= a >> half
    for lane in (b, c, d):
        a = (a ^ lane) * factor
        a ^= a >> half
    return a
