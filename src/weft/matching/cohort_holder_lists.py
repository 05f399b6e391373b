"""What the holders of a cohort are told of each other: the same sheet to all of them.

The coordinator writes the sheets. Each holder finds its own line right or refuses, works out from
the sheets what its guards rely on, and confirms them to the others
(:mod:`weft.matching.guard_facts_from_confirmed_lists`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from weft.array_types import Flags, Ints
from weft.fast_small_array_operations import among
from weft.matching.cohorts import Axis, ranges
from weft.protocol.declared_message_fields import Part, malformed
from weft.protocol.field_visibility import record

if TYPE_CHECKING:
    from weft.matching.holding_map import HoldingMap

#: Bytes of a holder's tag of one sheet.
TAG = 16
_WHO = "who else holds its samples and features"


class HolderLists(Part):
    """Per shared cohort of a party along one axis, the numbers of all its holders, ascending."""

    lengths: Annotated[Ints, record(_WHO, "cohorts")]
    holders: Annotated[Ints, record(_WHO, "holders")]

    @classmethod
    def of(cls, axis: Axis, cohorts: Ints) -> HolderLists:
        """Of these cohorts, which are shared."""
        held, lengths = axis.holders, axis.holders.lengths[cohorts]
        if len(cohorts) and (np.diff(cohorts) == 1).all():
            # Of cohorts that follow each other no copy is made: parties of one process share the
            # list, which would be as long for each of them as there are of them.
            first, last = held.start[cohorts[0]], held.start[cohorts[-1]] + lengths[-1]
            return cls(lengths=lengths, holders=held.values[first:last])
        return cls(lengths=lengths, holders=held.values[ranges(held.start[cohorts], lengths)])

    def check(self, cohorts: int, party: int, parties: int) -> None:
        """Refuse lists that are not those of so many shared cohorts of this party."""
        lengths, holders = self.lengths, self.holders
        if len(lengths) != cohorts or (lengths < 2).any() or int(lengths.sum()) != len(holders):
            raise malformed("holders", "does not list the holders of every shared cohort")
        cohort = self.cohort
        rising = np.diff(holders) > 0
        fine = rising | (cohort[1:] != cohort[:-1])
        inside = (holders >= 0) & (holders < parties)
        mine = np.bincount(cohort[holders == party], minlength=cohorts)
        if not (fine.all() and inside.all() and (mine == 1).all()):
            raise malformed("holders", "does not list every holder once, in order")

    @property
    def cohort(self) -> Ints:
        """The cohort of each entry."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


class RowSheets(HolderLists):
    """Of a party's shared row cohorts, also what every holder brings to them.

    Attributes
    ----------
    labelled
        Per entry, whether that holder has the labels.
    line_lengths, columns
        Per entry, the numbers of the column cohorts of which the holder has these samples' cells.
    tiles
        Per entry of ``columns``, in how many of its tiles the holder has them.
    numbers, sizes
        All column cohorts that occur, and how many columns each has.
    """

    labelled: Annotated[Flags, record(_WHO, "holders")]
    line_lengths: Annotated[Ints, record(_WHO, "holders")]
    columns: Annotated[Ints, record(_WHO, "entries")]
    tiles: Annotated[Ints, record(_WHO, "entries")]
    numbers: Annotated[Ints, record(_WHO, "column cohorts")]
    sizes: Annotated[Ints, record(_WHO, "column cohorts")]

    @classmethod
    def of_holdings(cls, holdings: HoldingMap, cohorts: Ints) -> RowSheets:
        """Of these shared cohorts."""
        rows, lines = holdings.rows, holdings.lines
        lists = HolderLists.of(rows, cohorts)
        pairs = ranges(rows.holders.start[cohorts], lists.lengths)
        counts = np.diff(lines.indptr)[pairs].astype(np.int64)
        places = ranges(lines.indptr[pairs].astype(np.int64), counts)
        columns = lines.indices[places]
        occurs = np.zeros(len(holdings.columns.sizes), bool)
        occurs[columns] = True
        numbers = np.flatnonzero(occurs)
        return cls(
            lengths=lists.lengths,
            holders=lists.holders,
            labelled=holdings.labelled_pairs[pairs],
            line_lengths=counts,
            columns=columns.astype(np.int64),
            tiles=lines.data[places].astype(np.int64),
            numbers=numbers,
            sizes=holdings.columns.sizes[numbers].astype(np.int64),
        )

    def check(self, cohorts: int, party: int, parties: int) -> None:
        super().check(cohorts, party, parties)
        entries = len(self.holders)
        if len(self.labelled) != entries or len(self.line_lengths) != entries:
            raise malformed("labelled", "does not say what every holder brings")
        if (self.line_lengths < 0).any() or int(self.line_lengths.sum()) != len(self.columns):
            raise malformed("columns", "does not list the columns of every holder")
        if len(self.tiles) != len(self.columns) or (self.tiles < 1).any():
            raise malformed("tiles", "does not say in how many tiles cells are")
        known = len(self.numbers) == len(self.sizes) and bool((np.diff(self.numbers) > 0).all())
        if not known or not among(self.columns, self.numbers).all() or (self.sizes < 1).any():
            raise malformed("numbers", "does not describe every column cohort")
        line = np.repeat(np.arange(entries), self.line_lengths)
        twice = (np.diff(self.columns) <= 0) & (line[1:] == line[:-1])
        if twice.any():
            raise malformed("columns", "does not list columns in order")

    @property
    def cells(self) -> Ints:
        """(entries × column cohorts of ``numbers``) in how many tiles a holder has which cells."""
        found = np.zeros((len(self.holders), len(self.numbers)), np.int64)
        line = np.repeat(np.arange(len(self.holders)), self.line_lengths)
        found[line, np.searchsorted(self.numbers, self.columns)] = self.tiles
        return found
