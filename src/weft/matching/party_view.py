"""A party's view in the federation: its own slots and roles, and nothing foreign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.protocol.message import Message, Value, array, integer, text

Ints = NDArray[np.int64]
#: Fields that a party fills in itself.
_OWN = ("tile_rows", "tile_columns")


@dataclass(frozen=True)
class PartyView:
    """What a party learns from matching.

    Rows and columns have local slots; the shared ones come first. Cohorts are listed in the
    order of their slots: cohort j covers the local rows cohort_start[j] … cohort_start[j+1]−1.

    Attributes
    ----------
    labelled, counts, bias
        Per cohort: whether this party has the labels, counts the losses, adds the bias.
    label_parties
        How many parties of the federation have labels of some sample.
    computing
        Per cohort: how many parties compute the dual step (|B_i| in the paper).
    row_holders, column_holders
        The most parties that hold one sample, one feature, in the whole federation.
    tile_row_cohorts, tile_column_cohorts
        Per tile: for each token, in the order in which the party sent them, the position of its
        cohort in this view (−1: sample left out).
    owned
        Per local column: whether this party counts its weight in ‖w‖².
    cell_holders
        (row cohort × column cohort) number of tiles with that cell, None if one each.
    owned_cells
        With overlap "first", per tile, the cells it owns.
    min_batch
        How many samples of an exposed cohort must change together, if any do.
    exposed
        Per cohort: whether its samples enter feature sums that others see who lack them.
    crossed
        Per cohort: whether somebody has its samples and one of their features elsewhere.
    sharers, column_sharers
        How many parties hold each row cohort, each column cohort.
    fewest_foreign
        Per cohort: the fewest columns that are foreign to another holder; zero: there are none.
    foreign
        Per cohort: how many columns only other holders have.
    other_…
        Other label holders of the shared cohorts, to follow their draws: number of the party,
        how many samples it draws from, where the cohort begins among them, the cohort's size
        and its local start here.
    tile_rows, tile_columns
        Per tile: local slot of each row and column (−1: sample left out). The party finds them
        itself (:mod:`weft.matching.slot_order`); they never travel.
    """

    party: int
    n_parties: int
    label_parties: int
    n_samples: int
    n_shared_rows: int
    n_shared_columns: int
    n_columns: int
    row_holders: int
    column_holders: int
    cohort: Ints
    cohort_start: Ints
    labelled: NDArray[np.bool_]
    counts: NDArray[np.bool_]
    computing: Ints
    bias: NDArray[np.bool_]
    bias_slot: int
    tile_row_cohorts: tuple[NDArray[np.int32], ...]
    tile_column_cohorts: tuple[NDArray[np.int32], ...]
    column_cohort: NDArray[np.int32]
    owned: NDArray[np.bool_]
    overlap: str
    cell_holders: NDArray[np.int32] | None
    owned_cells: tuple[NDArray[np.bool_], ...]
    min_batch: int
    exposed: NDArray[np.bool_]
    crossed: NDArray[np.bool_]
    sharers: Ints
    column_sharers: Ints
    fewest_foreign: Ints
    foreign: Ints
    other_party: Ints
    other_rows: Ints
    other_offset: Ints
    other_size: Ints
    other_start: Ints
    tile_rows: tuple[NDArray[np.int32], ...] = ()
    tile_columns: tuple[NDArray[np.int32], ...] = ()

    @property
    def n_rows(self) -> int:
        return int(self.cohort_start[-1])

    @cached_property
    def sizes(self) -> Ints:
        return np.diff(self.cohort_start)

    @cached_property
    def shared_rows(self) -> Ints:
        """First local row of each shared row cohort, and where the last one ends."""
        return self.cohort_start[: int(np.searchsorted(self.cohort_start, self.n_shared_rows)) + 1]

    @cached_property
    def shared_columns(self) -> Ints:
        """First local column of each shared column cohort, and where the last one ends."""
        sizes = np.bincount(self.column_cohort[: self.n_shared_columns])
        starts: Ints = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return starts

    @cached_property
    def row_cohort(self) -> NDArray[np.int32]:
        """Per local row, the position of its cohort in this view."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes).astype(np.int32)

    @cached_property
    def counted_rows(self) -> NDArray[np.bool_]:
        """Per local row, whether this party counts its loss."""
        return self.counts[self.row_cohort]

    @cached_property
    def counted_shared_rows(self) -> NDArray[np.int32]:
        """Shared local rows whose losses this party counts."""
        return np.flatnonzero(self.counted_rows[: self.n_shared_rows]).astype(np.int32)

    def to_message(self) -> Message:
        """Flatten into a message; tuples become numbered fields."""
        message: Message = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _OWN:
                continue
            if isinstance(value, tuple):
                message[f"n_{field.name}"] = len(value)
                for i, part in enumerate(value):
                    message[f"{field.name}.{i}"] = part
            elif value is not None:
                message[field.name] = value
        return message

    @classmethod
    def from_message(cls, message: Mapping[str, Value]) -> PartyView:
        """The inverse of :meth:`to_message`."""
        values: dict[str, object] = {}
        for field in fields(cls):
            name = field.name
            if name in _OWN:
                continue
            if f"n_{name}" in message:
                count = integer(message, f"n_{name}")
                values[name] = tuple(array(message, f"{name}.{i}") for i in range(count))
            elif name == "cell_holders":
                values[name] = message.get(name)
            elif name == "overlap":
                values[name] = text(message, name)
            else:
                values[name] = message[name]
        return cls(**values)  # type: ignore[arg-type]
