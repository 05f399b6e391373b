"""Where every party's table lies in the whole one: rows and columns in numbers that all share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from weft.array_types import Ints
from weft.errors import ConfigError
from weft.matching.holding_map import HoldingMap
from weft.protocol.declared_message_fields import malformed
from weft.solvers.secret_sharing.messages import Shapes

#: Cells that masks are kept for, in all: eight bytes each, at the dealer and at every party.
MOST_CELLS = 1_000_000_000


@dataclass(frozen=True)
class Place:
    """The rows and columns of one party's table."""

    rows: Ints
    columns: Ints

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    @property
    def cells(self) -> int:
        return len(self.rows) * len(self.columns)


@dataclass(frozen=True)
class WholeTable:
    """All places, party by party."""

    n_rows: int
    n_columns: int
    places: tuple[Place, ...]

    @property
    def cells(self) -> int:
        return sum(place.cells for place in self.places)


def shapes_of(holdings: HoldingMap) -> Shapes:
    """Shapes of the tables of all parties: sizes of cohorts, and the cohorts of each."""
    parties = range(len(holdings.parties))
    rows, columns = holdings.rows, holdings.columns
    row_cohorts, row_ends = _joined([rows.cohorts[party] for party in parties])
    column_cohorts, column_ends = _joined([columns.cohorts[party] for party in parties])
    return Shapes(
        row_sizes=np.asarray(rows.sizes, np.int64),
        column_sizes=np.asarray(columns.sizes, np.int64),
        row_cohorts=row_cohorts,
        row_ends=row_ends,
        column_cohorts=column_cohorts,
        column_ends=column_ends,
    )


def whole_table(shapes: Shapes) -> WholeTable:
    """Where every table lies; tables whose masks would not fit are refused."""
    rows = _slots(shapes.row_sizes, shapes.row_cohorts, shapes.row_ends, "row_cohorts")
    columns = _slots(
        shapes.column_sizes, shapes.column_cohorts, shapes.column_ends, "column_cohorts"
    )
    if len(rows) != len(columns):
        raise malformed("shapes", "do not tell rows and columns of the same parties")
    places = tuple(Place(r, c) for r, c in zip(rows, columns, strict=True))
    table = WholeTable(int(shapes.row_sizes.sum()), int(shapes.column_sizes.sum()), places)
    if table.cells > MOST_CELLS:
        raise ConfigError(
            f"sealed training keeps a mask for every cell, and these tables have {table.cells:.1e} "
            f"where {MOST_CELLS:.0e} are the limit; leave columns out, or train with mode = 'sums'"
        )
    return table


def _joined(cohorts: Sequence[Ints]) -> tuple[Ints, Ints]:
    ends = np.cumsum([len(each) for each in cohorts]).astype(np.int64)
    return np.concatenate([np.asarray(each, np.int64) for each in cohorts]), ends


def _slots(sizes: Ints, cohorts: Ints, ends: Ints, field: str) -> list[Ints]:
    known = (sizes >= 0).all() and ((cohorts >= 0) & (cohorts < len(sizes))).all()
    bounds = [0, *ends.tolist()]
    if not known or bounds[-1] != len(cohorts) or sorted(bounds) != bounds:
        raise malformed(field, "does not name cohorts for every party")
    starts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    found = []
    for begin, end in pairwise(bounds):
        mine = cohorts[begin:end].tolist()
        if len(set(mine)) < len(mine):
            raise malformed(field, "names a cohort twice for one party")
        parts = [np.arange(starts[c], starts[c + 1]) for c in mine]
        found.append(np.concatenate([np.zeros(0, np.int64), *parts]))
    return found
