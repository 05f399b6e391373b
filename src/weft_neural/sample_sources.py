"""Where a party's samples come from: its tables, or blocks that are cut already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from weft.data.tile import Tile
from weft.errors import DataError
from weft_neural.party_samples import Holdings, holdings_of
from weft_neural.settings import Block


@dataclass(frozen=True, eq=False)
class TableSource:
    """Tiles, whose columns the blocks of a run name."""

    party: str
    tiles: Sequence[Tile]

    def labels(self) -> list[NDArray[Any]]:
        return [tile.labels[tile.labelled] for tile in self.tiles if tile.labels is not None]

    def holdings(self, blocks: Mapping[str, Block]) -> Holdings:
        return holdings_of(self.tiles, blocks, self.party)


@dataclass(frozen=True, eq=False)
class BlockSource:
    """Blocks that were cut beforehand, with samples to measure with."""

    party: str
    held: Holdings

    def labels(self) -> list[NDArray[Any]]:
        return [self.held.labels]

    def holdings(self, blocks: Mapping[str, Block]) -> Holdings:
        chosen = [name for name in blocks if name in self.held.blocks]
        if not chosen:
            raise DataError(f"party {self.party} has none of the blocks {', '.join(blocks)}")
        return _only(self.held, chosen)


def _only(held: Holdings, names: Sequence[str]) -> Holdings:
    blocks = {name: held.blocks[name] for name in names}
    test = None if held.test is None else _only(held.test, names)
    return replace(held, blocks=blocks, test=test)
