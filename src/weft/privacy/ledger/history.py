"""What a ledger holds, by groups of samples."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.privacy.ledger.ledger_file import Pages

Range = tuple[int, int]


@dataclass(frozen=True)
class Group:
    """Samples of which the same is known; ranges hold the smallest and the largest number.

    Attributes
    ----------
    foreign, fewest
        See :class:`weft.privacy.ledger.ledger_file.Pages`.
    received, shown
        Sums about one of them.
    known, told
        Whether as many sums were received as columns are foreign; and shown, as another holder
        lacks.
    """

    samples: int
    foreign: Range
    fewest: Range
    received: Range
    shown: Range
    known: bool
    told: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)


def groups_of(pages: Pages, *, fine: bool = False) -> list[Group]:
    """The groups of a ledger, the largest first; ``fine`` ones have the same numbers throughout."""
    known = (pages.foreign > 0) & (pages.received >= pages.foreign)
    told = (pages.fewest > 0) & (pages.shown >= pages.fewest)
    columns: list[NDArray[Any]] = [known, told, pages.foreign > 0, pages.fewest > 0]
    if fine:
        columns += [pages.foreign, pages.fewest, pages.received, pages.shown]
    kinds, back = np.unique(np.stack(columns, axis=1).astype(np.int64), axis=0, return_inverse=True)
    found = []
    for number, kind in enumerate(kinds.tolist()):
        mine = back.ravel() == number
        found.append(
            Group(
                samples=int(mine.sum()),
                foreign=_range(pages.foreign[mine]),
                fewest=_range(pages.fewest[mine]),
                received=_range(pages.received[mine]),
                shown=_range(pages.shown[mine]),
                known=bool(kind[0]),
                told=bool(kind[1]),
            )
        )
    return sorted(found, key=lambda group: -group.samples)


def _range(counts: NDArray[np.int64]) -> Range:
    return int(counts.min()), int(counts.max())
