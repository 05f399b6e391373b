"""Over whom a sum of scalars goes, and who shares masks with whom: nothing in here is secret."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints

#: Up to this many parties, everyone shares masks with everyone …
FEW = 9
#: … and beyond with so many neighbours on either side, in the order of the parties of a sum.
NEIGHBOURS = 2


@dataclass(frozen=True, eq=False)
class Sharers:
    """The parties over whom a sum of scalars goes.

    Attributes
    ----------
    numbers
        Of the parties, rising.
    mark
        Sets this set apart from every other one of the run.
    """

    numbers: Ints
    mark: bytes
    _found: dict[int, list[int] | None] = field(default_factory=dict, init=False, repr=False)

    def neighbours(self, party: int) -> list[int] | None:
        """With whom a party shares masks, rising; None: it is not one of them.

        The parties form a ring; each shares a mask with its nearest neighbours, so that all
        masks cancel in the sum over everyone, and in no smaller one.
        """
        if party not in self._found:
            self._found[party] = self._neighbours(party)
        return self._found[party]

    def _neighbours(self, party: int) -> list[int] | None:
        n = len(self.numbers)
        at = int(np.searchsorted(self.numbers, party))
        if at == n or self.numbers[at] != party:
            return None
        reach = n // 2 if n <= FEW else NEIGHBOURS
        offsets = sorted({o % n for o in range(-reach, reach + 1)} - {0})
        return sorted(int(self.numbers[(at + offset) % n]) for offset in offsets)


def attendance(parties: int, numbers: list[int]) -> NDArray[np.uint8]:
    """A bit for every party that a sum goes over."""
    flags = np.zeros(parties, bool)
    flags[numbers] = True
    return np.packbits(flags)
