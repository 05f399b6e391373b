"""What a party trains its network on: its blocks and labels, and others to measure with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import blake2b
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.data.tile import Tile
from weft.errors import DataError
from weft.neural.settings import Block

Floats = NDArray[np.float64]


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
    """

    blocks: Mapping[str, NDArray[Any]]
    labels: NDArray[Any]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    test: Holdings | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, index: NDArray[Any]) -> Holdings:
        """Some of the samples."""
        blocks = {name: block[index] for name, block in self.blocks.items()}
        return replace(self, blocks=blocks, labels=self.labels[index], test=None)

    def sharing(self, share: float, seed: int, party: str) -> Holdings:
        """Keep a share of the samples for measuring, unless there are some already."""
        if self.test is not None or share == 0:
            return self
        purpose = blake2b(f"{seed} test {party}".encode(), digest_size=8).digest()
        order = np.random.default_rng(int.from_bytes(purpose, "big")).permutation(len(self))
        kept = max(1, round(share * len(self)))
        if kept >= len(self):
            raise DataError(
                f"party {party} has {len(self)} sample(s), too few to keep a test_share of "
                f"{share:g} for measuring; lower it"
            )
        chosen, rest = np.sort(order[:kept]), np.sort(order[kept:])
        return replace(self.rows(rest), test=self.rows(chosen))

    @cached_property
    def widths(self) -> dict[str, int]:
        """How many numbers a sample has in every block."""
        return {name: prod(block.shape[1:]) for name, block in self.blocks.items()}


def holdings_of(tiles: Sequence[Tile], blocks: Mapping[str, Block], party: str) -> Holdings:
    """A party's tiles as blocks: samples of which it has all its blocks, and the label.

    Raises
    ------
    DataError
        It has no labels, no block, only a part of a block, or no sample with all its blocks.
    """
    names = _columns(tiles, blocks, party)
    number: dict[str, int] = {}
    for tile in tiles:
        for sample in tile.ids.tolist():
            number.setdefault(sample, len(number))
    labels = np.full(len(number), None, object)
    filled = {name: np.full((len(number), len(own)), np.nan) for name, own in names.items()}
    held = {name: np.zeros((len(number), len(own)), bool) for name, own in names.items()}
    for tile in tiles:
        rows = np.array([number[sample] for sample in tile.ids.tolist()], np.int64)
        if tile.labels is not None:
            labels[rows[tile.labelled]] = tile.labels[tile.labelled]
        features = {feature: at for at, feature in enumerate(tile.features.tolist())}
        for name, own in names.items():
            here = [(k, features[column]) for k, column in enumerate(own) if column in features]
            if here:
                to, of = (np.array(part, np.int64) for part in zip(*here, strict=True))
                cells = tile.block[:, of]
                dense = cells if isinstance(cells, np.ndarray) else cells.toarray()
                filled[name][rows[:, None], to] = dense
                held[name][rows[:, None], to] = True
    known = np.array([label is not None for label in labels.tolist()], bool)
    if not known.any():
        raise DataError(
            f"party {party} has no labels, but every party of a neural run trains with its own; "
            "name its label column, or leave it out"
        )
    whole = known.copy()
    for mask in held.values():
        whole &= mask.all(axis=1)
    if not whole.any():
        raise DataError(
            f"party {party} has no labelled sample with all of its blocks {', '.join(names)}; "
            "leave one of them out for it"
        )
    shaped = {
        name: cells[whole].reshape(-1, *(blocks[name].shape or (len(names[name]),)))
        for name, cells in filled.items()
    }
    return Holdings(shaped, labels[whole], {name: tuple(own) for name, own in names.items()})


def _columns(
    tiles: Sequence[Tile], blocks: Mapping[str, Block], party: str
) -> dict[str, list[str]]:
    """Per block that it holds, its columns in an order that is the same at all parties."""
    known = {feature for tile in tiles for feature in tile.features.tolist()}
    found: dict[str, list[str]] = {}
    taken: dict[str, str] = {}
    for name, block in blocks.items():
        own = _matching(known, name, block)
        if not own:
            continue
        if block.shape is not None and prod(block.shape) != len(own):
            raise DataError(
                f"party {party} has {len(own)} columns of block {name}, whose shape "
                f"{list(block.shape)} takes {prod(block.shape)}; correct its columns or its shape"
            )
        for column in own:
            if column in taken:
                raise DataError(
                    f"party {party}: column {column} belongs to the blocks {taken[column]} and "
                    f"{name}; let the blocks' columns differ"
                )
            taken[column] = name
        found[name] = own
    if not found:
        raise DataError(
            f"party {party} has columns of none of the blocks {', '.join(blocks)}; check the "
            "names and patterns under columns"
        )
    return found


def _matching(known: set[str], name: str, block: Block) -> list[str]:
    if block.columns is None:
        prefix = re.compile(re.escape(name) + r"[^A-Za-z]")
        return sorted((c for c in known if c == name or prefix.match(c)), key=_natural)
    own: list[str] = []
    for pattern in block.columns:
        matched = [c for c in known if c == pattern or fnmatchcase(c, pattern)]
        own += [c for c in sorted(matched, key=_natural) if c not in own]
    return own


def _natural(name: str) -> list[tuple[int, int, str]]:
    """So that pixel 2 comes before pixel 10."""
    parts = re.split(r"(\d+)", name)
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]
