"""Who takes part in a run, with what: as a party tells its own ledger, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.matching.id_normalization import normal_features
from weft.matching.party_view import PartyView
from weft.sums.local_table import Block

Names = NDArray[np.object_]
Hashes = NDArray[np.uint64]


class Held(Protocol):
    """What is told of a tile."""

    @property
    def ids(self) -> Names: ...

    @property
    def features(self) -> Names: ...

    @property
    def block(self) -> Block: ...

    @property
    def labels(self) -> NDArray[Any] | None: ...


@dataclass(frozen=True)
class Attendance:
    """The samples of a party in a run.

    Attributes
    ----------
    ids
        Of each.
    places
        As in :class:`weft.privacy.ledger.earlier_samples.Memory`.
    contents
        Hashes of their cells and labels.
    """

    ids: Names
    places: NDArray[np.int32]
    contents: Hashes


def attendance(view: PartyView, tiles: Sequence[Held]) -> Attendance | None:
    """Who takes part under a view, with tiles as they are before scaling.

    None where others see no feature sum with any of these samples.
    """
    shown = view.exposed
    if view.min_batch == 1:
        # Nothing guards them, so that nobody counted whom it would have to guard.
        shown = np.full(len(view.sizes), view.n_shared_columns > 0)
    if not shown.any():
        return None
    numbers = np.arange(1, len(view.sizes) + 1)
    places = np.where(shown, numbers, -numbers)[view.row_cohort].astype(np.int32)
    ids = np.full(view.n_rows, "", dtype=object)
    contents = np.zeros(view.n_rows, np.uint64)
    for tile, slots in zip(tiles, view.tile_rows, strict=True):
        held = slots >= 0
        ids[slots[held]] = tile.ids[held]
        # A sum, for samples that several tiles hold parts of; no tile holds one twice.
        contents[slots[held]] += _contents(tile)[held]
    return Attendance(ids, places, contents)


def _contents(tile: Held) -> Hashes:
    """Hashes of rows and labels, in whatever order the columns are."""
    names = normal_features(tile.features)
    order = np.argsort(names.astype(str), kind="stable")
    start = blake2b("\x00".join(names[order].tolist()).encode(), digest_size=8)
    labels = [""] * len(tile.ids) if tile.labels is None else tile.labels.tolist()
    digests = []
    for row, label in zip(_rows(tile.block, order), labels, strict=True):
        state = start.copy()
        state.update(row)
        state.update(str(label).encode())
        digests.append(state.digest())
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def _rows(block: Block, order: NDArray[np.int64]) -> Iterator[bytes]:
    """The cells of each row as bytes, columns in an order of their own."""
    if isinstance(block, np.ndarray):
        for row in block:
            yield row[order].tobytes()
        return
    place = np.argsort(order)
    for begin, end in zip(block.indptr[:-1].tolist(), block.indptr[1:].tolist(), strict=True):
        columns = place[block.indices[begin:end]]
        sort = np.argsort(columns)
        yield columns[sort].tobytes() + block.data[begin:end][sort].tobytes()
