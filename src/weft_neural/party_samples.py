"""What a party trains its network on: its blocks and labels, and others to measure with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.data.tile import Tile
from weft.errors import DataError
from weft_neural.gather_tiles_into_blocks import gathered
from weft_neural.settings import Block


@dataclass(frozen=True, eq=False)
class Holdings:
    """Some blocks of some samples, with their labels.

    Attributes
    ----------
    blocks
        By block, one row per sample. Bytes are pixels.
    columns
        By block, the names of its columns, where it comes from a table.
    test
        Samples to measure with, if there are any.
    ids
        Of the samples, where they have any.
    """

    blocks: Mapping[str, NDArray[Any]]
    labels: NDArray[Any]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    test: Holdings | None = None
    ids: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, index: NDArray[Any]) -> Holdings:
        """Some of the samples."""
        blocks = {name: block[index] for name, block in self.blocks.items()}
        ids = None if self.ids is None else self.ids[index]
        return replace(self, blocks=blocks, labels=self.labels[index], ids=ids, test=None)

    def sharing(self, share: float, drawing: bytes, party: str) -> Holdings:
        """Keep a share of the samples for measuring, unless there are some already.

        A sample with an id is kept at all parties or at none: else one would measure with what
        another trained on.
        """
        if self.test is not None or share == 0:
            return self
        names = range(len(self)) if self.ids is None else self.ids.tolist()
        owner = party if self.ids is None else ""
        chosen = np.array([_lot(drawing, f"{owner} {name}") < share for name in names], bool)
        if chosen.all() or not chosen.any():
            raise DataError(
                f"party {party} has {len(self)} sample(s), too few to keep a test_share of "
                f"{share:g} for measuring; choose another"
            )
        return replace(self.rows(np.flatnonzero(~chosen)), test=self.rows(np.flatnonzero(chosen)))


def _lot(drawing: bytes, name: str) -> float:
    """A number from 0 to 1 that a sample draws."""
    digest = blake2b(drawing + b" test " + name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def without_labels(party: str) -> DataError:
    """Why a party cannot take part that has nothing to learn from."""
    return DataError(
        f"party {party} has no labels, but every party of a neural run trains with its own; name "
        "its label column, or leave it out"
    )


def holdings_of(tiles: Sequence[Tile], blocks: Mapping[str, Block], party: str) -> Holdings:
    """A party's tiles as blocks: samples of which it has all its blocks, and the label.

    Raises
    ------
    DataError
        It has no labels, no block, only a part of a block, or no sample with all its blocks.
    """
    found = gathered(tiles, blocks, f"party {party}")
    known = np.array([label is not None for label in found.labels.tolist()], bool)
    if not known.any():
        raise without_labels(party)
    chosen = known & found.whole
    if not chosen.any():
        raise DataError(
            f"party {party} has no labelled sample with all of its blocks "
            f"{', '.join(found.blocks)}; leave one of them out for it"
        )
    shaped = {name: cells[chosen] for name, cells in found.blocks.items()}
    return Holdings(shaped, found.labels[chosen], found.columns, ids=found.ids[chosen])
