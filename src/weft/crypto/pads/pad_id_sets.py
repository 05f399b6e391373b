"""Marks: what a total carries at one place, a label or a *knot* of several signed labels."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from weft.crypto.ciphers.block_format import Carried, Labels
from weft.crypto.pads.pad_ids import SIGN

Ints = NDArray[np.int64]


class Knots:
    """Marks that stand for several signed labels."""

    def __init__(self) -> None:
        self._table: list[tuple[int, ...]] = []
        self._known: dict[tuple[int, ...], int] = {}

    def mark(self, labels: Iterable[int]) -> int:
        """One mark for a set of signed labels: the label itself, zero, or a knot."""
        found = tuple(sorted(labels))
        if not found:
            return 0
        if len(found) == 1 and not found[0] & int(SIGN):
            return found[0]
        if found not in self._known:
            self._known[found] = len(self._table)
            self._table.append(found)
        return int(SIGN) | self._known[found]

    def labels(self, mark: int) -> tuple[int, ...]:
        """The signed labels of a mark."""
        if not mark & int(SIGN):
            return (mark,) if mark else ()
        return self._table[mark & ~int(SIGN)]

    def rewrite(self, marks: Labels) -> tuple[Labels, NDArray[np.uint64] | None]:
        """Marks for a message: knots numbered from zero, and their table (None: no knots)."""
        if not self._table:
            return marks, None
        several = (marks & SIGN) != 0
        if not several.any():
            return marks, None
        names, inverse = np.unique(marks[several], return_inverse=True)
        out = marks.copy()
        out[several] = SIGN | inverse.astype(np.uint64)
        flat: list[int] = []
        for name in names.tolist():
            labels = self.labels(name)
            flat += [len(labels), *labels]
        return out, np.array(flat, np.uint64)

    def carried(self, lengths: NDArray[np.uint32] | None, marks: Labels, sizes: Ints) -> Carried:
        """Marks of runs (of cohorts with ``sizes`` where ``lengths`` is None), for a block."""
        if not self._table or not ((marks & SIGN) != 0).any():
            return Carried(lengths, None, marks)
        lists = [self.labels(mark) for mark in marks.tolist()]
        return Carried(
            sizes.astype(np.uint32) if lengths is None else lengths,
            np.array([len(labels) for labels in lists], np.uint32),
            np.array([label for labels in lists for label in labels], np.uint64),
        )

    def state(self) -> NDArray[np.uint64]:
        flat = [value for labels in self._table for value in (len(labels), *labels)]
        return np.array(flat, np.uint64)

    def restore(self, state: NDArray[np.uint64]) -> None:
        self._table = read_knots(state)
        self._known = {labels: i for i, labels in enumerate(self._table)}


def read_knots(flat: NDArray[np.uint64]) -> list[tuple[int, ...]]:
    """A table of knots from its flat form."""
    table, at, values = [], 0, flat.tolist()
    while at < len(values):
        count = values[at]
        table.append(tuple(values[at + 1 : at + 1 + count]))
        at += 1 + count
    return table
