"""What groups of other parties know of one party's rows, and how many numbers a run tells of them.

Readers of a sealed model that are parties know their own cells, alone or together. Of the rows that
they share with a party, a model and its second moments are equations with factors that they know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.array_types import Flags, Ints
from weft.fast_small_array_operations import among
from weft.solvers.secret_sharing.table_positions import Place, WholeTable

#: Rows that there must be for each number that is told about all of them.
ROWS_PER_NUMBER = 5
#: Sets of rows that groups of readers hold together, of one party's rows.
_MOST_SETS = 256


@dataclass(frozen=True)
class Told:
    """Numbers that a run tells others about rows of a party.

    Attributes
    ----------
    groups
        Local rows that a group of others holds, and how many numbers it reads about them.
    by_row
        Per local row, how many of them it has a part in.
    """

    groups: tuple[tuple[Ints, int], ...]
    by_row: Ints

    def too_many(self, before: Ints | None = None) -> tuple[int, int, int] | None:
        """Of a group that would have too many: numbers before and now, and the most there may be.

        ``before`` has per local row what earlier runs told; of groups that these told nothing, a
        run is judged by itself.
        """
        for rows, numbers in self.groups:
            earlier = 0 if before is None else int(before[rows].max(initial=0))
            most = len(rows) // ROWS_PER_NUMBER
            if earlier + numbers > most and (earlier or before is None):
                return earlier, numbers, most
        return None


def held_by_others(table: WholeTable, party: int) -> tuple[list[Place], list[Flags]]:
    """The places of all other parties, and which rows of this one each of them holds."""
    own = table.places[party]
    others = [place for number, place in enumerate(table.places) if number != party]
    return others, [among(own.rows, other.rows) for other in others]


def columns_within(others: Sequence[Place], held: Sequence[Flags], known: Flags) -> Ints:
    """Columns of all who hold some of these rows and, of the party's, none but these.

    No group that holds exactly these rows has more.
    """
    found = [
        other.columns
        for other, mine in zip(others, held, strict=True)
        if mine.any() and not (mine & ~known).any()
    ]
    return np.unique(np.concatenate([np.zeros(0, np.int64), *found]))


def unions(sets: Sequence[Flags]) -> list[Flags] | None:
    """What one or several of these sets cover, each once; None: more than can be looked at."""
    found: dict[bytes, Flags] = {}
    for each in sets:
        new = [each, *(each | before for before in found.values())]
        found.update((union.tobytes(), union) for union in new)
        if len(found) > _MOST_SETS:
            return None
    return list(found.values())


def patterns(held: Sequence[Flags], rows: int) -> list[tuple[Ints, Flags]]:
    """Rows that the same others hold, and which of these others that are."""
    groups = np.zeros(rows, np.int64)
    for each in held:
        # Numbered anew, so that numbers stay below that of the rows.
        groups = 2 * groups + each
        groups = (np.cumsum(np.bincount(groups) > 0) - 1)[groups]
    found = [np.flatnonzero(groups == number) for number in range(groups.max(initial=-1) + 1)]
    return [(some, np.array([each[some[0]] for each in held], bool)) for some in found]
